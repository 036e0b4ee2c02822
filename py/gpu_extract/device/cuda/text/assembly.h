// Kernels: what a piece has become, as rows of the frame: mask bits, photons per Angstrom, types of the file.
//
// To the last bit what quality.mask_bits, quality.bin_status and assemble.rows_of (`held` included) make on the host.
// Medians are found by counting how many bins are smaller: nothing is sorted, and lanes need nothing from each other.
// Of the piece are arrays (fibres, nout), in photons per bin, of the frame `to_...`, (rows, nout); targets: the row of
// each fibre, -1 where it is not wanted.
#pragma once
#include "lanes.h"

// Mask bits but for the model's fit, which need no other bin; middles: NaN afterwards; marks (fibres, nwave): of
// normal.give_up, where not 0 the bin is weak; first: of its bins that is kept.
BLOCK(128) void mark(index n, unsigned *bits, double *middles, const double *ivar, const double *fraction,
                     const signed char *marks, index first, index nwave, index nout, index fibres)
{
    unsigned mask = marks[n / nout * nwave + first + n % nout] ? WEAKBIN : 0;
    if (fraction[n] > 0.5)
        mask |= SOMEBADPIX;
    if (fraction[n] == 1.0)
        mask |= ALLBADPIX;
    if (ivar[n] == 0.0)
        mask |= NODATA;
    bits[n] = mask;
    if (n % nout == 0)
        middles[n / nout] = middles[fibres + n / nout] = nan("");
}

// middles (2, fibres) = both middle values of chi2pix of the fibre's unmarked bins. A lane takes MANY of its bins and counts
// for each how many come before it in the order of their values, equal ones in the order of their bins: who has as many
// before it as after it is in the middle. Of blocks of MANY bins those before the lane's own count where they are not more,
// v < nextafter(mine), from then on where they are less.
constexpr int MANY = 24;

BLOCK(64) void find_middles(index n, double *middles, const double *chi2pix, const unsigned *bits, index nout, index fibres)
{
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

// The median of a bundle's unmarked fibres at one wavelength, NaN where there are none; at: of its first fibre.
LANE double middle_of_fibres(const double *chi2pix, const unsigned *bits, index at, index nfibre, index nout)
{
    double low = nan(""), high = nan("");
    LOOP(index, f, 0, nfibre) {
        double mine = chi2pix[at + f * nout];
        if (bits[at + f * nout] != 0)
            continue;
        int before = 0, total = 0;
        LOOP(index, g, 0, nfibre) {
            double other = chi2pix[at + g * nout];
            bool counts = bits[at + g * nout] == 0;
            total += counts;
            before += counts && (other < mine || (other == mine && g < f));
        }
        low = before == (total - 1) / 2 ? mine : low;
        high = before == total / 2 ? mine : high;
    }
    return 0.5 * (low + high);
}

// What became of a bin (quality.bin_status).
LANE int status_of(int status, unsigned mask)
{
    bool empty = mask & NODATA && (status != FAILED || mask & ALLBADPIX);
    return empty ? (int)EMPTY : status;
}

constexpr signed char LOST = 127;      // status, on the device alone, of a bin that the frame's type does not hold

// One bin of the frame, in photons per Angstrom. widths: (2, nout), of a bin in Angstrom, and its square. A misfit
// (quality.stands_out): chi2pix above `factor` times both medians, or above `alone` where a bundle has fewer than `few`
// fibres. What the frame's type does not hold (assemble.held): ivar below `least`, its smallest number that has all its
// digits, and what is above `largest`.
template <typename Real>
BLOCK(128) void write(index n, Real *to_flux, Real *to_ivar, Real *to_chi2pix, Real *to_pixmask_fraction, unsigned *to_mask,
                      signed char *to_status, signed char *status, const double *flux, const double *ivar,
                      const double *chi2pix, const double *fraction, const unsigned *bits, const double *middles,
                      const index *targets, const double *widths, double factor, double alone, index few, double least,
                      double largest, index nfibre, index nout, index fibres)
{
    index f = n / nout, j = n % nout, to = targets[f] * nout + j;
    if (targets[f] < 0)
        return;
    double chi = chi2pix[n];
    bool misfit = nfibre < few ? chi > alone
                  : chi > factor * (0.5 * (middles[f] + middles[fibres + f]))
                      && chi > factor * middle_of_fibres(chi2pix, bits, f / nfibre * nfibre * nout + j, nfibre, nout);
    unsigned mask = misfit ? bits[n] | BAD2DFIT : bits[n];
    Real light = (Real)(flux[n] / widths[j]), weight = (Real)(ivar[n] * widths[nout + j]);
    bool faint = weight < least && !(mask & NODATA), held = !(faint || isinf(light) || isinf(weight));
    to_flux[to] = held ? light : (Real)0;
    to_ivar[to] = held ? weight : (Real)0;
    to_chi2pix[to] = (Real)(chi > largest ? largest : chi);
    to_pixmask_fraction[to] = (Real)fraction[n];
    to_mask[to] = held ? mask : mask | NODATA;
    to_status[to] = (signed char)(held ? status_of(status[n], mask) : (int)FAILED);
    if (!held)
        status[n] = LOST;
}

// An element of the resolution, after `write`; to_resolution: (rows, width, nout).
template <typename Real>
BLOCK(128) void resolve(index n, Real *to_resolution, const double *resolution, const index *targets, const signed char *status,
                        index width, index nout)
{
    index f = n / (width * nout);
    if (targets[f] >= 0)
        to_resolution[targets[f] * width * nout + n % (width * nout)] = status[f * nout + n % nout] == LOST ? (Real)0
                                                                                                 : (Real)resolution[n];
}
