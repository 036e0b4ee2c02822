// Recursions of recursions.h by a team of T threads, for half-bands that are too wide for the registers of one.
//
// A window of T - SIDES columns moves along the band. One member has a column from where it enters the window until it leaves;
// the place of a column is the distance of the present row from its diagonal. What rows subtract from a column, or the
// elements of the inverse that rows need, are in its member's registers. Members exchange only the present row. The last SIDES
// members have right-hand sides; the place of a side is its member's number. H < T - SIDES.
#pragma once
#include "recursions.h"

constexpr int AHEAD = 4;      // rows that are read at once, while as many are processed

template <int T> LANE int first_place(int t, int row)
{
    constexpr int PLACES = T - SIDES;
    int place = t - row % PLACES;
    return t >= PLACES ? t : place < 0 ? place + PLACES : place;
}

// The place of a column or side one row further down, or up.
template <int T> LANE int place_below(int place)
{
    return place >= T - SIDES ? place : place > 0 ? place - 1 : T - SIDES - 1;
}
template <int T> LANE int place_above(int place)
{
    return place >= T - SIDES ? place : place < T - SIDES - 1 ? place + 1 : 0;
}

// The place of a member's element of an array, row after row: that of a column is one element nearer to the diagonal in each
// row; after the last, `turn` leads to the member's next column.
template <typename Kind> struct Walk {
    Kind *at;
    index step, turn;

    LANE void down(int place) { at += place == 0 ? step + turn : step; }
    template <int T> LANE void up(int place) { at -= place == T - SIDES - 1 ? step + turn : step; }
};

// The walk from row j on; in a row, columns have the elements from `first` on, and sides the first ones.
template <int T, typename Kind>
LANE Walk<Kind> walk(Kind *array, index row, index element, int j, int place, int first = 0)
{
    constexpr int PLACES = T - SIDES;
    return place < PLACES ? Walk<Kind>{array + j * row + (place + first) * element, row - element, PLACES * element}
                          : Walk<Kind>{array + j * row + (place - PLACES) * element, row, 0};
}

// A column during the elimination: its place in the present row and in those that were read last; its element of the
// present row; what earlier rows subtract from it in the present row and later ones; the numbers read of the next rows. MANY
// matrices are made from the NUMBERS that are read.
template <int H, int NUMBERS, int MANY = 1> struct Column {
    int place, asks[AHEAD];
    Walk<const double> from;
    Walk<double> to;
    double row[MANY], taken[MANY][H], asked[AHEAD][NUMBERS];
};

// Eliminate rows start .. stop - 1 of MANY matrices. task: the places from which a member's elements are read and to which they
// are written, the numbers read of a row, the matrices' elements, 1 / a pivot, the use of an element once the pivot is known,
// whether to continue, and whether rows may continue BEYOND the last.
// The first rows are read by the same code as all others, one turn before them. What was subtracted from a column that leaves
// shifts with the rows until the member has its next column; the part that would still be there is cleared.
template <int H, int T, typename Task>
LANE void eliminate_columns(Own<T, Column<H, Task::NUMBERS, Task::MANY>> &columns, Task &task, int start, int stop)
{
    constexpr int PLACES = T - SIDES, MANY = Task::MANY;
    SHARED double rows[IN_BLOCK<T>][2][MANY][T];
    auto &shared = rows[team<T>()];
    MEMBERS(T, t) {
        int place = first_place<T>(t, start);
        auto &own = columns[t] = {place, {}, task.from(start, place), task.to(start, place), {}, {}, {}};
        EACH(k, AHEAD)
            own.asks[k] = place;
        task.ask(own.asked[0], own.from.at, place, true);
        EACH(m, MANY)
            shared[0][m][place] = own.row[m] = task.element(m, own.asked[0], place, 0.0);
    }
    ONE_BY_ONE
    for (int j = start - AHEAD; j < stop && task.more; j += AHEAD) {
        Own<T, double[AHEAD][Task::NUMBERS]> next;
        Own<T, int[AHEAD]> below;
        ALONE(T, t) {
            int place = columns[t].asks[AHEAD - 1];
            EACH(k, AHEAD) {
                auto &own = columns[t];
                own.from.down(place);
                place = below[t][k] = place_below<T>(place);
                task.ask(next[t][k], own.from.at, place, j + AHEAD + 1 + k < stop);
            }
        }
        EACH(k, AHEAD) {
            if (j < start)
                break;
            if (!Task::BEYOND && j + k >= stop)
                return;
            MEMBERS(T, t) {
                auto &own = columns[t];
                bool leaves = own.place == 0, outside = leaves || (H < own.place && own.place < PLACES);
                EACH(m, MANY) {
                    const double *row = shared[k % 2][m];
                    double inverse = task.one_over(row[0]), low = own.row[m] * inverse, (&taken)[H] = own.taken[m];
                    task.done(m, j + k, own.to.at, own.place, own.row[m], leaves ? inverse : low, row[0]);
                    low = outside ? 0.0 : low;
                    EACH_FROM(b, 1, H + 1)
                        taken[b - 1] = fma(-row[b], low, b < H && !(leaves && b >= PLACES - H) ? taken[b < H ? b : 0] : 0.0);
                }
                own.to.down(own.place);
                own.place = own.asks[k];
                EACH(m, MANY)
                    shared[(k + 1) % 2][m][own.place] = own.row[m] =
                        task.element(m, own.asked[k], own.place, own.taken[m][0]);
            }
        }
        ALONE(T, t)
            EACH(k, AHEAD) {
                columns[t].asks[k] = below[t][k];
                copy(columns[t].asked[k], next[t][k]);
            }
    }
}

// The elimination of a matrix, as in eliminate_alone: rows from `keep` on, N forward substitutions and the factor, go to `out`.
template <int H, int T, int N> struct Eliminated {
    static constexpr int NUMBERS = 1, MANY = 1, PLACES = T - SIDES;
    static constexpr bool more = true, BEYOND = false;
    Write out;
    Read band, sides;
    double shift;
    int keep;

    LANE static bool counts(int place) { return place <= H || (N > 0 && place >= PLACES); }
    LANE Walk<const double> from(int j, int place) const
    {
        const Read &array = N > 0 && place >= PLACES ? sides : band;
        return walk<T>(array.first, array.row, array.element, j, place);
    }
    LANE Walk<double> to(int j, int place) const { return walk<T>(out.first, out.row, out.element, j, place, N); }
    LANE void ask(double (&asked)[1], const double *at, int place, bool there) const
    {
        asked[0] = there && counts(place) ? *at : 0.0;
    }
    LANE double one_over(double pivot) const { return 1.0 / pivot; }
    LANE double element(int, const double (&asked)[1], int place, double taken) const
    {
        if (N > 0)
            return asked[0] + taken + (place == 0 ? shift : 0.0);
        double diagonal = asked[0] > 0.0 ? asked[0] : 1.0, value = (place == 0 ? diagonal : asked[0]) + taken;
        return place > 0 || fma(-TINY, diagonal, value) > 0.0 ? value : diagonal;
    }
    LANE void done(int, int j, double *at, int place, double row, double scaled, double) const
    {
        if (j >= keep && counts(place))
            *at = place <= H ? scaled : row;
    }
};

// Rows keep .. stop - 1 of forward substitutions and of a factor; T = 1: by one thread, as below, except definite_rows.
template <int H, int N, int T>
LANE void eliminate_rows(Write out, Read band, Read sides, double shift, index start, index keep, index stop)
{
    if constexpr (T == 1) {
        eliminate_alone<H, N, true>(out, band, sides, shift, start, keep, stop);
    } else {
        Own<T, Column<H, 1>> columns;
        Eliminated<H, T, N> task{out, band, sides, shift, (int)keep};
        eliminate_columns<H, T>(columns, task, (int)start, (int)stop);
    }
}

template <int H, int T> LANE index halo_before(Read band, index at, index nwave)
{
    if constexpr (T == 1) {
        return halo_before<H>(band, at, nwave);
    } else {
        SHARED double told[IN_BLOCK<T>][T];
        auto &agrees = told[team<T>()];
        Own<T, double> before;
        bool same = false;
        index back = FIRST_HALO;
        ONE_BY_ONE
        for (bool first = true; first || (!same && back < at); first = false) {
            back = first ? back : 2 * back;
            Own<T, Column<H, 1>> now;
            Eliminated<H, T, 0> task{{}, band, {}, 0.0, (int)at};
            eliminate_columns<H, T>(now, task, (int)(at > back ? at - back : 0), (int)at);
            MEMBERS(T, t) {
                int place = now[t].place;
                double diagonal = place < H && at + place < nwave ? band.one(at + place) : 0.0, taken = 0.0;
                EACH(b, H)
                    taken = b == place ? now[t].taken[0][b] : taken;
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

// A question about S: whether S + b U - c - (1 - g) diag(S) is positive definite; yes: as far as is known.
struct Question {
    double b, c, g;
    bool yes;
};

// The elimination for MANY questions; taken: distance in memory from the elements of S to those of U.
template <int H, int T, int ASKS> struct Asked {
    static constexpr int NUMBERS = 2, MANY = ASKS;
    static constexpr bool BEYOND = true;
    Read band;
    index taken;
    int stop;
    Question questions[MANY];
    bool more = true;

    LANE Walk<const double> from(int j, int place) const { return walk<T>(band.first, band.row, band.element, j, place); }
    LANE Walk<double> to(int, int) const { return {nullptr, 0, 0}; }
    LANE void ask(double (&asked)[2], const double *at, int place, bool there) const
    {
        asked[0] = there && place <= H ? *at : 0.0;
        asked[1] = there && place <= H ? at[taken] : 0.0;
    }
    LANE double one_over(double pivot) const { return about_one_over(pivot); }
    LANE double element(int m, const double (&asked)[2], int place, double before) const
    {
        auto [b, c, g, yes] = questions[m];
        return fma(b, asked[1], place == 0 ? fma(g, asked[0], -c) : asked[0]) + before;
    }
    LANE void done(int m, int j, double *, int, double, double, double pivot)
    {
        questions[m].yes &= (pivot > 0.0) | (j >= stop);
        more = (m > 0 && more) | questions[m].yes;
    }
};

// Answer questions about nwave rows.
template <int H, int T, int MANY> LANE void definite_rows(Read band, Read taken, Question (&asked)[MANY], index nwave)
{
    Own<T, Column<H, 2, MANY>> columns;
    Asked<H, T, MANY> task{band, taken.first - band.first, (int)nwave, {}};
    EACH(m, MANY)
        task.questions[m] = asked[m];
    eliminate_columns<H, T>(columns, task, 0, (int)nwave);
    EACH(m, MANY)
        asked[m] = task.questions[m];
}

// value - low_1 of_0 - .. - low_H of_(H - 1), in four partial sums.
template <int H> LANE double less(double value, const double *low, const double *of)
{
    double sums[4] = {value, 0.0, 0.0, 0.0};
    UNROLLED
    for (int b = H; b > 0; b--)
        sums[b % 4] = fma(-low[b], of[b - 1], sums[b % 4]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// A column of the inverse, or a solution: its elements in the rows below, the nearest first; that of the present row;
// the numbers read ahead: member t reads element t of the next rows up.
template <int H> struct Inverted {
    int place;
    Walk<double> to;
    const double *from;
    double known[H], z, asked[AHEAD];
};

// Rows stop - 1 .. keep of the inverse and of solutions (as recursions.invert_rows). task: right-hand sides and factor of a
// row, element by element, and the use of a row's results. Members meet once per row; shared numbers of a row are not
// overwritten before they have met again.
template <int H, int T, typename Task> LANE void invert_columns(const Task &task, int keep, int stop)
{
    SHARED double factors[IN_BLOCK<T>][AHEAD][T], rows[IN_BLOCK<T>][2][T + 2];
    auto &factor = factors[team<T>()];
    auto &told = rows[team<T>()];
    Own<T, Inverted<H>> columns;
    MEMBERS(T, t) {
        int place = first_place<T>(t, stop - 1);
        auto &own = columns[t] = {place, task.to(stop - 1, place), task.from(stop - 1, t), {}, 0.0, {}};
        factor[0][t] = task.ask(own.from, t);
    }
    ONE_BY_ONE
    for (int j = stop - 1 + AHEAD; j >= keep; j -= AHEAD) {
        Own<T, double[AHEAD]> next;
        ALONE(T, t)
            EACH(k, AHEAD) {
                columns[t].from -= task.row();
                next[t][k] = j - AHEAD - 1 - k >= keep ? task.ask(columns[t].from, t) : 0.0;
            }
        EACH(k, AHEAD) {
            if (j >= stop)
                break;
            if (j - k < keep)
                return;
            const double *sides = factor[k], *low = sides + SIDES;
            double *row = told[k % 2] + k % 2;
            MEMBERS(T, t) {
                auto &own = columns[t];
                int side = own.place - (T - SIDES);
                row[own.place] = own.z = less<H>(side >= 0 ? sides[side] * low[0] : 0.0, low, own.known);
                push_front(own.known, own.z);
                factor[(k + 1) % AHEAD][t] = own.asked[k];
            }
            ALONE(T, t) {
                auto &own = columns[t];
                if (own.place == 0) {       // the column of this row enters: its elements are those of the row
                    own.known[0] = own.z = less<H>(low[0], low, row + 1);
                    EACH_FROM(b, 1, H)
                        own.known[b] = row[b];
                }
                task.done(j - k, own.to.at, own.place, own.z);
                own.to.template up<T>(own.place);
                own.place = place_above<T>(own.place);
            }
        }
        ALONE(T, t)
            copy(columns[t].asked, next[t]);
    }
}

// The inverse up to diagonal ND, after N solutions.
template <int H, int ND, int N, int T> struct Upwards {
    Write found;
    Read work;
    int known;

    LANE index row() const { return work.row; }
    LANE const double *from(int j, int t) const { return work.first + j * work.row + (t - SIDES + N) * work.element; }
    LANE double ask(const double *at, int t) const { return SIDES - N <= t && t <= SIDES + H ? *at : 0.0; }
    LANE Walk<double> to(int j, int place) const { return walk<T>(found.first, found.row, found.element, j, place, N); }
    LANE void done(int j, double *at, int place, double z) const
    {
        if (j < known && (place <= ND || (N > 0 && place >= T - SIDES)))
            *at = z;
    }
};

template <int H, int ND, int N, int T>
LANE void invert_rows(Write found, Read work, index keep, index known, index stop)
{
    if constexpr (T == 1) {
        invert_rows<H, ND, N>(found, work, keep, known, stop);
    } else {
        invert_columns<H, T>(Upwards<H, ND, N, T>{found, work, (int)known}, (int)keep, (int)stop);
        MEMBERS(T, t) {       // all have read the last row before a team begins another pair
        }
    }
}
