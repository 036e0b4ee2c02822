// Kernel: medians of chi2pix.
#pragma once
#include "lanes.h"

// middles (2, fibres) = both middle values of chi2pix of the fibre's unmarked bins. A lane takes MANY of its bins, counts
// for each how many of the fibre's are less, and how many are not more, and who is in the middle says so: more than one
// where values are equal.
LANE void find_middles(index n, double *middles, const double *chi2pix, const unsigned *bits, index nout, index fibres)
{
    constexpr int MANY = 16;
    int apart = (int)(nout + MANY - 1) / MANY, j = (int)(n % apart), total = 0, less[MANY] = {}, upto[MANY] = {};
    index f = n / apart;
    const double *row = chi2pix + f * nout;
    const unsigned *marks = bits + f * nout;
    double mine[MANY];
    UNROLLED
    for (int b = 0; b < MANY; b++)
        mine[b] = j + b * apart < (int)nout ? row[j + b * apart] : 0.0;
    FOUR_AT_ONCE
    for (int k = 0; k < (int)nout; k++) {
        double value = marks[k] == 0 ? row[k] : nan("");       // which is neither
        total += marks[k] == 0;
        UNROLLED
        for (int b = 0; b < MANY; b++) {
            less[b] = value < mine[b] ? less[b] + 1 : less[b];
            upto[b] = value <= mine[b] ? upto[b] + 1 : upto[b];
        }
    }
    UNROLLED
    for (int b = 0; b < MANY; b++) {
        if (j + b * apart >= (int)nout || marks[j + b * apart] != 0)
            continue;
        if (less[b] <= (total - 1) / 2 && (total - 1) / 2 < upto[b])
            middles[f] = mine[b];
        if (less[b] <= total / 2 && total / 2 < upto[b])
            middles[fibres + f] = mine[b];
    }
}
