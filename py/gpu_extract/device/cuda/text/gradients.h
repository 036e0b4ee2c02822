// Kernel: the couplings between fibres, for the conjugate gradients.
#pragma once
#include "lanes.h"

constexpr int BINS = 4;

// total += what BINS bins of fibre f, from j on, get from those of fibre `other`; row: of icov, of the lower fibre. SIDE
// 1: that is the other one. Bin j + b is coupled with the other's bin at + b; the element stands at the lower one's.
template <int SIDE>
LANE void from_other(double (&total)[BINS], const double *given, const double *row, int j, int hw, int end, index nwave)
{
    int at = SIDE ? j + hw : j - hw;
    double here[BINS];
    EACH(b, BINS)
        here[b] = 0 <= at + b && at + b < end ? given[at + b] : 0.0;
    FOUR_AT_ONCE
    for (int k = 0; k <= 2 * hw; k++) {
        EACH(b, BINS) {
            bool there = 0 <= at + b && at + b < end && j + b < end;
            total[b] += (there ? row[(SIDE ? at : j) + b] : 0.0) * here[b];
        }
        int next = SIDE ? at - 1 : at + BINS;
        double coming = 0 <= next && next < end ? given[next] : 0.0;
        SIDE ? push_front(here, coming) : push_back(here, coming);
        at += SIDE ? -1 : 1;
        row += nwave;
    }
}

// moved = E z at BINS bins of a fibre, E the couplings between fibres; every sum in the order of distance and band.
// moved, z: (fibres, nwave); icov: (fibres, nd, 2 hw + 1, nwave); state: rows of `facts`, of which the first is 0 where a
// bundle of `nfibre` has arrived.
LANE void between(index n, double *moved, const double *z, const double *icov, const double *state, index facts,
                  index nfibre, index nd, index hw, index nwave)
{
    int blocks = (int)(nwave + BINS - 1) / BINS, j = (int)(n % blocks) * BINS, end = (int)nwave;
    index f = n / blocks, i = f % nfibre, size = (2 * hw + 1) * nwave;
    if (state[f / nfibre * facts] == 0.0)
        return;
    double total[BINS] = {};
    LOOP(int, d, 1, (int)nd) {
        if (i + d < nfibre)
            from_other<0>(total, z + (f + d) * nwave, icov + (f * nd + d) * size, j, (int)hw, end, nwave);
        if (i >= d)
            from_other<1>(total, z + (f - d) * nwave, icov + ((f - d) * nd + d) * size, j, (int)hw, end, nwave);
    }
    EACH(b, BINS)
        if (j + b < end)
            moved[f * nwave + j + b] = total[b];
}
