// Kernels: Q x, Q 1 and the diagonals of Q of all fibres of a piece from the sums over their poles (sweeps.add_up), their
// checks, and the spectra.
//
// As decorrelate.banded: Q = total - sum_k c_k t_k (S + t_k)^-1 with the poles of the fibre's rung. Rows of `sums` hold,
// for every fibre, the sums for the right-hand sides 1 and x, then the diagonals of the inverse; after `divide` Q 1, Q x, -Q.
#pragma once
#include "measure.h"

// inverse = 1 / s, s = Q 1, 0 if s is 0 or the bin has no weight: a lane for every bin.
BLOCK(64) void divide(index n, double *inverse, double *sums, const double *sides, double *facts, int *flags,
                      const double *table, index kept, index lanes)
{
    index i = n % lanes, j = n / lanes;
    Fibre fibre{facts, flags, i, lanes};
    if (fibre[STATUS] != GOOD)
        return;
    double total = table[fibre[RUNG] * Poles::ROW + 1] * sqrt(fibre[BOUND]), *sum = sums + j * kept * lanes + i;
    Read given = rows_of(sides, SIDES, i, lanes);
    EACH(r, SIDES)
        sum[r * lanes] = given.at(j, r) * total - sum[r * lanes];
    sum[SIDES * lanes] -= total;
    inverse[n] = sum[0] != 0.0 ? given.at(j, 0) / sum[0] : 0.0;
}

// Checks of every chunk of bins: the largest (QQ)_jj / S_jj - 1 of the stored diagonals, infinite if a row of Q is cancelled
// (narrow.simd_finish); the largest share of s from beyond the band; the largest change of the flux, in sigma; 1'QQ1,
// 1'QQx and x'QQx.
BLOCK(64) void square(index n, double *chunks, const double *sums, const double *left, const double *band,
                      const int *flags, double cancelled, index kept, index ndiag, index nwave, index reach, index lanes)
{
    index i = n % lanes, c = n / lanes;
    if (!holds(flags, i, lanes))
        return;
    Read q = rows_of(sums, kept, i, lanes), diagonals{q.first + SIDES * lanes, q.row, lanes};
    double ones = 0.0, cross = 0.0, both = 0.0, worst = 0.0, share = 0.0, moves = 0.0;
    LOOP(index, j, c * CHUNK, smaller((c + 1) * CHUNK, nwave)) {
        double s = q.at(j, 0), y = q.at(j, 1), held = q.at(j, SIDES) * q.at(j, SIDES);
        ones += s * s;
        cross += s * y;
        both += y * y;
        ONE_BY_ONE
        for (int a = 1; a <= (int)ndiag; a += Around::PAIRS) {
            Around row = Around::of(diagonals, a, (int)ndiag, (int)j, (int)nwave);
            row.add_products(held, row);
        }
        double diagonal = band[j * (reach + 1) * lanes + i];
        worst = larger(worst, diagonal > 0.0 ? held / diagonal - 1.0 : INFINITY);
        if (s != 0.0 && s * s < cancelled * diagonal)
            worst = INFINITY;
        double ones_left = left[j * SIDES * lanes + i], x_left = left[(j * SIDES + 1) * lanes + i];
        share = larger(share, s != 0.0 ? fabs(ones_left / s) : 0.0);
        moves = larger(moves, s != 0.0 ? fabs(x_left - y / s * ones_left) : 0.0);
    }
    rows_of(chunks, SQUARES, i, lanes).put({worst, share, moves, ones, cross, both}, c);
}

// FAILED if Q disagrees with S (narrow.simd_finish.finish), if a larger share of s than `most` comes from beyond the band, or
// if the flux moves by more than the poles for corrections suffice for. `most` is a tenth if the tail is known to be within its
// limit only bin by bin, because that bound is closer to the tail.
BLOCK(32) void agree(index i, int *flags, const double *groups, double *facts, const double *table, double agreement,
                     double most, index ngroups, index lanes)
{
    Fibre fibre{facts, flags, i, lanes};
    if (fibre[STATUS] != GOOD)
        return;
    auto [worst, share, moves, ones, cross, both] = of_groups<SQUARES, 3>(rows_of(groups, SQUARES, i, lanes), ngroups).of;
    double s11 = fibre[ONES], s1x = fibre[CROSS], sxx = fibre[BOTH], geometric = sqrt(s11 * sxx);
    worst = larger(worst, fabs(ones - s11) / s11);
    if (geometric > 0.0)
        worst = larger(worst, larger(fabs(cross - s1x) / geometric, fabs(both - sxx) / sxx));
    most = fibre[EXCESS] > 1.0 ? 0.1 * most : most;
    double enough = table[fibre[RUNG] * Poles::ROW + Poles::BEYOND];
    if (!(worst <= agreement && share <= most && moves <= enough && ones + both < INFINITY))
        fibre[STATUS] = FAILED;
}

// Flux and ivar, corrected for the remainder of S (left: of 1 and x, see remainder.h), and status of the bins that are kept,
// wavelength fastest; 0 if a fibre is not GOOD.
BLOCK(64) void spectra(index n, double *flux, double *ivar, signed char *status, const double *sums, const double *left,
                       const double *inverse, const int *flags, index kept, index first, index nout, index lanes)
{
    index i = n / nout, j = first + n % nout, at = j * lanes + i;
    bool good = holds(flags, i, lanes);
    Read q = rows_of(sums, kept, i, lanes);
    Read more = rows_of(left, SIDES, i, lanes);
    double plain = good ? q.at(j, 1) * inverse[at] : 0.0, s = good ? q.at(j, 0) + more.at(j, 0) : 0.0;
    flux[n] = good ? plain + (more.at(j, 1) - plain * more.at(j, 0)) * inverse[at] : 0.0;
    ivar[n] = s * s;
    status[n] = (signed char)flags[STATUS * lanes + i];
}

// R (fibres, width, nout) within the bins that are kept: rows divided by s, which is corrected for the remainder of S.
BLOCK(64) void diagonals(index n, double *resolution, const double *sums, const double *left, const double *inverse,
                         const int *flags, index kept, index first, index width, index nout, index lanes)
{
    index j = n % nout, k = n / nout % width - width / 2, i = n / nout / width;
    bool there = holds(flags, i, lanes) && 0 <= j + k && j + k < nout;
    index low = first + smaller(j, j + k), apart = k < 0 ? -k : k, row = first + j + k;
    if (!there) {
        resolution[n] = 0.0;
        return;
    }
    double over = inverse[row * lanes + i], share = rows_of(left, SIDES, i, lanes).at(row, 0) * over;
    resolution[n] = -rows_of(sums, kept, i, lanes).at(low, SIDES + apart) * over / (1.0 + share);
}
