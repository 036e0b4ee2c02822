// Kernels: the remainder of S beyond its band, added to the flux to first order (narrow.simd_remainder):
//
//     Q(S) - Q(B) = sum_k c_k t_k (B + t_k)^-1 E (B + t_k)^-1, E = (band of U) - U, U = sum_j G Z G^T, G = A_ij,
//
// times 1 and x. (B + t_k)^-1 1 and (B + t_k)^-1 x exist for every pole (`found`, sweeps.poles_up), as do the factors of
// B + t_k and of the eliminated fibres. E is applied only to a few sums of the poles of a group, and each pole's result is made
// from these (bench/half_poles.py): sum_r (sum_k a_kr (B + t_k)^-1) E (sum_k ...). Vectors of the poles of a group, or of its
// sums, are rows of SIDES numbers, the pole or sum fastest, then the fibre or the pair of fibres.
#pragma once
#include "eliminate.h"
#include "sweeps.h"

constexpr int FIVE = 5;       // bins of a lane of `carry` and `take`
constexpr int THREE = 3;      // sums of a lane of `carry` and `take`, a third of a fibre's sums apart: neighbouring lanes
                              // read neighbouring numbers

// Rows of vectors of both sides, `between` apart, of one pole or sum, or of two, which are `next` apart.
template <typename Kind> struct Sides {
    Kind *first;
    index row, between, next;

    LANE Kind &at(index j, int n) const { return first[j * row + n % SIDES * between + n / SIDES * next]; }
    template <int N> LANE void get(double (&values)[N], index j) const
    {
        EACH(n, N)
            values[n] = at(j, n);
    }
    template <int N> LANE void put(const double (&values)[N], index j) const
    {
        EACH(n, N)
            at(j, n) = values[n];
    }
};

// The vectors of pole or sum `one` of a fibre or pair that has room for `room` of them.
template <typename Kind> LANE Sides<Kind> sides_of(Kind *vectors, index one, index next, index lane, index room, index lanes)
{
    return {vectors + lane * room + one, room * lanes * SIDES, room * lanes, next};
}

// The MANY sums of a lane, of the `count` sums of a fibre. If the lane has fewer, its first one takes the place of the others;
// if it has none, there is nothing to do.
template <int MANY = THREE> struct Sums {
    static constexpr index BESIDE = Poles::RANK / MANY;
    index first, apart, count;
    bool none;

    LANE Sums(index n, index count)
        : first(n % BESIDE), apart((count + MANY - 1) / MANY), count(count), none(first >= apart)
    {
    }
    LANE bool has(index k) const { return first + k * apart < count; }
    LANE index at(index k) const { return has(k) ? first + k * apart : first; }
};

// Vectors of both sides of these sums: row j of side r of sum k is first[j row + r between + sums.at(k)].
struct Both {
    const double *first;
    index row, between;
    Sums<> sums;

    LANE Both(const double *vectors, const Sums<> &sums, index lane, index lanes)
        : first(vectors + lane * Poles::RANK), row(SIDES * lanes * Poles::RANK), between(lanes * Poles::RANK), sums(sums)
    {
    }
    LANE double at(index j, index r, index k) const { return first[j * row + r * between + sums.at(k)]; }
};

// A band matrix: element (p, p + k) is first[p diagonal + k after], or first[p diagonal + k before] if k < 0.
struct Band {
    const double *first;
    index diagonal, before, after;
    int reach;
};

// total += SIGN times a band matrix times v at FIVE bins from p on. Each element that a lane reads serves all its vectors.
template <int SIGN>
LANE void add_products(double (&total)[THREE][SIDES][FIVE], const Band &band, const Both &v, int p, int nwave)
{
    double here[THREE][SIDES][FIVE];
    int begin = p - band.reach;
    EACH(k, THREE)
        EACH(side, SIDES)
            EACH(b, FIVE)
                here[k][side][b] = 0 <= begin + b && begin + b < nwave ? v.at(begin + b, side, k) : 0.0;
    TWO_AT_ONCE
    for (int k = -band.reach; k <= band.reach; k++) {
        const double *row = band.first + p * band.diagonal + k * (k < 0 ? band.before : band.after);
        int next = p + FIVE + k;
        EACH(b, FIVE) {
            bool there = 0 <= p + b + k && p + b + k < nwave && p + b < nwave;
            double value = there ? row[b * band.diagonal] : 0.0;
            EACH(one, THREE)
                EACH(side, SIDES)
                    total[one][side][b] = fma(SIGN > 0 ? value : -value, here[one][side][b], total[one][side][b]);
        }
        EACH(one, THREE)
            EACH(side, SIDES)
                push_back(here[one][side], 0 <= next && next < nwave ? v.at(next, side, one) : 0.0);
    }
}

// to = sums of `count` vectors at FOUR bins, of which `rows` exist: element (k, t) of their parts is parts[k from + t next].
template <int TO>
LANE void add_parts(double *to, const double *given, index to_row, index given_row, const double *parts, index from,
                    index next, int count, int rows)
{
    double total[FOUR][TO] = {};
    LOOP(int, k, 0, count) {
        double value[FOUR];
        EACH(b, FOUR)
            value[b] = b < rows ? given[b * given_row + k] : 0.0;
        EACH(t, TO) {
            double part = parts[k * from + t * next];
            EACH(b, FOUR)
                total[b][t] += part * value[b];
        }
    }
    EACH(b, FOUR)
        EACH(t, TO)
            if (b < rows)
                to[b * to_row + t] = total[b][t];
}

// The sums of the vectors of a group's poles, rows of `kept` numbers; or, with `back`, the poles' vectors from those of sums.
BLOCK(128) void mix(index n, double *to, const double *given, double *facts, int *flags, const double *table, index group,
                    index back, index kept, index nwave, index lanes)
{
    index i = n % lanes, side = n / lanes % SIDES, p = n / (lanes * SIDES) * FOUR;
    Poles poles({facts, flags, i, lanes}, table, Poles::BEYOND, group);
    if (poles.sums() == 0)
        return;
    int rows = (int)smaller((index)FOUR, nwave - p);
    index first = (p * SIDES + side) * lanes + i, row = SIDES * lanes;
    if (back)
        add_parts<Poles::CORRECTING>(to + first * Poles::GROUP, given + first * Poles::RANK, row * Poles::GROUP,
                                     row * Poles::RANK, poles.parts(), 1, Poles::RANK, (int)poles.sums(), rows);
    else
        add_parts<Poles::RANK>(to + first * Poles::RANK, given + ((p * kept + side) * lanes + i) * Poles::GROUP,
                               row * Poles::RANK, kept * lanes * Poles::GROUP, poles.parts(), Poles::RANK, 1,
                               (int)poles.count, rows);
}

// moved = G^T v of the pairs at a distance. own: rows of one integer per pair: the lane of the factor with which it is solved
// (`substitute`) if j is eliminated singly, or in a chain, -1 if there is none; then the number of sums.
template <int H>
BLOCK(128) void carry(index n, double *moved, int *own, const double *mixed, const double *blocks, const double *sizes,
                     const int *depth, double *facts, int *flags, const double *table, index group, double distant,
                     index distance, index nwave, index lanes, index size)
{
    index m = n / Sums<>::BESIDE % (2 * lanes);
    int q = (int)(n / (Sums<>::BESIDE * 2 * lanes)) * FIVE;
    Pair<H> pair(m, blocks, sizes, distant, distance, lanes, size);
    index count = pair.j < 0 ? 0 : Poles({facts, flags, pair.i, lanes}, table, Poles::BEYOND, group).sums();
    Sums<> sums(n, count);
    if (q == 0 && sums.first == 0) {
        bool chained = distance == 1 && depth[m] > 0;
        own[m] = count > 0 && !chained ? (int)pair.j : -1;
        own[2 * lanes + m] = count > 0 && chained ? (int)m : -1;
        own[4 * lanes + m] = (int)count;
    }
    if (sums.none)
        return;
    double total[THREE][SIDES][FIVE] = {};
    add_products<1>(total, Band{pair.g, pair.row + pair.column, pair.row, pair.row, H}, Both(mixed, sums, pair.i, lanes), q,
                    (int)nwave);
    EACH(k, THREE)
        EACH(side, SIDES)
            EACH(b, FIVE)
                if (q + b < (int)nwave)
                    moved[(((q + b) * SIDES + side) * 2 * lanes + m) * Poles::RANK + sums.at(k)] =
                        total[k][side][b];
}

// L^-1 given or, with UP, L^-T D^-1 given: rows of a tile of both sides. It begins one halo before them, which suffices for a
// correction.
template <int H, int UP, int N>
LANE void substitute_rows(Sides<double> to, Sides<const double> given, Read low, const Tile &cut, index halo)
{
    if constexpr (UP != 0)
        backward_rows<H, N>(to, given, low, Read{low.first, 0, 0}, cut.first, cut.last, cut.stop(halo));
    else
        forward_rows<H, N>(to, given, low, cut.start(halo), cut.first, cut.last);
}

// Solve for the vectors of the pairs in row `chained` of `own`, for MANY sums: a row of the factor serves all of them.
template <int H, int UP, int MANY>
BLOCK(32) void substitute(index n, double *to, const double *given, const double *low, const int *halo, const int *own,
                          index chained, index nwave, index tile, index pairs, index lanes)
{
    index m = n / Sums<MANY>::BESIDE % pairs, i = own[chained * pairs + m];
    Sums<MANY> sums(n, own[2 * pairs + m]);
    if (i < 0 || sums.none)
        return;
    index one = sums.at(0), next = sums.at(MANY - 1) - one;
    substitute_rows<H, UP, MANY * SIDES>(
        sides_of(to, one, next, m, Poles::RANK, pairs), sides_of(given, one, next, m, Poles::RANK, pairs),
        chained ? Read{low + i * nwave * (H + 1), H + 1, 1} : rows_of(low, H + 1, i, lanes),
        Tile(n / (Sums<MANY>::BESIDE * pairs), tile, nwave), longest(halo, i, tile, nwave, lanes));
}

// beyond = E v: the band of U times v (at distance 1), minus the contributions of the pairs at each distance.
template <int H>
BLOCK(64) void take(index n, double *beyond, const double *moved, const double *mixed, const double *taken,
                    const double *blocks, const double *sizes, double *facts, int *flags, const double *table,
                    const int *halves, index group, double distant, index distance, index nwave, index reach,
                    index lanes, index size)
{
    index i = n / Sums<>::BESIDE % lanes, row = SIDES * lanes * Poles::RANK;
    int p = (int)(n / (Sums<>::BESIDE * lanes)) * FIVE;
    Fibre fibre{facts, flags, i, lanes};
    index count = Poles(fibre, table, Poles::BEYOND, group).sums();
    Sums<> sums(n, count);
    if (sums.none)
        return;
    double total[THREE][SIDES][FIVE] = {};
    bool any = distance == 1;
    if (any)
        add_products<1>(total, Band{taken + i, (reach + 1) * lanes, reach * lanes, lanes, halves[fibre[WIDTH]]},
                        Both(mixed, sums, i, lanes), p, (int)nwave);
    LOOP(index, way, 0, 2) {
        FOUND_ANEW(p);
        index m = way * lanes + i;
        Pair<H> pair(m, blocks, sizes, distant, distance, lanes, size);
        any = any || pair.j >= 0;
        if (pair.j >= 0)
            add_products<-1>(total, Band{pair.g, pair.row + pair.column, pair.column, pair.column, H},
                             Both(moved, sums, m, 2 * lanes), p, (int)nwave);
    }
    if (!any)
        return;
    double *to = beyond + p * row + i * Poles::RANK;
    EACH(k, THREE)
        EACH(side, SIDES)
            EACH(b, FIVE)
                if (p + b < (int)nwave && sums.has(k)) {
                    double *here = to + b * row + side * lanes * Poles::RANK + sums.at(k);
                    *here = (distance > 1 ? *here : 0.0) + total[k][side][b];
                }
}

// Solve for the vectors of every pole with its own factor (sweeps.poles_down), for fibres whose band has number `width`.
template <int H, int UP>
BLOCK(32) void pole_again(index n, double *to, const double *given, const double *work, const int *halo, double *facts,
                          int *flags, const double *table, index group, index width, index columns, index nwave,
                          index tile, index lanes)
{
    index one = n % Poles::CORRECTING, i = n / Poles::CORRECTING % lanes, many = Poles::GROUP * lanes;
    if (one < Poles({facts, flags, i, lanes}, table, Poles::BEYOND, group, width).count)
        substitute_rows<H, UP, SIDES>(
            sides_of(to, one, 0, i, Poles::GROUP, lanes), sides_of(given, one, 0, i, Poles::GROUP, lanes),
            Read{work + SIDES * many + i * Poles::GROUP + one, columns * many, many},
            Tile(n / (Poles::CORRECTING * lanes), tile, nwave), longest(halo, i, tile, nwave, lanes));
}
