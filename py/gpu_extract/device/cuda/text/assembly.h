// Kernel: medians of chi2pix.
#pragma once
#include "lanes.h"

// middles (2, fibres) = both middle values of chi2pix of the fibre's unmarked bins. A lane takes MANY of its bins and counts
// for each how many come before it in the order of their values, equal ones in the order of their bins: who has as many
// before it as after it is in the middle. Of blocks of MANY bins those before the lane's own count where they are not more,
// v < nextafter(mine), from then on where they are less.
LANE void find_middles(index n, double *middles, const double *chi2pix, const unsigned *bits, index nout, index fibres)
{
    constexpr int MANY = 24;
    constexpr double LARGEST = 1.7976931348623157e308;
    int apart = (int)(nout + MANY - 1) / MANY, own = (int)(n % apart) * MANY, total = 0, before[MANY] = {};
    index f = n / apart;
    const double *row = chi2pix + f * nout;
    const unsigned *marks = bits + f * nout;
    double mine[MANY], limit[MANY];
    EACH(b, MANY) {
        mine[b] = own + b < (int)nout && marks[own + b] == 0 ? row[own + b] : nan("");      // which is neither
        limit[b] = nextafter(mine[b], LARGEST);
    }
    ONE_BY_ONE
    for (int first = 0; first < (int)nout; first += MANY) {
        EACH(b, MANY)
            limit[b] = first == own ? mine[b] : limit[b];
        double values[MANY];
        EACH(c, MANY) {
            bool there = first + c < (int)nout;
            double value = there ? row[first + c] : 0.0;
            unsigned marked = there ? marks[first + c] : 1;
            values[c] = marked == 0 ? value : nan("");
            total += marked == 0;
        }
        EACH(c, MANY)
            EACH(b, MANY)
                before[b] += values[c] < limit[b];
    }
    EACH(b, MANY) {
        EACH(c, b)
            before[b] += mine[c] == mine[b];
        if (mine[b] == mine[b] && before[b] == (total - 1) / 2)
            middles[f] = mine[b];
        if (mine[b] == mine[b] && before[b] == total / 2)
            middles[fibres + f] = mine[b];
    }
}
