// Kernels: uploaded pixels -> whitened cut-outs for the spots, and extremes for checks.odd_pixels.
//
// For every bundle some columns of the CCD are uploaded, with all rows, in the host's order: (rows, columns); pixels
// are (bundles, 2, size): pix, then ivar. The bundle's cut-out is a part of these. It is stored as (columns, rows), rows
// fastest: traces run along y, so lanes of neighbouring wavelengths read neighbouring numbers.
#pragma once
#include "lanes.h"

// Of a bundle's uploaded pixels: the cut-out's first column, pixels of a row, first and one past the last column that is
// searched for odd pixels, rows.
enum Place { ASIDE, WIDE, FIRST_COLUMN, END_COLUMN, HEIGHT, PLACES };

// A bundle's cut-out of the CCD; cuts: (bundles, 4).
enum Edge { TOP, LEFT, ROWS, COLUMNS, EDGES };

struct Cut {
    int top, left, rows, columns;

    LANE Cut(const index *cuts, index b)
        : top((int)cuts[EDGES * b + TOP]), left((int)cuts[EDGES * b + LEFT]), rows((int)cuts[EDGES * b + ROWS]),
          columns((int)cuts[EDGES * b + COLUMNS])
    {
    }
    LANE bool holds(int row, int column) const { return 0 <= row && row < rows && 0 <= column && column < columns; }
};

// root = sqrt(ivar), light = sqrt(ivar) pix of a pixel; 0 if ivar is 0, beyond the cut-out and off the CCD. root, light:
// (bundles, columns, rows).
template <typename Real>
BLOCK(256) void whiten(index n, double *root, double *light, const Real *pixels, const index *cuts, const index *places,
                       index size, index rows, index columns)
{
    index b = n / (columns * rows);
    int column = (int)(n / rows % columns), row = (int)(n % rows);
    const index *place = places + PLACES * b;
    Cut cut(cuts, b);
    index y = row + cut.top, x = column + place[ASIDE];
    bool there = cut.holds(row, column) && 0 <= y && y < place[HEIGHT] && 0 <= x && x < place[WIDE];
    index pix = 2 * b * size + (there ? y * place[WIDE] + x : 0), ivar = pix + size;
    double weight = there ? (double)pixels[ivar] : 0.0, r = weight > 0.0 ? sqrt(weight) : 0.0;
    root[n] = r;
    light[n] = weight > 0.0 ? r * (double)pixels[pix] : 0.0;
}

// Extremes of the searched pixels: the largest ivar; the largest (ivar pix) pix with ivar above 0; the number of illegal
// pixels (ivar NaN, negative or infinite, or above 0 with a pix that is not finite). parts (bundles, 3, lookers): of pixels c,
// c + lookers, ...
constexpr int SEEN = 3, LOOKERS = 4096, GLIMPSES = 64;      // numbers, their parts, and parts of these

template <typename Real>
BLOCK(128) void look(index n, double *parts, const Real *pixels, const index *places, index size, index lookers)
{
    index b = n / lookers, c = n % lookers;
    const index *place = places + PLACES * b;
    int wide = (int)place[WIDE], first = (int)place[FIRST_COLUMN], last = (int)place[END_COLUMN];
    index count = wide * place[HEIGHT];
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
