// Kernel: the normal equations as bands.
#pragma once
#include "lanes.h"

// Entries of icov, (fibres, nd, 2 hw + 1, nwave), 0 on entry: of OWN bins of fibre f, one after another, with OTHERS of
// fibre f + d; each the sum over the pixels that two whitened spots share, in the order of rows and columns. Of a fibre
// with itself the mirror image too. white: (fibres, ny nx, nwave); y0, x0: (fibres, nwave).
//
// A lane goes once through the pixels on which both groups lie, and takes each spot's number there but once.
constexpr int OWN = 4, OTHERS = 4;

LANE void couple(index n, double *icov, const double *white, const int *y0, const int *x0, index nfibre, index nx,
                 index ny, index nd, index hw, index nwave)
{
    constexpr int FAR = 1 << 29;
    int blocks = (int)(nwave + OWN - 1) / OWN, many = (int)(2 * hw + OWN + OTHERS - 1) / OTHERS;
    int j = (int)(n % blocks) * OWN, group = (int)(n / blocks % many), d = (int)(n / blocks / many % nd);
    index f = n / blocks / many / nd, g = f + d;
    int from = j - (d ? (int)hw : 0) + group * OTHERS;
    if (f % nfibre + d >= nfibre || from + OTHERS <= 0 || from >= (int)nwave || from > j + OWN - 1 + (int)hw)
        return;
    const double *own[OWN], *other[OTHERS];
    int tops[OWN + OTHERS], lefts[OWN + OTHERS], low[4] = {FAR, -FAR, FAR, -FAR}, too[4] = {FAR, -FAR, FAR, -FAR};
    UNROLLED
    for (int a = 0; a < OWN; a++) {
        index k = j + a < (int)nwave ? j + a : nwave - 1;
        tops[a] = y0[f * nwave + k];
        lefts[a] = x0[f * nwave + k];
        own[a] = white + f * ny * nx * nwave + k;
        low[0] = tops[a] < low[0] ? tops[a] : low[0];
        low[1] = tops[a] > low[1] ? tops[a] : low[1];
        low[2] = lefts[a] < low[2] ? lefts[a] : low[2];
        low[3] = lefts[a] > low[3] ? lefts[a] : low[3];
    }
    UNROLLED
    for (int b = 0; b < OTHERS; b++) {
        index k = from + b < 0 ? 0 : from + b < (int)nwave ? from + b : nwave - 1;
        int t = tops[OWN + b] = y0[g * nwave + k], l = lefts[OWN + b] = x0[g * nwave + k];
        other[b] = white + g * ny * nx * nwave + k;
        too[0] = t < too[0] ? t : too[0];
        too[1] = t > too[1] ? t : too[1];
        too[2] = l < too[2] ? l : too[2];
        too[3] = l > too[3] ? l : too[3];
    }
    int top = low[0] > too[0] ? low[0] : too[0], bottom = (low[1] < too[1] ? low[1] : too[1]) + (int)ny;
    int left = low[2] > too[2] ? low[2] : too[2], right = (low[3] < too[3] ? low[3] : too[3]) + (int)nx;
    if (top >= bottom || left >= right)
        return;
    double sums[OWN][OTHERS] = {};
    ONE_BY_ONE
    for (int y = top; y < bottom; y++) {
        ONE_BY_ONE
        for (int x = left; x < right; x++) {
            double mine[OWN];
            UNROLLED
            for (int a = 0; a < OWN; a++) {
                int v = y - tops[a], u = x - lefts[a];
                bool there = 0 <= v && v < (int)ny && 0 <= u && u < (int)nx;
                mine[a] = there ? own[a][(index)(v * (int)nx + u) * nwave] : 0.0;
            }
            UNROLLED
            for (int b = 0; b < OTHERS; b++) {
                int v = y - tops[OWN + b], u = x - lefts[OWN + b];
                bool there = 0 <= v && v < (int)ny && 0 <= u && u < (int)nx;
                double value = there ? other[b][(index)(v * (int)nx + u) * nwave] : 0.0;
                UNROLLED
                for (int a = 0; a < OWN; a++)
                    sums[a][b] = fma(mine[a], value, sums[a][b]);
            }
        }
    }
    UNROLLED
    for (int a = 0; a < OWN; a++) {
        UNROLLED
        for (int b = 0; b < OTHERS; b++) {
            int at = j + a, to = from + b, k = to - at;
            if (at >= (int)nwave || to < 0 || to >= (int)nwave || k > (int)hw || k < (d ? -(int)hw : 0))
                continue;
            icov[((f * nd + d) * (2 * hw + 1) + hw + k) * nwave + at] = sums[a][b];
            if (d == 0 && k > 0)
                icov[(f * nd * (2 * hw + 1) + hw - k) * nwave + to] = sums[a][b];
        }
    }
}
