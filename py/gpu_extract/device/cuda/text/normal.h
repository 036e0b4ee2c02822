// Kernels: the normal equations as bands, and the bins that are given up.
//
// Spots are (fibres, sections, nx, ny, SECTION): bins of a section are adjacent, and spots are stored column by column, so
// that lanes for neighbouring bins read neighbouring numbers. The sum of a spot is 1 / scale.
#pragma once
#include "lanes.h"

constexpr int PARTS = 64;      // partial sums of a fibre: part c takes bins c, c + 64, ...
constexpr int SECTION = 32, FEW = 4;

LANE index sections_of(index nwave) { return (nwave + SECTION - 1) / SECTION; }

LANE index places_of(index nwave) { return sections_of(nwave) * SECTION; }

// The first number of a bin's spot of `size` pixels; the next pixel's is SECTION numbers later.
LANE index spot_at(index f, int bin, index size, index nwave)
{
    return (f * sections_of(nwave) + bin / SECTION) * size * SECTION + bin % SECTION;
}

// A member of a team of `couple`: the start of its spot (column, first number), the same for the two bins of the other
// fibre that it reads, and the distances in rows from its spot to those with which it is coupled.
template <int MANY, int ROWS> struct Coupling {
    int left, place, lefts[2], places[2], down[(MANY + 1) / 2];      // down: two in a number
    double here[ROWS], sums[MANY];
};

// Elements of icov, (fibres, nd, 2 hw + 1, nwave): each is the sum over the pixels that two whitened spots share, in the order
// of columns and rows; for a fibre with itself also the mirror image. A team has T bins of fibre f, one per member, and MANY
// bins of fibre f + d for each, and moves along columns of the CCD. The other fibre's numbers in a column are shared, so that
// they are read once; they are 0 beyond a spot, and lie between rows of 0. ROWS numbers of a member serve MANY sums.
// SELF: fibre f with itself, whose own numbers are among the shared ones; otherwise nearest is the first d. MORE: room for the
// other fibre's bins beyond T, at least MANY - 1. scale, y0, x0: (fibres, nwave); gate: of fibres, not 0 if nothing is to be
// done.
template <int MANY, int ROWS, int MORE, int SELF, int T>
TEAMS(1, 134) void couple(index n, double *icov, const double *white, const double *scale, const int *gate, const int *y0,
                          const int *x0, index nfibre, index nx, index ny, index nd, index hw, index nwave, index parts,
                          index nearest)
{
    constexpr int EDGE = FEW - 1, NOWHERE = 1 << 29, HALF = 16, FAR = (1 << 15) - 1;
    SHARED double spots[IN_BLOCK<T>][ROWS + 2 * EDGE][T + MORE];
    SHARED int ends[IN_BLOCK<T>][2][T];
    auto &theirs = spots[team<T>()];
    auto &range = ends[team<T>()];
    index groups = (nwave + T - 1) / T, many = SELF ? 1 : nd - nearest, d = SELF ? 0 : nearest + n / parts % many;
    index f = n / (parts * many * groups), from = f * nwave, to = (f + d) * nwave;
    int begin = (int)(n / (parts * many) % groups) * T, end = (int)nwave, reach = (int)hw, high = (int)ny, wide = (int)nx;
    int first = (int)(n % parts) * MANY - (d > 0 ? reach : 0), size = high * wide;
    if (first > reach || gate[f])
        return;
    bool both = f % nfibre + d < nfibre;
    const double *mine = white + spot_at(f, 0, size, nwave), *others = white + spot_at(f + d, 0, size, nwave);
    Own<T, Coupling<MANY, ROWS>> members;
    MEMBERS(T, t) {
        auto &own = members[t];
        int bin = begin + t, top = bin < end ? y0[from + bin] : 0, low = NOWHERE, last = -NOWHERE;
        own.left = bin < end ? x0[from + bin] : NOWHERE;
        own.place = bin < end ? (int)spot_at(0, bin, size, nwave) - own.left * high * SECTION : 0;
        EACH(b, MANY) {
            int other = bin + first + b;
            bool there = both && bin < end && first + b <= reach && 0 <= other && other < end;
            int left = there ? x0[to + other] : 0;
            own.sums[b] = 0.0;
            int down = there ? top - y0[to + other] : FAR;
            own.down[b / 2] = b % 2 ? own.down[b / 2] | (int)((unsigned)down << HALF) : down & 0xffff;
            low = there ? smaller(low, larger(left, own.left)) : low;
            last = there ? larger(last, smaller(left, own.left) + wide) : last;
        }
        range[0][t] = low;
        range[1][t] = last;
        EACH(b, 2) {
            int at = b ? T + t % MORE : t, other = begin + first + at;
            bool there = both && at < T + MANY - 1 && 0 <= other && other < end;
            own.lefts[b] = there ? x0[to + other] : NOWHERE;
            own.places[b] = there ? (int)spot_at(0, other, size, nwave) - own.lefts[b] * high * SECTION : 0;
            EACH(r, 2 * EDGE)
                theirs[r < EDGE ? r : ROWS + r][at] = 0.0;
        }
    }
    int low = NOWHERE, last = -NOWHERE, chunks = (high + ROWS - 1) / ROWS;
    EACH(t, T) {
        low = smaller(low, range[0][t]);
        last = larger(last, range[1][t]);
    }
    LOOP(int, y, 0, chunks) {
        LOOP(int, x, low, last) {
            LOOP(int, later, 0, chunks) {
                int c = y + later < chunks ? y + later : y + later - chunks;
                MEMBERS(T, t) {
                    auto &own = members[t];
                    int column = x * high * SECTION, row = y * ROWS, their = c * ROWS;
                    bool within = (unsigned)(x - own.left) < (unsigned)wide;
                    EACH(r, SELF ? 0 : ROWS)
                        own.here[r] = within && row + r < high ? mine[own.place + column + (row + r) * SECTION] : 0.0;
                    EACH(b, 2) {
                        bool there = (unsigned)(x - own.lefts[b]) < (unsigned)wide;
                        int at = b ? T + t % MORE : t, every = b ? T / MORE : 1;
                        UNROLLED
                        for (int k = 0; k < ROWS; k += every) {
                            int r = b ? k + t / MORE : k;
                            if (r < ROWS)
                                theirs[EDGE + r][at] = there && their + r < high ?
                                                       others[own.places[b] + column + (their + r) * SECTION] : 0.0;
                        }
                    }
                }
                MEMBERS(T, t) {
                    auto &own = members[t];
                    EACH(r, SELF && later == 0 ? ROWS : 0)
                        own.here[r] = theirs[EDGE + r][t];
                    EACH(b, MANY) {
                        FOUND_ANEW(own.down[b / 2]);
                        int row = (b % 2 ? own.down[b / 2] : (int)((unsigned)own.down[b / 2] << HALF)) >> HALF;
                        row += (y - c) * ROWS;
                        UNROLLED
                        for (int g = 0; g < ROWS; g += FEW) {
                            if (row <= -FEW - g || row + g >= ROWS)
                                continue;
                            EACH_FROM(r, g, smaller(g + FEW, ROWS))
                                own.sums[b] = fma(own.here[r], theirs[EDGE + row + r][t + b], own.sums[b]);
                        }
                    }
                }
            }
        }
    }
    ALONE(T, t) {
        auto &own = members[t];
        int bin = begin + t;
        double *out = icov + (f * nd + d) * (2 * reach + 1) * nwave + bin;
        EACH(b, MANY) {
            int k = first + b, other = bin + k;
            if (k > reach || bin >= end)
                continue;
            double sum = both && 0 <= other && other < end ? own.sums[b] * scale[from + bin] * scale[to + other] : 0.0;
            out[(reach + k) * nwave] = sum;
            if (d == 0 && k > 0)
                out[(reach - k) * nwave + other % end - bin] = sum;
        }
    }
}

// How much of a bin's light is on good pixels (normal.LEAST_LIGHT, normal.FAINT_LIGHT).
enum Light { ENOUGH, FAINT, GIVEN_UP };

// Set marks: bins are given up below `least` of their light, and faint below `faint`. A lane for each bin.
//
// icov: ridge^2 (config.regularize) is added to its diagonal, which is 0 for bins without weight; rhs: 0 where weight is; sums
// (2, fibres, nwave): weight, 0 for a bin that is given up, and right-hand side
BLOCK(128) void give_up(index n, double *icov, double *rhs, signed char *marks, double *sums, const int *gate, double least,
                        double faint, double ridge, index nd, index hw, index nwave, index fibres)
{
    if (gate[n / nwave])
        return;
    double *diagonal = icov + (n / nwave * nd * (2 * hw + 1) + hw) * nwave + n % nwave;
    double weight = sums[n], known = *diagonal;
    bool dark = !(weight > 0.0), enough = known > faint * weight, some = known > least * weight;
    marks[n] = (signed char)(dark || enough ? ENOUGH : some ? FAINT : GIVEN_UP);
    bool none = dark || marks[n] == GIVEN_UP;
    *diagonal = none ? 0.0 : known + ridge * ridge;
    rhs[n] = none ? 0.0 : sums[fibres * nwave + n];
    sums[n] = none ? 0.0 : weight;
}

// Set the rows and columns of icov of bins that are given up to 0. A lane for each bin and distance of fibres.
BLOCK(128) void take_out(index n, double *icov, const signed char *marks, const int *gate, index nd, index hw, index nwave,
                         index nfibre)
{
    index bin = n % nwave, f = n / nwave / nd, d = n / nwave % nd;
    if (gate[f] || f % nfibre + d >= nfibre)
        return;
    double *row = icov + (f * nd + d) * (2 * hw + 1) * nwave + bin;
    const signed char *others = marks + (f + d) * nwave;
    bool all = marks[f * nwave + bin] == GIVEN_UP;
    LOOP(index, k, larger(-hw, -bin), smaller(hw, nwave - 1 - bin) + 1)
        if (all || others[bin + k] == GIVEN_UP)
            row[(hw + k) * nwave] = 0.0;
}

// parts (fibres, PARTS) = number of the bins `first` .. `end` - 1 that have a mark.
BLOCK(128) void count_marks(index n, double *parts, const signed char *marks, index wanted, index first, index end,
                            index nwave)
{
    const signed char *mine = marks + n / PARTS * nwave;
    double total = 0.0;
    FOUR_AT_ONCE
    for (int j = (int)(first + n % PARTS); j < (int)end; j += PARTS)
        total += mine[j] == wanted ? 1.0 : 0.0;
    parts[n] = total;
}
