// Kernels: the normal equations as bands, and which bins are given up.
//
// Whitened spots are (fibres, ny nx, places), with bins where `place_of` puts them: lanes that go through stretches of
// STRETCH bins, one beside the other, then read neighbours in memory.
#pragma once
#include "lanes.h"

constexpr int PARTS = 64;      // partial sums of a fibre: part c takes bins c, c + 64, ...
constexpr int STRETCH = 16, SIDE_BY_SIDE = 4, SECTION = STRETCH * SIDE_BY_SIDE;

LANE int place_of(int bin) { return bin / SECTION * SECTION + bin % STRETCH * SIDE_BY_SIDE + bin % SECTION / STRETCH; }

LANE int bin_at(int place)
{
    return place / SECTION * SECTION + place % SIDE_BY_SIDE * STRETCH + place % SECTION / SIDE_BY_SIDE;
}

// Whitened spots, and where they lie on the CCD.
struct Spots {
    const double *white;
    const int *y0, *x0;
    int ny, nx, places, nwave;
};

// Bins of a fibre, W of them, that follow each other in steps of `step` and go with the rows. What lies behind the last
// one begins below all rows.
template <int W> struct Window {
    static constexpr int CORNER = 1 << 16, NONE = 1 << 29;
    const Spots &all;
    int fibre, step, bin, left, corner[W];       // a spot's first pixel: row times CORNER, and column

    LANE Window(const Spots &all, int fibre, int step, int bin, int left)
        : all(all), fibre(fibre), step(step), bin(bin), left(left)
    {
        EACH(a, W)
            corner[a] = corner_of(a);
    }
    LANE int corner_of(int a) const
    {
        index at = (index)fibre * all.nwave + bin + a * step;
        return a < left ? all.y0[at] * CORNER + (all.x0[at] & (CORNER - 1)) : (CORNER / 2 - 1) * CORNER;
    }
    LANE int top(int a) const { return corner[a] >> 16; }
    LANE int column(int a) const { return (short)(corner[a] & (CORNER - 1)); }
    LANE bool is_over(int y, int beyond) const { return left > beyond && top(0) + all.ny <= y; }
    // The first bin leaves, another one comes.
    LANE void go_on()
    {
        bin += step;
        left--;
        push_back(corner, corner_of(W - 1));
    }
    // Of row y: where column 0 would lie among a spot's numbers, NONE where the spot has no such row; the first of their
    // columns, and one past the last.
    LANE void look(int (&at)[W], int &first, int &last, int y) const
    {
        EACH(a, W) {
            int down = y - top(a);
            bool there = 0 <= down && down < all.ny;
            at[a] = there ? place_of(bin + a * step) + (down * all.nx - column(a)) * all.places : NONE;
            first = there && column(a) < first ? column(a) : first;
            last = there && column(a) + all.nx > last ? column(a) + all.nx : last;
        }
    }
    LANE double value(int a, int at, int x) const
    {
        bool there = at != NONE && (unsigned)(x - column(a)) < (unsigned)all.nx;
        return there ? (all.white + (index)fibre * all.ny * all.nx * all.places)[at + x * all.places] : 0.0;
    }
};

// Sums over the pixels that spots of two windows share, row by row. `mine` goes on until `beyond` bins are left; a pair's
// sum is there when one of its bins leaves, and keep(a, b) puts it away. ALONE: both windows are one.
template <int W, bool ALONE, typename Keep>
LANE void slide(Window<W> &mine, Window<W> &theirs, int bins_behind, Keep keep)
{
    const int beyond = ALONE ? bins_behind : 0;
    double sums[W][W] = {};
    ONE_BY_ONE
    for (int y = mine.top(0); mine.left > beyond; y++) {
        ONE_BY_ONE
        while (mine.is_over(y, beyond)) {
            EACH(b, W)
                keep(0, b, sums[0][b]);
            EACH(a, W)
                EACH(b, W)
                    sums[a][b] = a + 1 < W && b + ALONE < W ? sums[(a + 1) % W][(b + ALONE) % W] : 0.0;
            mine.go_on();
        }
        ONE_BY_ONE
        while (!ALONE && theirs.is_over(y, 0)) {
            EACH(a, W) {
                keep(a, 0, sums[a][0]);
                EACH(b, W)
                    sums[a][b] = b + 1 < W ? sums[a][(b + 1) % W] : 0.0;
            }
            theirs.go_on();
        }
        int ours[W], others[W], edges[4] = {1 << 29, -(1 << 29), 1 << 29, -(1 << 29)};
        mine.look(ours, edges[0], edges[1], y);
        theirs.look(others, edges[2], edges[3], y);
        int from = edges[0] > edges[2] ? edges[0] : edges[2], to = edges[1] < edges[3] ? edges[1] : edges[3];
        LOOP(int, x, from, to) {
            double here[W];
            EACH(a, W)
                here[a] = mine.value(a, ours[a], x);
            EACH(b, W) {
                double value = ALONE ? here[b] : theirs.value(b, others[b], x);
                EACH(a, (ALONE ? b + 1 : W))
                    sums[a][b] = fma(here[a], value, sums[a][b]);
            }
        }
    }
}

// Entries of icov, (fibres, nd, 2 hw + 1, nwave), 0 on entry: each the sum over the pixels that two whitened spots
// share, in the order of rows and columns; of a fibre with itself the mirror image too. A lane goes along a stretch of
// fibre f, with W of its bins and W of fibre f + d that may touch a row, every `apart`-th of both: a number of a spot is
// taken once, and serves as many sums. y0, x0: (fibres, nwave).
template <int W>
BLOCK(64) void couple(index n, double *icov, const double *white, const int *y0, const int *x0, index nfibre, index nx,
                      index ny, index nd, index hw, index nwave, index places, index apart)
{
    Spots all{white, y0, x0, (int)ny, (int)nx, (int)places, (int)nwave};
    int end = (int)nwave, reach = (int)hw, step = (int)apart, stretches = (end + STRETCH - 1) / STRETCH;
    int low = (int)(n % stretches) * STRETCH, high = low + STRETCH < end ? low + STRETCH : end;
    index rest = n / stretches, pair = rest / (apart * apart), f = pair / nd, d = pair % nd;
    int own = (int)(rest % apart), other = (int)(rest / apart % apart), many = high - low - own;
    if (f % nfibre + d >= nfibre || many <= 0)
        return;
    bool up = y0[f * nwave + end - 1] >= y0[f * nwave], alone = d == 0 && step == 1;
    int back = low - reach > 0 ? low - reach : 0, ahead = high + reach < end ? high + reach : end;
    int beyond = !alone ? 0 : up ? ahead - high : low - back;
    double *out = icov + (f * nd + d) * (2 * reach + 1) * nwave;
    Window<W> mine(all, (int)f, up ? step : -step, up ? low + own : high - 1 - own, (many + step - 1) / step + beyond);
    Window<W> theirs(all, (int)(f + d), up ? step : -step, up ? back + other : ahead - 1 - other,
                     (ahead - back - other + step - 1) / step);
    auto keep = [&](int at, int to, double sum) {
        int k = to - at;
        if (-reach <= k && k <= reach && (d > 0 || k >= 0))
            out[(reach + k) * nwave + at] = sum;
        if (d == 0 && 0 < k && k <= reach)
            out[(reach - k) * nwave + to] = sum;
    };
    if (alone)
        slide<W, true>(mine, mine, beyond, [&](int, int b, double sum) {
            int at = mine.bin, to = at + b * mine.step;
            if (b < mine.left)
                keep(at < to ? at : to, at < to ? to : at, sum);
        });
    else
        slide<W, false>(mine, theirs, 0, [&](int a, int b, double sum) {
            if (a < mine.left && b < theirs.left)
                keep(mine.bin + a * mine.step, theirs.bin + b * theirs.step, sum);
        });
}

// Bins of weight 0 taken out, and which others normal.give_up would, told of alone: such a bundle is the CPU's. A lane
// for each bin.
//
// rhs: 0 where weight is; sums (2, fibres, nwave): weight and right side; least: normal.FAINT_LIGHT: the CPU gives up
// some of these, and flags the others; ridge: see config.regularize.
BLOCK(128) void give_up(index n, double *icov, double *rhs, signed char *given_up, const double *sums, double least,
                        double ridge, index nd, index hw, index nwave, index fibres)
{
    double *diagonal = icov + (n / nwave * nd * (2 * hw + 1) + hw) * nwave + n % nwave;
    double weight = sums[n], known = *diagonal;
    bool dark = !(weight > 0.0);
    given_up[n] = !dark && !(known > least * weight);
    *diagonal = dark ? 0.0 : known + ridge * ridge;
    rhs[n] = dark ? 0.0 : sums[fibres * nwave + n];
}

// parts (fibres, PARTS) = how many bins have a mark.
BLOCK(128) void count_marks(index n, double *parts, const signed char *marks, index wanted, index nwave)
{
    const signed char *mine = marks + n / PARTS * nwave;
    double total = 0.0;
    FOUR_AT_ONCE
    for (int j = (int)(n % PARTS); j < (int)nwave; j += PARTS)
        total += mine[j] == wanted ? 1.0 : 0.0;
    parts[n] = total;
}
