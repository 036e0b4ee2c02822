// Kernels: lines that all fibres of a bundle show, as in passes.shared_lines; lanes along wavelength.
//
// Vectors are (fibres, nwave). mean, common and lines belong to bundles: (bundles, nwave). sure holds bits for each bin:
// KNOWN, its x is used for lines; PARTLY, it is part of averages; BASED, its average is known. In marks, ENTIRE says that
// all of its spot's core is good.
#pragma once
#include "smooth.h"

constexpr signed char KNOWN = 1, PARTLY = 2, BASED = 4, ENTIRE = 8;

// marks = PARTLY where at least `half` of the pixels of a spot's core are good, ENTIRE where all are. high, wide: rows and
// columns from the middle of a spot to the edge of its core.
BLOCK(64) void mark_good(index n, signed char *marks, const double *root, const int *y0, const int *x0, const index *cuts,
                         index nfibre, index nx, index ny, index nwave, index rows, index columns, index high, index wide,
                         double half)
{
    index b = n / nwave / nfibre;
    Cut cut(cuts, b);
    int top = y0[n] - cut.top + (int)(ny / 2 - high), left = x0[n] - cut.left + (int)(nx / 2 - wide), count = 0;
    int tall = (int)(2 * high + 1), broad = (int)(2 * wide + 1);
    LOOP(int, x, left, left + broad) {
        LOOP(int, y, top, top + tall)
            count += cut.holds(y, x) && root[(b * columns + x) * rows + y] > 0.0;
    }
    marks[n] = (count >= half * tall * broad ? PARTLY : 0) | (count == tall * broad ? ENTIRE : 0);
}

// sure from marks: BASED where more than half of `width` bins are PARTLY, KNOWN where moreover all bins within `reach` are
// ENTIRE; filled = x where KNOWN, elsewhere K x / K 1. blurred: see smooth.h.
BLOCK(64) void settle(index n, signed char *sure, double *filled, const signed char *marks, const double *blurred,
                      const double *x, const double *sums, index reach, index width, index nwave, index bins)
{
    index first = n / nwave * nwave, half = width / 2;
    bool entire = sums[n] > 0.0;
    int count = 0;
    LOOP(index, j, larger(n - reach, first), smaller(n + reach + 1, first + nwave))
        entire = entire && marks[j] & ENTIRE;
    LOOP(index, j, larger(n - half, first), smaller(n + half + 1, first + nwave))
        count += (marks[j] & PARTLY) != 0;
    bool based = 2 * count > width;
    sure[n] = (entire && based ? KNOWN : 0) | (marks[n] & PARTLY) | (based ? BASED : 0);
    filled[n] = entire && based ? x[n] : blurred[bins + n] > 0.0 ? blurred[n] / blurred[bins + n] : 0.0;
}

// base = the average over `width` bins, of those that are PARTLY; rest = x less that, 0 in bins without weight.
BLOCK(64) void lift_off(index n, double *base, double *rest, const double *filled, const double *x, const signed char *sure,
                        const double *sums, index width, index nwave)
{
    index first = n / nwave * nwave, half = width / 2;
    double total = 0.0;
    int count = 0;
    LOOP(index, j, larger(n - half, first), smaller(n + half + 1, first + nwave)) {
        bool part = sure[j] & PARTLY;
        total += part ? filled[j] : 0.0;
        count += part;
    }
    base[n] = total / larger(count, 1);
    rest[n] = sums[n] > 0.0 ? x[n] - base[n] : 0.0;
}

// seen = K times a spectrum; `alike` fibres have it in common: 1, or all of a bundle.
BLOCK(32) void see_rest(index n, double *seen, const double *rest, const double *icov, index nd, index hw, index nwave,
                        index alike)
{
    index f = n / nwave;
    const double *mine = rest + f / alike * nwave;
    seen[n] = own_row(icov, f, (int)(n % nwave), nd, (int)hw, (int)nwave, [=](int i) { return mine[i]; });
}

LANE double own_of(const double *icov, index n, index nd, index hw, index nwave)
{
    return icov[(n / nwave * nd * (2 * hw + 1) + hw) * nwave + n % nwave];
}

// fibre_weight = the mean of K_jj^2 / error over the bins of a fibre that are KNOWN.
BLOCK(32) void weigh_fibre(index n, double *fibre_weight, const double *error, const signed char *sure, const double *icov,
                           index nd, index hw, index nwave)
{
    double total = 0.0;
    int count = 0;
    FOUR_AT_ONCE
    for (index j = n * nwave; j < (n + 1) * nwave; j++) {
        double own = own_of(icov, j, nd, hw, nwave);
        total += sure[j] & KNOWN ? own / error[j] * own : 0.0;
        count += sure[j] & KNOWN;
    }
    fibre_weight[n] = total / larger(count, 1);
}

// common (bundles, nwave) = whether the square of the sum over the fibres of what spots see, weighted by K_jj / error,
// exceeds `most` times its variance.
BLOCK(64) void find_lines(index n, signed char *common, const double *seen, const double *error, const signed char *sure,
                          const double *icov, index nfibre, index nd, index hw, index nwave, double most)
{
    index b = n / nwave, j = n % nwave;
    double total = 0.0, noise = 0.0;
    LOOP(index, f, b * nfibre, (b + 1) * nfibre) {
        index at = f * nwave + j;
        double own = own_of(icov, at, nd, hw, nwave), scale = sure[at] & KNOWN ? own / error[at] : 0.0;
        total += scale * seen[at];
        noise += scale * own;
    }
    common[n] = total * total > most * noise;
}

// mean (bundles, nwave) = weighted mean of `rest` over fibres, 0 away from lines; lines: whether one is within `reach` bins.
BLOCK(64) void mean_line(index n, double *mean, signed char *lines, const double *rest, const signed char *common,
                         const signed char *sure, const double *fibre_weight, index reach, index nfibre, index nwave)
{
    index b = n / nwave, first = b * nwave, j = n % nwave;
    bool line = false;
    LOOP(index, i, larger(n - reach, first), smaller(n + reach + 1, first + nwave))
        line = line || common[i];
    double light = 0.0, share = 0.0;
    LOOP(index, f, b * nfibre, (b + 1) * nfibre) {
        index at = f * nwave + j;
        double weight = sure[at] & KNOWN ? fibre_weight[f] : 0.0;
        light += weight * rest[at];
        share += weight;
    }
    lines[n] = line;
    mean[n] = line && share > 0.0 ? light / share : 0.0;
}

// bundle_lines (bundles) = whether there is a line; with `before`, whether there also was one the previous time.
BLOCK(32) void any_line(index n, int *bundle_lines, const signed char *lines, index before, index nwave)
{
    bool any = false;
    FOUR_AT_ONCE
    for (index j = n * nwave; j < (n + 1) * nwave; j++)
        any = any || lines[j];
    bundle_lines[n] = any && (!before || bundle_lines[n]);
}

// fibre_gain = a fibre's lines relative to the mean, by least squares, with the prior 1 of weight `before`.
BLOCK(32) void find_gain(index n, double *fibre_gain, const double *seen, const double *like, const double *mean,
                         const double *error, const signed char *sure, const double *icov, index nfibre, index nd, index hw,
                         index nwave, double before)
{
    const double *of_all = mean + n / nfibre * nwave;
    double own = 0.0, all = 0.0;
    FOUR_AT_ONCE
    for (index j = 0; j < nwave; j++) {
        index at = n * nwave + j;
        double scale = sure[at] & KNOWN ? own_of(icov, at, nd, hw, nwave) / error[at] * of_all[j] : 0.0;
        own += scale * seen[at];
        all += scale * like[at];
    }
    fibre_gain[n] = larger(before + own, 0.0) / (before + larger(all, 0.0));
}

// found: bins in which a fibre's squared deviation from the mean exceeds `most` times its variance, and is at least `loudest`
// of the largest of all fibres; seen becomes the squared deviations.
BLOCK(64) void deviate(index n, signed char *found, double *seen, const double *like, const double *error,
                       const signed char *sure, const double *fibre_gain, index nfibre, index nwave, double most,
                       double loudest)
{
    index f = n / nwave * nfibre, first = f * nwave + n % nwave, end = first + nfibre * nwave;
    double largest = 0.0;
    for (index at = first; at < end; at += nwave, f++) {
        double left = seen[at] - fibre_gain[f] * like[at], apart = sure[at] & KNOWN ? left * left / error[at] : 0.0;
        largest = larger(largest, apart);
        seen[at] = apart;
    }
    for (index at = first; at < end; at += nwave)
        found[at] = seen[at] > most && seen[at] >= loudest * largest;
}

// Bins within `reach` of those found are no longer KNOWN; filled = x where KNOWN, elsewhere base plus gain times mean.
BLOCK(64) void leave_bins(index n, signed char *sure, double *filled, const signed char *found, const double *x,
                          const double *base, const double *mean, const double *fibre_gain, index reach, index nfibre,
                          index nwave)
{
    index f = n / nwave, first = f * nwave;
    bool stays = sure[n] & KNOWN;
    LOOP(index, j, larger(n - reach, first), smaller(n + reach + 1, first + nwave))
        stays = stays && !found[j];
    sure[n] = (sure[n] & ~KNOWN) | (stays ? KNOWN : 0);
    filled[n] = stays ? x[n] : base[n] + fibre_gain[f] * mean[f / nfibre * nwave + n % nwave];
}

// fibre_level = the mean of a fibre's averages, where they are known.
BLOCK(32) void find_level(index n, double *fibre_level, const double *base, const signed char *sure, index nwave)
{
    double total = 0.0;
    int count = 0;
    FOUR_AT_ONCE
    for (index j = n * nwave; j < (n + 1) * nwave; j++) {
        total += sure[j] & BASED ? base[j] : 0.0;
        count += (sure[j] & BASED) != 0;
    }
    fibre_level[n] = total / larger(count, 1);
}

// left = x without the light known from other fibres, where they have `least` times the information; more: the squared noise
// of that light, relative to that of x.
BLOCK(64) void take_shared(index n, double *left, double *more, const double *x, const double *rest, const double *base,
                           const signed char *sure, const signed char *lines, const int *bundle_lines,
                           const double *fibre_weight, const double *fibre_gain, const double *fibre_level, index nfibre,
                           index nwave, double least)
{
    index b = n / nwave, j = n % nwave;
    double light = 0.0, inside = 0.0, level = 0.0, whole = 0.0;
    LOOP(index, f, b * nfibre, (b + 1) * nfibre) {
        index at = f * nwave + j;
        double weight = fibre_weight[f] * fibre_gain[f], one = weight * fibre_gain[f];
        bool mine = sure[at] & KNOWN && lines[n], based = sure[at] & BASED;
        light += mine ? weight * rest[at] : 0.0;
        inside += mine ? one : 0.0;
        level += based ? weight * (base[at] - fibre_level[f]) : 0.0;
        whole += based ? one : 0.0;
    }
    level = whole > 0.0 ? level / whole : 0.0;
    LOOP(index, f, b * nfibre, (b + 1) * nfibre) {
        index at = f * nwave + j;
        double weight = fibre_weight[f] * fibre_gain[f], one = weight * fibre_gain[f];
        bool mine = sure[at] & KNOWN && lines[n];
        double others = inside - (mine ? one : 0.0), line = light - (mine ? weight * rest[at] : 0.0);
        bool told = bundle_lines[b] && others >= least * one && others > 0.0;
        left[at] = bundle_lines[b] ? x[at] - fibre_gain[f] * ((told ? line / others : 0.0) + level) : x[at];
        more[at] = told ? one / others : 0.0;
    }
}

// y += the light of x that is not in left.
BLOCK(128) void put_back(index n, double *y, const double *x, const double *left) { y[n] += x[n] - left[n]; }

// error: squared, with the noise of the light that was subtracted.
BLOCK(128) void doubt_more(index n, double *error, const double *more) { error[n] *= 1.0 + more[n]; }
