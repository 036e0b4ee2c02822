// Recursions of recursions.h by a team of T threads, for half-bands that are too wide for the registers of one. A column
// is with one member from where it enters the window of T - SIDES columns until it leaves it, its place is how many
// columns the present row is before it: what a row takes from the next ones, or the elements of the inverse that rows ask
// for, are in registers of their columns' members. The last SIDES members have right sides, each at the place that is its
// number. H < T - SIDES.
#pragma once
#include "recursions.h"

constexpr int AHEAD = 4;      // rows that are asked for before they are needed: a row takes less time than memory does

template <int T> LANE int first_place(int t, index row)
{
    constexpr int PLACES = T - SIDES;
    int place = t - (int)(row % PLACES);
    return t >= PLACES ? t : place < 0 ? place + PLACES : place;
}

// The place of a column so many rows further down.
template <int T> LANE int place_after(int place, int rows)
{
    constexpr int PLACES = T - SIDES;
    int to = place - rows;
    return place >= PLACES ? place : to < 0 ? to + PLACES : to >= PLACES ? to - PLACES : to;
}

// A column as it is eliminated: its element of the present row; what the rows before take from it in the present one and
// those behind; what is asked for of the next rows.
template <int H, int NUMBERS> struct Column {
    int place;
    double row, taken[H], asked[AHEAD][NUMBERS];
};

// Rows start .. stop - 1 of a matrix are eliminated. task: what is asked of a row, its element, what becomes of it
// once its pivot is known, and whether to go on.
template <int H, int T, typename Task>
LANE void eliminate_columns(Own<T, Column<H, Task::NUMBERS>> &columns, Task &task, index start, index stop)
{
    SHARED double rows[WARP / T][2][T];
    auto &shared = rows[team<T>()];
    MEMBERS(T, t) {
        auto &own = columns[t];
        own = {first_place<T>(t, start), 0.0, {}, {}};
        task.ask(own.asked[0], start, own.place);
        shared[0][own.place] = own.row = task.element(own.asked[0], own.place, 0.0);
        EACH(k, AHEAD)
            task.ask(own.asked[k], start + 1 + k, place_after<T>(own.place, 1 + k));
    }
    ONE_BY_ONE
    for (index j = start; j < stop && task.more; j += AHEAD)
        EACH(k, AHEAD) {
            if (j + k >= stop)
                continue;
            const double *row = shared[k % 2];
            MEMBERS(T, t) {
                auto &own = columns[t];
                bool leaves = own.place == 0;
                double inverse = 1.0 / row[0], low = own.row * inverse;
                task.done(j + k, own.place, own.row, leaves ? inverse : low, row[0]);
                low = leaves ? 0.0 : low;
                EACH_FROM(b, 1, H + 1)
                    own.taken[b - 1] = fma(-row[b], low, b < H && !leaves ? own.taken[b < H ? b : 0] : 0.0);
                own.place = place_after<T>(own.place, 1);
                shared[(k + 1) % 2][own.place] = own.row = task.element(own.asked[k], own.place, own.taken[0]);
                task.ask(own.asked[k], j + k + 1 + AHEAD, place_after<T>(own.place, AHEAD));
            }
        }
}

// Elements of a band matrix up to row stop - 1, pivots as `safe_row` has them.
template <int H> struct Eliminated {
    static constexpr int NUMBERS = 1;
    static constexpr bool more = true;
    Read band;
    index stop;

    LANE void ask(double (&asked)[1], index j, int place) const
    {
        asked[0] = j < stop && place <= H ? band.at(j, place) : 0.0;
    }
    LANE double element(const double (&asked)[1], int place, double taken) const
    {
        double diagonal = asked[0] > 0.0 ? asked[0] : 1.0, value = (place == 0 ? diagonal : asked[0]) + taken;
        return place > 0 || fma(-TINY, diagonal, value) > 0.0 ? value : diagonal;
    }
    LANE void done(index, int, double, double, double) const {}
};

// The same, rows of the factor from `keep` on are stored.
template <int H> struct Factored : Eliminated<H> {
    Write low;
    index keep;

    LANE Factored(Write low, Read band, index keep, index stop) : Eliminated<H>{band, stop}, low(low), keep(keep) {}
    LANE void done(index j, int place, double, double scaled, double) const
    {
        if (j >= keep && place <= H)
            low.first[j * low.row + place * low.element] = scaled;
    }
};

// Rows keep .. stop - 1 of the factor; T = 1: by one thread, here and below.
template <int H, int T> LANE void factor_rows(Write low, Read band, index start, index keep, index stop)
{
    if constexpr (T == 1) {
        eliminate_rows<H, true>(low, band, start, keep, stop);
    } else {
        Own<T, Column<H, 1>> columns;
        Factored<H> task(low, band, keep, stop);
        eliminate_columns<H, T>(columns, task, start, stop);
    }
}

template <int H, int T> LANE index halo_before(Read band, index at, index nwave)
{
    if constexpr (T == 1) {
        return halo_before<H>(band, at, nwave);
    } else {
        SHARED double told[WARP / T][T];
        auto &agrees = told[team<T>()];
        Own<T, double> before;
        bool same = false;
        index back = FIRST_HALO;
        ONE_BY_ONE
        for (bool first = true; first || (!same && back < at); first = false) {
            back = first ? back : 2 * back;
            Own<T, Column<H, 1>> now;
            Eliminated<H> task{band, at};
            eliminate_columns<H, T>(now, task, at > back ? at - back : 0, at);
            MEMBERS(T, t) {
                int place = now[t].place;
                double diagonal = place < H && at + place < nwave ? band.one(at + place) : 0.0, taken = 0.0;
                EACH(b, H)
                    taken = b == place ? now[t].taken[b] : taken;
                agrees[t] = !first && fabs(taken - before[t]) <= FORGOTTEN * (diagonal > 0.0 ? diagonal : 1.0) ? 1.0 : 0.0;
                before[t] = taken;
            }
            same = true;
            EACH(t, T)
                same = same && agrees[t] > 0.0;
        }
        return back < at ? back : at;
    }
}

// S + shift with its right sides: their forward substitutions and the factor go to `work`.
template <int H, int T> struct PoleDown {
    static constexpr int NUMBERS = 1;
    static constexpr bool more = true;
    Write work;
    Read band, sides;
    double shift;
    index keep, stop;

    LANE void ask(double (&asked)[1], index j, int place) const
    {
        constexpr int PLACES = T - SIDES;
        asked[0] = j >= stop ? 0.0 : place <= H ? band.at(j, place) : place >= PLACES ? sides.at(j, place - PLACES) : 0.0;
    }
    LANE double element(const double (&asked)[1], int place, double taken) const
    {
        return asked[0] + taken + (place == 0 ? shift : 0.0);
    }
    LANE void done(index j, int place, double row, double scaled, double) const
    {
        constexpr int PLACES = T - SIDES;
        if (j >= keep && (place <= H || place >= PLACES))
            work.first[j * work.row + (place <= H ? place + SIDES : place - PLACES) * work.element] = place <= H ? scaled : row;
    }
};

template <int H, int T>
LANE void pole_down(Write work, Read band, Read sides, double shift, index start, index keep, index stop)
{
    if constexpr (T == 1) {
        pole_down<H>(work, band, sides, shift, start, keep, stop);
    } else {
        Own<T, Column<H, 1>> columns;
        PoleDown<H, T> task{work, band, sides, shift, keep, stop};
        eliminate_columns<H, T>(columns, task, start, stop);
    }
}

// S + b U - c - (1 - g) diag(S), as far as it is positive definite.
template <int H> struct Asked {
    static constexpr int NUMBERS = 2;
    Read band, taken;
    double b, c, g;
    index stop;
    bool more = true;

    LANE void ask(double (&asked)[2], index j, int place) const
    {
        bool there = j < stop && place <= H;
        asked[0] = there ? band.at(j, place) : 0.0;
        asked[1] = there ? taken.at(j, place) : 0.0;
    }
    LANE double element(const double (&asked)[2], int place, double before) const
    {
        return fma(b, asked[1], place == 0 ? fma(g, asked[0], -c) : asked[0]) + before;
    }
    LANE void done(index, int, double, double, double pivot) { more = more && pivot > 0.0; }
};

template <int H, int T> LANE double definite_rows(Read band, Read taken, double b, double c, double g, index nwave)
{
    if constexpr (T == 1) {
        return definite_rows<H>(band, taken, b, c, g, nwave);
    } else {
        Own<T, Column<H, 2>> columns;
        Asked<H> task{band, taken, b, c, g, nwave};
        eliminate_columns<H, T>(columns, task, 0, nwave);
        return task.more ? 1.0 : 0.0;
    }
}

// value - low_1 of_0 - .. - low_H of_(H - 1), as four sums.
template <int H> LANE double less(double value, const double *low, const double *of)
{
    double sums[4] = {value, 0.0, 0.0, 0.0};
    UNROLLED
    for (int b = H; b > 0; b--)
        sums[b % 4] = fma(-low[b], of[b - 1], sums[b % 4]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// A column of the inverse, or a solution: its elements in the rows behind, the next one first; that of the present row;
// what is asked for, element t of the next rows up by member t.
template <int H> struct Inverted {
    int place;
    double known[H], z, asked[AHEAD];
};

// Rows stop - 1 .. keep of the inverse and of solutions (as `Inverse` and `behind`). task: right sides and factor of a row,
// element by element, and what becomes of a row.
template <int H, int T, typename Task> LANE void invert_columns(const Task &task, index keep, index stop)
{
    SHARED double lows[WARP / T][2][T], rows[WARP / T][T];
    auto &factor = lows[team<T>()];
    double *row = rows[team<T>()];
    Own<T, Inverted<H>> columns;
    MEMBERS(T, t) {
        columns[t] = {first_place<T>(t, stop - 1), {}, 0.0, {}};
        factor[0][t] = task.ask(stop - 1, t);
        EACH(k, AHEAD)
            columns[t].asked[k] = stop - 2 - k >= keep ? task.ask(stop - 2 - k, t) : 0.0;
    }
    ONE_BY_ONE
    for (index j = stop - 1; j >= keep; j -= AHEAD)
        EACH(k, AHEAD) {
            if (j - k < keep)
                continue;
            const double *sides = factor[k % 2], *low = sides + SIDES;
            MEMBERS(T, t) {
                auto &own = columns[t];
                int side = own.place - (T - SIDES);
                row[own.place] = own.z = less<H>(side >= 0 ? sides[side] * low[0] : 0.0, low, own.known);
            }
            MEMBERS(T, t) {       // the column of this row enters: its elements are those of the row
                auto &own = columns[t];
                bool enters = own.place == 0;
                double diagonal = less<H>(low[0], low, row + 1);
                own.z = enters ? diagonal : own.z;
                push_front(own.known, own.z);
                EACH_FROM(b, 1, H)
                    own.known[b] = enters ? row[b] : own.known[b];
                task.done(j - k, own.place, own.z);
                own.place = place_after<T>(own.place, -1);
                factor[(k + 1) % 2][t] = own.asked[k];
                own.asked[k] = j - k - 1 - AHEAD >= keep ? task.ask(j - k - 1 - AHEAD, t) : 0.0;
            }
        }
}

// The inverse in its band.
template <int H> struct InBand {
    Write inverse;
    Read low;
    index known;

    LANE double ask(index j, int t) const { return SIDES <= t && t <= SIDES + H ? low.at(j, t - SIDES) : 0.0; }
    LANE void done(index j, int place, double z) const
    {
        if (j < known && place <= H)
            inverse.first[j * inverse.row + place * inverse.element] = z;
    }
};

// Of a pole: the solutions, and the inverse up to diagonal ND.
template <int H, int ND, int T> struct PoleUp {
    Write found;
    Read work;
    index known;

    LANE double ask(index j, int t) const { return t <= SIDES + H ? work.at(j, t) : 0.0; }
    LANE void done(index j, int place, double z) const
    {
        constexpr int PLACES = T - SIDES;
        if (j < known && (place <= ND || place >= PLACES))
            found.first[j * found.row + (place <= ND ? place + SIDES : place - PLACES) * found.element] = z;
    }
};

template <int H, int T> LANE void invert_rows(Write inverse, Read low, index keep, index known, index stop)
{
    if constexpr (T == 1)
        invert_rows<H>(inverse, low, keep, known, stop);
    else
        invert_columns<H, T>(InBand<H>{inverse, low, known}, keep, stop);
}

template <int H, int ND, int T> LANE void pole_up(Write found, Read work, index keep, index known, index stop)
{
    if constexpr (T == 1)
        pole_up<H, ND>(found, work, keep, known, stop);
    else
        invert_columns<H, T>(PoleUp<H, ND, T>{found, work, known}, keep, stop);
}
