// Recursions along a band, row by row, by one lane. Numbers that pass from row to row stay in registers, and the next row is
// read before this one is stored.
//
// A recursion may begin anywhere: rows start .. keep - 1 are processed and not stored, so that it has forgotten where it
// began when it reaches row `keep` (doc/method-banded.md). A factor L D L^T is stored as rows of 1/D, l_1 .. l_H; bands are
// rows of the upper triangle, 0 beyond the end.
#pragma once
#include "lanes.h"

constexpr double TINY = 1e-15;      // of a bin's own diagonal: smaller pivots are rounding errors, and the bin is decoupled
constexpr int SIDES = 2;            // right-hand sides of a pole: ones and x

// The elements of an array that one lane uses: element a of row j is first[j row + a element].
template <typename Kind> struct Rows {
    Kind *first;
    index row, element;

    template <int N> LANE void get(double (&values)[N], index j) const
    {
        const double *here = first + j * row;
        EACH(a, N)
            values[a] = here[a * element];
    }
    LANE double one(index j) const { return first[j * row]; }
    LANE double at(index j, index a) const { return first[j * row + a * element]; }
    template <int N> LANE void put(const double (&values)[N], index j) const
    {
        Kind *here = first + j * row;
        EACH(a, N)
            here[a * element] = values[a];
    }
};
using Read = Rows<const double>;
using Write = Rows<double>;

// The rows of one lane in an array of rows of `width` numbers, lanes fastest.
template <typename Kind> LANE Rows<Kind> rows_of(Kind *array, index width, index lane, index lanes)
{
    return {array + lane, width * lanes, lanes};
}

// The same for fibre or pair i of those that are chosen. Arrays of listed pairs are ordered by pair, then by row, because
// neighbouring lanes do not work on neighbouring pairs.
template <typename Kind> LANE Rows<Kind> rows_of(const Chosen &chosen, Kind *array, index width, index i, index nwave)
{
    return chosen.listed() ? Rows<Kind>{array + i * nwave * width, width, 1}
                           : rows_of(array, width, i, chosen.lanes);
}

// The elements of row j of a symmetric band matrix, or of the vector that it multiplies, at distances first, first + 1, ...
// from the diagonal, after and before it; 0 beyond the ends and beyond diagonal `half`. All are read before one is used.
struct Around {
    static constexpr int PAIRS = 4;
    double after[PAIRS], before[PAIRS];

    LANE Around(const double *here, index ahead, index back, int first, int half, int j, int nwave)
    {
        EACH(b, PAIRS) {
            int a = first + b;
            after[b] = a <= half && j + a < nwave ? here[a * ahead] : 0.0;
            before[b] = a <= half && j >= a ? here[a * back] : 0.0;
        }
    }
    static LANE Around of(const Read &band, int first, int half, int j, int nwave)
    {
        return {band.first + j * band.row, band.element, band.element - band.row, first, half, j, nwave};
    }
    static LANE Around of_vector(const Read &vector, int first, int half, int j, int nwave)
    {
        return {vector.first + j * vector.row, vector.row, -vector.row, first, half, j, nwave};
    }
    LANE void add_products(double &total, const Around &x) const
    {
        EACH(b, PAIRS) {
            total += after[b] * x.after[b];
            total += before[b] * x.before[b];
        }
    }
};

// What earlier rows subtract from the next ones: rows[b][a] belongs to element a of the b-th row from here.
template <int H> struct Pending {
    double rows[H][H] = {};

    LANE void add_to(double (&row)[H + 1]) const
    {
        EACH(a, H)
            row[a] += rows[0][a];
    }
    // Subtract a finished row, unscaled and scaled by its pivot, from all that follow.
    LANE void step(const double (&row)[H + 1], const double (&low)[H + 1])
    {
        EACH_FROM(b, 1, H + 1)
            EACH(a, H + 1 - b)
                rows[b - 1][a] = fma(-low[b], row[a + b], b < H && a < H - b ? rows[b < H ? b : 0][a] : 0.0);
    }
};

template <int H> LANE void scale(double (&low)[H + 1], const double (&row)[H + 1])
{
    double inverse = 1.0 / row[0];
    low[0] = inverse;
    EACH_FROM(a, 1, H + 1)
        low[a] = row[a] * inverse;
}

// A row before its elimination: a bin whose diagonal is 0, or whose pivot is a rounding error, is decoupled.
template <int H> LANE void safe_row(double (&row)[H + 1], const Pending<H> &pending)
{
    double diagonal = row[0] = row[0] > 0.0 ? row[0] : 1.0;
    pending.add_to(row);
    row[0] = fma(-TINY, diagonal, row[0]) > 0.0 ? row[0] : diagonal;
}

// One row of a forward substitution: a right-hand side minus the contributions of earlier rows; its own contributions to later
// rows are added to `waiting`.
template <int H> LANE double before(double value, const double (&low)[H + 1], double (&waiting)[H + 1])
{
    value += waiting[0];
    EACH_FROM(b, 1, H + 1)
        waiting[b - 1] = fma(-low[b], value, waiting[b]);
    return value;
}

// Eliminate rows start .. stop - 1 of a band matrix; returns what they subtract from later rows. N > 0: the matrix + `shift`,
// of a pole, with N right-hand sides; N = 0: the matrix itself, with safe pivots. STORED: forward substitutions and the factor
// of rows from `keep` on are written to `out`, in a loop of their own; otherwise the next row is awaited where that costs no
// time.
template <int H, int N, bool STORED>
LANE Pending<H> eliminate_alone(Write out, Read band, Read sides, double shift, index start, index keep, index stop)
{
    constexpr int SOME = N > 0 ? N : 1;
    Pending<H> pending;
    double waiting[SOME][H + 1] = {}, row[H + 1], next[H + 1], asked[SOME], ahead[SOME], made[N + H + 1];
    band.get(row, start);
    if constexpr (N > 0)
        sides.get(asked, start);
    EACH(kept, STORED ? 2 : 1) {
        LOOP(index, j, kept ? keep : start, (kept || !STORED ? stop : keep)) {
            double low[H + 1];
            band.get(next, j + 1 < stop ? j + 1 : j);
            if constexpr (N > 0) {
                sides.get(ahead, j + 1 < stop ? j + 1 : j);
                pending.add_to(row);
                row[0] += shift;
            } else {
                safe_row(row, pending);
            }
            scale<H>(low, row);
            EACH(r, N)
                made[r] = before<H>(asked[r], low, waiting[r]);
            EACH(a, H + 1)
                made[N + a] = low[a];
            if (kept)
                out.put(made, j);
            pending.step(row, low);
            EACH(a, STORED ? 0 : H + 1)
                KNOWN_BY_NOW(next[a]);
            copy(row, next);
            EACH(r, N)
                asked[r] = ahead[r];
        }
    }
    return pending;
}

constexpr index FIRST_HALO = 24;         // rows; doubled until it is long enough
constexpr double FORGOTTEN = 1e-10;      // of the diagonal: how much halving a halo may change what is subtracted from it

// How many rows before row `at` an elimination must begin so that this has no effect: twice as many as give a change of
// FORGOTTEN; all of them if the matrix does not forget. nwave: rows of the matrix.
template <int H> LANE index halo_before(Read band, index at, index nwave)
{
    double before[H] = {};
    bool same = false;
    index back = FIRST_HALO;
    ONE_BY_ONE
    for (bool first = true; first || (!same && back < at); first = false) {
        back = first ? back : 2 * back;
        Pending<H> now = eliminate_alone<H, 0, false>({}, band, {}, 0.0, at > back ? at - back : 0, at, at);
        same = !first;
        EACH(b, H) {
            double diagonal = at + b < nwave ? band.one(at + b) : 0.0, taken = now.rows[b][0];
            same = same && fabs(taken - before[b]) <= FORGOTTEN * (diagonal > 0.0 ? diagonal : 1.0);
            before[b] = taken;
        }
    }
    return back < at ? back : at;
}

// Rows that a substitution of N right-hand sides reads at once, while it processes as many: a row takes less time than
// memory does.
template <int H, int N> struct Abreast {
    static constexpr int MOST = H <= 10 ? 4 : H <= 21 ? 2 : 1, MANY = MOST > 1 && N > 1 ? MOST / 2 : MOST;
    double low[MANY][H + 1], value[MANY][N];

    // Rows from `first` on, downwards or upwards, at most the last one.
    template <typename Given> LANE void ask(Read factor, Given given, index first, index last, bool down)
    {
        EACH(a, MANY) {
            index at = down ? first + a : first - a;
            at = (down ? at < last : at > last) ? at : last;
            factor.get(low[a], at);
            given.get(value[a], at);
        }
    }
};

// Forward substitution of N right-hand sides: y = L^-1 given.
template <int H, int N = 1, typename To, typename Given>
LANE void forward_rows(To y, Given given, Read low, index start, index keep, index stop)
{
    constexpr int MANY = Abreast<H, N>::MANY;
    double waiting[N][H + 1] = {};
    Abreast<H, N> here, next;
    here.ask(low, given, start, stop - 1, true);
    ONE_BY_ONE
    for (index j = start; j < stop; j += MANY) {
        next.ask(low, given, j + MANY, stop - 1, true);
        EACH(a, MANY) {
            double value[N];
            EACH(r, N)
                value[r] = before<H>(here.value[a][r], here.low[a], waiting[r]);
            if (keep <= j + a && j + a < stop)
                y.put(value, j + a);
        }
        here = next;
    }
}

// One row of a back substitution: a right-hand side, divided by its pivot, minus the contributions of later rows, the next one
// last; the result is added to `later`.
template <int H> LANE double behind(double value, const double (&low)[H + 1], double (&later)[H])
{
    UNROLLED
    for (int b = H; b > 0; b--)
        value = fma(-low[b], later[b - 1], value);
    push_front(later, value);
    return value;
}

// Back substitution of N right-hand sides from row stop - 1 up to row `keep`; rows from `known` on are not stored. Returns the
// sum of the stored rows of the first solution times those of `weights`, from the last to the first.
template <int H, int N = 1, typename To, typename Given>
LANE double backward_rows(To x, Given y, Read low, Read weights, index keep, index known, index stop)
{
    constexpr int MANY = Abreast<H, N>::MANY;
    double later[N][H] = {}, total = 0.0;
    Abreast<H, N> here, next;
    here.ask(low, y, stop - 1, keep, false);
    ONE_BY_ONE
    for (index j = stop - 1; j >= keep; j -= MANY) {
        next.ask(low, y, j - MANY, keep, false);
        EACH(a, MANY) {
            double value[N];
            EACH(r, N)
                value[r] = behind<H>(here.value[a][r] * here.low[a][0], here.low[a], later[r]);
            if (keep <= j - a && j - a < known) {
                x.put(value, j - a);
                total = fma(weights.one(j - a), value[0], total);
            }
        }
        here = next;
    }
    return total;
}

// Elements of the inverse that the next rows up need: known[p][q - p] = Z[j + 1 + p, j + 1 + q].
template <int H, int WIDE> struct Inverse {
    double known[H][WIDE] = {};

    // z_0 .. z_WIDE of the next row up (Takahashi, Fagan & Chin 1973).
    LANE void row(double (&z)[WIDE + 1], const double (&low)[H + 1])
    {
        z[0] = low[0];
        EACH_FROM(a, 1, WIDE + 1) {
            double total = 0.0;
            EACH_FROM(b, 1, H + 1)
                total = fma(-low[b], known[(a < b ? a : b) - 1][a < b ? b - a : a - b], total);
            z[a] = total;
        }
        EACH_FROM(b, 1, H + 1)
            z[0] = fma(-low[b], z[b], z[0]);
        UNROLLED
        for (int p = H - 1; p > 0; p--)
            EACH(q, WIDE - p)
                known[p][q] = known[p - 1][q];
        EACH(q, WIDE)
            known[0][q] = z[q];
    }
};

// The back substitution and inverse of a pole, or of a factor alone if N is 0, row by row: its state, and the row read ahead.
template <int H, int ND, int N> struct Rising {
    static constexpr int WIDE = H > ND ? H : ND;
    Inverse<H, WIDE> carried;
    double later[N > 0 ? N : 1][H] = {}, in[N + H + 1];

    // The N solutions, for 1 and x, and z_0 .. z_ND of the inverse in row j; reads the next row up, at least `keep`.
    LANE void row(double (&out)[N + ND + 1], Read work, index j, index keep)
    {
        double next[N + H + 1], low[H + 1], z[WIDE + 1];
        work.get(next, j > keep ? j - 1 : j);
        EACH(a, H + 1)
            low[a] = in[N + a];
        EACH(r, N)
            out[r] = behind<H>(in[r] * low[0], low, later[r]);
        carried.row(z, low);
        EACH(a, ND + 1)
            out[N + a] = z[a];
        copy(in, next);
    }
};

// Rows keep .. known - 1 of these results, from row stop - 1 on.
template <int H, int ND, int N> LANE void invert_rows(Write found, Read work, index keep, index known, index stop)
{
    Rising<H, ND, N> pole;
    double out[N + ND + 1];
    work.get(pole.in, stop - 1);
    EACH(kept, 2) {
        ONE_BY_ONE
        for (index j = (kept ? known : stop) - 1; j >= (kept ? keep : known); j--) {
            pole.row(out, work, j, keep);
            if (kept)
                found.put(out, j);
        }
    }
}
