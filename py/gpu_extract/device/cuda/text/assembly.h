// Kernels: the results of a piece as rows of the frame: mask bits, photons per Angstrom, types of the file.
//
// They are bitwise equal to those of quality.mask_bits, quality.bin_status and assemble.rows_of (including `held`) on the
// host. Medians are found by counting how many bins are smaller, without sorting.
// Arrays of the piece are (fibres, nout), in photons per bin; those of the frame, `to_...`, are (rows, nout); targets: the
// row of each fibre, -1 if it is not requested.
#pragma once
#include "lanes.h"

// Mask bits except BAD2DFIT, which need no other bin; marks (fibres, nwave): of normal.give_up, a bin is weak if not 0;
// first: first bin that is kept.
BLOCK(128) void mark(index n, unsigned *bits, const double *ivar, const double *fraction, const signed char *marks,
                     index first, index nwave, index nout)
{
    unsigned mask = marks[n / nout * nwave + first + n % nout] ? WEAKBIN : 0;
    if (fraction[n] > 0.5)
        mask |= SOMEBADPIX;
    if (fraction[n] == 1.0)
        mask |= ALLBADPIX;
    if (ivar[n] == 0.0)
        mask |= NODATA;
    bits[n] = mask;
}

// middles (2, fibres) = both middle values of chi2pix of the fibre's unmarked bins, NaN if there are none: a team for each
// fibre. A middle value is the largest number with no more values below it than come before the middle. Numbers above 0 have
// the order of their bits, which are found BITS at a time, by counting the values below each of LIMITS limits. MANY bins are
// read at once.
union Number {
    double value;
    index bits;
};

template <int MANY, int T>
TEAMS(1) void find_middles(index f, double *middles, const double *chi2pix, const unsigned *bits, index nout, index fibres)
{
    constexpr int BITS = 3, LIMITS = (1 << BITS) - 1;
    constexpr index MARKED = ~(1ull << 63);      // above all numbers
    SHARED int counts[IN_BLOCK<T>][2][T][2 * LIMITS];
    Number found[2] = {};
    int total = 0, end = (int)nout;
    LOOP(int, step, 0, 1 + 63 / BITS) {      // the first step counts all
        int place = 63 - BITS * (step > 0 ? step : 1);
        auto &told = counts[team<T>()][step % 2];      // the other one may still be read
        index limits[2 * LIMITS];
        EACH(k, 2 * LIMITS)
            limits[k] = step > 0 ? found[k % 2].bits + ((index)(k / 2 + 1) << place) : MARKED;
        MEMBERS(T, t) {
            int below[2 * LIMITS] = {};
            ONE_BY_ONE
            for (int first = t; first < end; first += MANY * T) {
                Number here[MANY];
                EACH(b, MANY) {
                    bool there = first + b * T < end;
                    here[b].value = there ? chi2pix[f * nout + first + b * T] : 0.0;
                    here[b].bits = (there ? bits[f * nout + first + b * T] : 1) == 0 ? here[b].bits : MARKED;
                }
                EACH(b, MANY)
                    EACH(k, 2 * LIMITS)
                        below[k] += here[b].bits < limits[k];
            }
            EACH(k, 2 * LIMITS)
                told[t][k] = below[k];
        }
        int before[2 * LIMITS] = {};
        LOOP(int, t, 0, T)
            EACH(k, 2 * LIMITS)
                before[k] += told[t][k];
        total = step > 0 ? total : before[0];
        EACH(k, 2 * LIMITS)
            if (step > 0)
                found[k % 2].bits += before[k] <= (total - 1 + k % 2) / 2 ? (index)1 << place : 0;
    }
    ALONE(T, t)
        if (t < 2)
            middles[t * fibres + f] = total > 0 ? (t ? found[1] : found[0]).value : nan("");
}

// The median of a bundle's unmarked fibres at one wavelength, NaN if there are none; at: place of its first fibre.
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

// Whether a number is above `alone` times the medians of more than half of a bundle's fibres, those with unmarked bins; at:
// the bundle's first fibre.
LANE bool above_most(double chi, double alone, const double *middles, index at, index nfibre, index fibres)
{
    int above = 0, total = 0;
    LOOP(index, f, at, at + nfibre) {
        double middle = 0.5 * (middles[f] + middles[fibres + f]);
        above += chi > alone * middle;
        total += middle == middle;      // NaN if there are none
    }
    return 2 * above > total;
}

// The status of a bin (quality.bin_status).
LANE int status_of(int status, unsigned mask)
{
    bool empty = mask & NODATA && (status != FAILED || mask & ALLBADPIX);
    return empty ? (int)EMPTY : status;
}

constexpr signed char LOST = 127;      // status, on the device alone, of a bin whose numbers exceed the frame's type

// One bin of the frame, in photons per Angstrom. widths: (2, nout), of a bin in Angstrom, and its square. A misfit
// (quality.stands_out) has chi2pix above `factor` times both medians, or above `lowest` and `alone` times the medians of most
// fibres, or above `alone` if a bundle has fewer than `few` fibres. The frame's type cannot hold ivar below `least`, its
// smallest number with all digits, and numbers above `largest` (assemble.held).
template <typename Real>
BLOCK(128) void write(index n, Real *to_flux, Real *to_ivar, Real *to_chi2pix, Real *to_pixmask_fraction, unsigned *to_mask,
                      signed char *to_status, signed char *status, const double *flux, const double *ivar,
                      const double *chi2pix, const double *fraction, const unsigned *bits, const double *middles,
                      const index *targets, const double *widths, double factor, double alone, double lowest, index few,
                      double least, double largest, index nfibre, index nout, index fibres)
{
    index f = n / nout, j = n % nout, to = targets[f] * nout + j;
    if (targets[f] < 0)
        return;
    double chi = chi2pix[n];
    index first = f / nfibre * nfibre;
    bool misfit = nfibre < few ? chi > alone
                  : (chi > factor * (0.5 * (middles[f] + middles[fibres + f]))
                      && chi > factor * middle_of_fibres(chi2pix, bits, first * nout + j, nfibre, nout))
                      || (chi > lowest && above_most(chi, alone, middles, first, nfibre, fibres));
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
