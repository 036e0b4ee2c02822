// Kernels: the spectrum from which variances are made, as passes.variance.smooth; lanes along wavelength.
//
// K is the own block of a fibre in icov (fibres, nd, 2 hw + 1, nwave), the response of its spots to a spectrum. sums: the
// first (fibres, nwave) are weights; a bin without weight is not seen. Vectors are (fibres, nwave).
#pragma once
#include "normal.h"

// Row j of a fibre's own block times the values `given(bin)`; sums are in the order of distance.
template <typename Given>
LANE double own_row(const double *icov, index f, int j, index nd, int hw, int end, Given given)
{
    const double *block = icov + (f * nd * (2 * hw + 1) + hw) * end;
    double total = block[j] * given(j);
    LOOP(int, k, 1, hw + 1) {
        block += end;
        total += j + k < end ? block[j] * given(j + k) : 0.0;
        total += j >= k ? block[j - k] * given(j - k) : 0.0;
    }
    return total;
}

// blurred (2, fibres, nwave) = K x and K 1 over the bins that are seen and not in a line (lines: null if there are none yet), 0
// at the others.
BLOCK(32) void blur(index n, double *blurred, const double *x, const signed char *lines, const double *sums,
                    const double *icov, index nd, index hw, index nwave, index bins)
{
    index f = n / nwave, first = f * nwave;
    auto known = [=](int j) { return sums[first + j] > 0.0 && !(lines && lines[first + j]); };
    int j = (int)(n - first), end = (int)nwave;
    bool mine = known(j);
    double light = own_row(icov, f, j, nd, (int)hw, end, [=](int i) { return known(i) ? x[first + i] : 0.0; });
    double share = own_row(icov, f, j, nd, (int)hw, end, [=](int i) { return known(i) ? 1.0 : 0.0; });
    blurred[n] = mine ? light : 0.0;
    blurred[bins + n] = mine ? share : 0.0;
}

// y = the ratio of the sums of K x and K 1 over `width` bins around each; in a line, the value of another spectrum.
BLOCK(64) void average(index n, double *y, const double *blurred, const double *other, const signed char *lines,
                       index width, index nwave, index bins)
{
    index first = n / nwave * nwave, half = width / 2;
    double light = 0.0, share = 0.0;
    LOOP(index, j, larger(n - half, first), smaller(n + half + 1, first + nwave)) {
        light += blurred[j];
        share += blurred[bins + j];
    }
    y[n] = lines && lines[n] ? other[n] : share > 0.0 ? light / share : 0.0;
}

// error = the variance of K x, if the pixels had the variance of read noise alone: variance.seen_noise; y: the light;
// share: of each spot's light on good pixels.
BLOCK(64) void doubt_bins(index n, double *error, const double *y, const double *share, const double *sums, const double *icov,
                     index nd, index hw, index nwave)
{
    index f = n / nwave, first = f * nwave;
    int j = (int)(n - first), end = (int)nwave;
    double own = icov[(f * nd * (2 * hw + 1) + hw) * nwave + j], more = INFINITY;
    bool seen = sums[n] > 0.0 && share[n] > 0.0;
    if (seen) {
        double light = own_row(icov, f, j, nd, (int)hw, end, [=](int i) { return larger(y[first + i], 0.0); });
        more = 1.0 + light / share[n];
    }
    error[n] = seen ? own * more : INFINITY;
}

// row (fibres, hw + 1) = the mean of each diagonal of K over the bins that are seen.
BLOCK(32) void mean_row(index n, double *row, const double *sums, const double *icov, index nd, index hw, index nwave)
{
    index f = n / (hw + 1), k = n % (hw + 1);
    const double *mine = icov + (f * nd * (2 * hw + 1) + hw + k) * nwave, *weight = sums + f * nwave;
    double total = 0.0;
    int count = 0;
    FOUR_AT_ONCE
    for (int j = 0; j < (int)nwave; j++) {
        bool seen = weight[j] > 0.0;
        total += seen ? mine[j] : 0.0;
        count += seen;
    }
    row[n] = total / larger(count, 1);
}

// left (fibres) = the share of the noise that remains after subtracting an average over `width` bins, variance.left_by;
// turns (longest, frequencies): cosines, doubled except in the first row.
BLOCK(32) void leave_noise(index n, double *left, const double *row, const double *turns, index width, index hw,
                           index frequencies)
{
    const double *mine = row + n * (hw + 1);
    double whole = mine[0], total = 0.0;
    LOOP(index, k, 1, hw + 1)
        whole += 2.0 * mine[k];
    LOOP(index, w, 0, frequencies) {
        double power = 0.0, box = 0.0;
        LOOP(index, k, 0, hw + 1)
            power += mine[k] * turns[k * frequencies + w];
        LOOP(index, k, 0, width / 2 + 1)
            box += turns[k * frequencies + w];
        double share = 1.0 - power / (whole > 0.0 ? whole : 1.0) * box / width;
        total += power * (share * share);
    }
    left[n] = total > 0.0 ? total / frequencies / mine[0] : 1.0;
}

// found: bins in which the square of K (x - y), reduced by the light of `skew` photons, is more than `most` times its variance
// from noise.
BLOCK(64) void stand_apart(index n, signed char *found, const double *x, const double *y, const double *error,
                           const double *left, const double *icov, index nd, index hw, index nwave, double most,
                           double skew)
{
    index f = n / nwave, first = f * nwave;
    double residual = own_row(icov, f, (int)(n - first), nd, (int)hw, (int)nwave,
                              [=](int i) { return x[first + i] - y[first + i]; });
    residual -= smaller(larger(residual, 0.0), skew * icov[(f * nd * (2 * hw + 1) + hw) * nwave + n - first]);
    found[n] = residual * residual > most * (error[n] * left[f]);
}

// Add the bins that were found, and `reach` bins on both sides, to lines; there y becomes another spectrum.
BLOCK(64) void widen_lines(index n, signed char *lines, double *y, const signed char *found, const double *other, index reach,
                     index nwave)
{
    index first = n / nwave * nwave;
    bool line = lines[n] != 0;
    LOOP(index, j, larger(n - reach, first), smaller(n + reach + 1, first + nwave))
        line = line || found[j];
    lines[n] = line;
    y[n] = line ? other[n] : y[n];
}

// Add to y the light of which possibly no photon was detected: that of one photon in bins where y is x (to `same`), `least`
// elsewhere; and raise a negative y to 0, by `lacked` at most. Both are reduced where K_jj is below `full`.
BLOCK(128) void lift(index n, double *y, const double *x, const double *icov, index nd, index hw, index nwave, double least,
                     double lacked, double same, double full)
{
    double apart = y[n] < x[n] ? x[n] - y[n] : y[n] - x[n], size = x[n] < 0.0 ? -x[n] : x[n];
    double more = smaller(larger(-y[n], 0.0), lacked) + (apart <= same * (1.0 + size) ? 1.0 : least);
    double own = icov[(n / nwave * nd * (2 * hw + 1) + hw) * nwave + n % nwave];
    y[n] += more * smaller(own / full, 1.0);
}
