// Kernels: the normal equations as bands, and which bins are given up.
//
// Spots are (fibres, sections, nx, ny, SECTION): bins of a section beside each other, their spots column by column, so
// that lanes for bins read neighbours in memory whatever pixels they ask for. The sum of a spot is 1 / scale.
#pragma once
#include "lanes.h"

constexpr int PARTS = 64;      // partial sums of a fibre: part c takes bins c, c + 64, ...
constexpr int SECTION = 32, FEW = 4;

LANE index sections_of(index nwave) { return (nwave + SECTION - 1) / SECTION; }

LANE index places_of(index nwave) { return sections_of(nwave) * SECTION; }

// The first number of a bin's spot, of `size` pixels; the next pixel's lies SECTION behind it.
LANE index spot_at(index f, int bin, index size, index nwave)
{
    return (f * sections_of(nwave) + bin / SECTION) * size * SECTION + bin % SECTION;
}

// Entries of icov, (fibres, nd, 2 hw + 1, nwave): each the sum over the pixels that two whitened spots share, in the order
// of columns and rows; of a fibre with itself the mirror image too. A lane takes a bin of fibre f and MANY of fibre f + d,
// and goes through the columns of its own spot: ROWS of its numbers serve as many sums, and what lanes side by side ask
// for of other spots lies side by side. scale, y0, x0: (fibres, nwave); gate: of fibres, not 0 where nothing is to be done.
template <int MANY, int ROWS>
BLOCK(256) void couple(index n, double *icov, const double *white, const double *scale, const int *gate, const int *y0,
                       const int *x0, index nfibre, index nx, index ny, index nd, index hw, index nwave, index parts)
{
    index rest = n / SECTION, d = rest / parts % nd, section = rest / (parts * nd) % sections_of(nwave);
    index f = rest / (parts * nd * sections_of(nwave)), from = f * nwave, to = (f + d) * nwave;
    int bin = (int)(section * SECTION + n % SECTION), end = (int)nwave, reach = (int)hw, high = (int)ny, wide = (int)nx;
    int first = (int)(rest % parts) * MANY - (d > 0 ? reach : 0), size = high * wide;
    if (bin >= end || first > reach || gate[f])
        return;
    bool both = f % nfibre + d < nfibre;
    int top = y0[from + bin], left = x0[from + bin], low = 1 << 29, last = -(1 << 29);
    int down[MANY], column[MANY], place[MANY];      // of the other spots: rows and columns from here, where row 0 lies
    EACH(b, MANY) {
        int other = bin + first + b;
        bool there = both && first + b <= reach && 0 <= other && other < end;
        down[b] = there ? top - y0[to + other] : high;
        column[b] = there ? x0[to + other] - left : 0;
        place[b] = (int)spot_at(0, other, size, nwave) + (down[b] - column[b] * high) * SECTION;
        there = -high < down[b] && down[b] < high;
        low = there && column[b] < low ? column[b] : low;
        last = there && column[b] > last ? column[b] : last;
    }
    const double *mine = white + spot_at(f, bin, size, nwave), *others = white + spot_at(f + d, 0, size, nwave);
    double sums[MANY] = {};
    LOOP(int, y, 0, (high + ROWS - 1) / ROWS) {
        LOOP(int, x, larger(low, 0), smaller(last + wide, wide)) {
            int begin = (x * high + y * ROWS) * SECTION;
            double here[ROWS];
            EACH(r, ROWS)
                here[r] = y * ROWS + r < high ? mine[begin + r * SECTION] : 0.0;
            EACH(b, MANY) {
                int row = down[b] + y * ROWS;
                if ((unsigned)(x - column[b]) >= (unsigned)wide)
                    continue;
                const double *theirs = others + (begin + place[b]);
                UNROLLED
                for (int g = 0; g < ROWS; g += FEW) {
                    if (row <= -FEW - g || row + g >= high)
                        continue;
                    double there[FEW];
                    EACH(r, FEW) {
                        bool shared = g + r < ROWS && (unsigned)(row + g + r) < (unsigned)high;
                        there[r] = shared ? theirs[(g + r) * SECTION] : 0.0;
                    }
                    EACH(r, FEW)
                        sums[b] = g + r < ROWS ? fma(here[(g + r) % ROWS], there[r], sums[b]) : sums[b];
                }
            }
        }
    }
    double *out = icov + (f * nd + d) * (2 * reach + 1) * nwave + bin;
    EACH(b, MANY) {
        int k = first + b, other = bin + k;
        if (k > reach)
            continue;
        double sum = both && 0 <= other && other < end ? sums[b] * scale[from + bin] * scale[to + other] : 0.0;
        out[(reach + k) * nwave] = sum;
        if (d == 0 && k > 0)
            out[(reach - k) * nwave + other % end - bin] = sum;
    }
}

// What is said of a bin whose good pixels have hardly any of its light (normal.LEAST_LIGHT, normal.FAINT_LIGHT).
enum Light { ENOUGH, FAINT, GIVEN_UP };

// Which bins are given up, of less than `least` of their light, and which are faint, of less than `faint`: told of by
// `marks`. A lane for each bin.
//
// icov: ridge^2 (config.regularize) is added to its diagonal, 0 of bins without weight; rhs: 0 where weight is; sums (2,
// fibres, nwave): weight, 0 of a bin that is given up, and right side
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

// The rows and columns of icov of bins that are given up: 0. A lane for each bin and distance of fibres.
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

// parts (fibres, PARTS) = how many of the bins `first` .. `end` - 1 have a mark.
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
