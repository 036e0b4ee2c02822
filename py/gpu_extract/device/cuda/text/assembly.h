// Kernel: medians of chi2pix.
#pragma once
#include "lanes.h"

// middles (2, fibres) = both middle values of chi2pix of the fibre's unmarked bins. A lane takes MANY of its bins, counts
// for each how many of the fibre's others come before it, and who is in the middle says so.
LANE void find_middles(index n, double *middles, const double *chi2pix, const unsigned *bits, index nout, index fibres)
{
    constexpr int MANY = 8;
    int apart = (int)(nout + MANY - 1) / MANY, j = (int)(n % apart), total = 0, before[MANY] = {};
    index f = n / apart;
    const double *row = chi2pix + f * nout;
    const unsigned *marks = bits + f * nout;
    double mine[MANY];
    UNROLLED
    for (int b = 0; b < MANY; b++)
        mine[b] = j + b * apart < (int)nout ? row[j + b * apart] : 0.0;
    FOUR_AT_ONCE
    for (int k = 0; k < (int)nout; k++) {
        double value = row[k];
        int counts = marks[k] == 0;
        total += counts;
        UNROLLED
        for (int b = 0; b < MANY; b++)
            before[b] += counts & ((value < mine[b]) | ((value == mine[b]) & (k < j + b * apart)));
    }
    UNROLLED
    for (int b = 0; b < MANY; b++) {
        if (j + b * apart >= (int)nout || marks[j + b * apart] != 0)
            continue;
        if (before[b] == (total - 1) / 2)
            middles[f] = mine[b];
        if (before[b] == total / 2)
            middles[fibres + f] = mine[b];
    }
}
