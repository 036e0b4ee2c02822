// Kernels: what checks.odd_pixels asks of the pixels of a bundle.
//
// Of the columns that are looked at, in all rows: the largest ivar; the largest (ivar pix) pix where ivar is above 0; how
// many pixels are illegal (ivar NaN, negative or infinite, or above 0 beside a pix that is no number).
#pragma once
#include "lanes.h"

// parts (bundles, 3, lookers), of pixels c, c + lookers, ... of pixels (bundles, 2, size): pix, then ivar; places
// (bundles, 5): a row's pixels, the columns to be looked at and the rows follow its first number.
template <typename Real>
LANE void look(index n, double *parts, const Real *pixels, const index *places, index size, index lookers)
{
    index b = n / lookers, c = n % lookers;
    int wide = (int)places[5 * b + 1], first = (int)places[5 * b + 2], last = (int)places[5 * b + 3];
    index count = wide * places[5 * b + 4];
    const Real *pix = pixels + 2 * b * size, *ivar = pix + size;
    double most = 0.0, brightest = 0.0, illegal = 0.0;
    FOUR_AT_ONCE
    for (index at = c; at < count; at += lookers) {
        double weight = (double)ivar[at], value = (double)pix[at], size_of = (weight * value) * value;
        int column = (int)((unsigned)at % (unsigned)wide);
        bool looked = first <= column && column < last, good = weight > 0.0 && weight - weight == 0.0;
        bool legal = (good && value - value == 0.0) || weight == 0.0;
        most = looked && good && weight > most ? weight : most;
        brightest = looked && good && size_of > brightest ? size_of : brightest;
        illegal += looked && !legal ? 1.0 : 0.0;
    }
    double *mine = parts + 3 * b * lookers + c;
    mine[0] = most;
    mine[lookers] = brightest;
    mine[2 * lookers] = illegal;
}

// seen (bundles, 3) = the largest of the parts: of the illegal ones that says whether there are any.
LANE void see(index n, double *seen, const double *parts, index lookers)
{
    double most = 0.0;
    FOUR_AT_ONCE
    for (int c = 0; c < (int)lookers; c++)
        most = parts[n * lookers + c] > most ? parts[n * lookers + c] : most;
    seen[n] = most;
}
