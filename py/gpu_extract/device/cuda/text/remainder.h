// Kernels: what S has beyond its band, added to the flux to first order (narrow.simd_remainder):
//
//     Q(S) - Q(B) = sum_k c_k t_k (B + t_k)^-1 E (B + t_k)^-1, E = (band of U) - U, U = sum_j G Z G^T, G = A_ij,
//
// times 1 and x. (B + t_k)^-1 1 and (B + t_k)^-1 x are there for every pole (`found`, sweeps.poles_up), and so are the
// factors of B + t_k and of the fibres that were eliminated. Vectors of a group of poles are rows of SIDES numbers, the
// pole fastest, then the fibre, or the pair of fibres.
#pragma once
#include "eliminate.h"
#include "sweeps.h"

// Which vector a lane works on, and the part of it.
struct Vector {
    index pole, lane, side, part, at, row;      // at: of row 0; row: from one to the next

    LANE Vector(index n, index lanes)
        : pole(n % Pole::GROUP), lane(n / Pole::GROUP % lanes), side(n / (Pole::GROUP * lanes) % SIDES),
          part(n / (Pole::GROUP * lanes * SIDES)), at(n % (Pole::GROUP * lanes * SIDES)),
          row(Pole::GROUP * lanes * SIDES)
    {
    }
};

// Poles of a group that a fibre has.
LANE index poles_of(const Fibre &fibre, const double *table, index group)
{
    index left = fibre[STATUS] == GOOD ? (index)table[fibre[RUNG] * Pole::ROW] - group * Pole::GROUP : 0;
    return left < 0 ? 0 : smaller(left, Pole::GROUP);
}

// What of row 0 of a vector that the poles have left: the next row is `kept` lanes further.
LANE const double *found_at(const double *found, const Vector &mine, index fibre, index lanes)
{
    return found + (mine.side * lanes + fibre) * Pole::GROUP + mine.pole;
}

// moved = G^T v of the pairs at a distance. own: rows of one integer a pair: the lane of the factor that solves for it
// (`substitute`) where j is eliminated as it stands, that in a chain, -1 where there is none; how many poles there are.
template <int H>
BLOCK(64) void carry(index n, double *moved, int *own, const double *found, const double *blocks, const double *sizes,
                     const int *depth, double *facts, int *flags, const double *table, index group, double distant,
                     index distance, index kept, index nwave, index lanes, index size)
{
    Vector mine(n, 2 * lanes);
    int q = (int)mine.part * FOUR;
    Pair<H> pair(mine.lane, blocks, sizes, depth, 0, distant, distance, lanes, size);
    index poles = pair.j < 0 ? 0 : poles_of(Fibre{facts, flags, pair.i, lanes}, table, group);
    if (q == 0 && mine.side == 0 && mine.pole == 0) {
        bool chained = distance == 1 && depth[mine.lane] > 0;
        own[mine.lane] = poles > 0 && !chained ? (int)pair.j : -1;
        own[2 * lanes + mine.lane] = poles > 0 && chained ? (int)mine.lane : -1;
        own[4 * lanes + mine.lane] = (int)poles;
    }
    if (mine.pole >= poles)
        return;
    double total[FOUR] = {};
    add_product<H>(total, pair.g, pair.column, pair.row, found_at(found, mine, pair.i, lanes),
                   kept * lanes * Pole::GROUP, q, (int)nwave);
    EACH(b, FOUR)
        if (q + b < (int)nwave)
            moved[(q + b) * mine.row + mine.at] = total[b];
}

// y = L^-1 of what is given, of the vectors of pairs that `own` has in its row `chained`. A substitution forgets half
// as fast as an elimination: two halos.
template <int H>
BLOCK(32) void substitute(index n, double *y, const double *given, const double *low, const int *halo, const int *own,
                          index chained, index nwave, index tile, index pairs, index lanes)
{
    Vector mine(n, pairs);
    index i = own[chained * pairs + mine.lane];
    Tile cut(mine.part, tile, nwave);
    if (i >= 0 && mine.pole < own[2 * pairs + mine.lane])
        forward_rows<H>(Write{y + mine.at, mine.row, 1}, Read{given + mine.at, mine.row, 1},
                        Read{low + i, (H + 1) * lanes, lanes}, cut.above(halo, i, lanes), cut.first, cut.last);
}

// x = L^-T D^-1 y, as `substitute`.
template <int H>
BLOCK(32) void resubstitute(index n, double *x, const double *y, const double *low, const int *halo, const int *own,
                            index chained, index nwave, index tile, index pairs, index lanes)
{
    Vector mine(n, pairs);
    index i = own[chained * pairs + mine.lane];
    Tile cut(mine.part, tile, nwave);
    if (i >= 0 && mine.pole < own[2 * pairs + mine.lane])
        backward_rows<H>(Write{x + mine.at, mine.row, 1}, Read{y + mine.at, mine.row, 1},
                         Read{low + i, (H + 1) * lanes, lanes}, Read{y, 0, 0}, cut.first, cut.last,
                         cut.below(halo, i, lanes));
}

// beyond = E v: what the band of U does to v at first (distance 1), less what the pairs at a distance do.
template <int H>
BLOCK(64) void take(index n, double *beyond, const double *moved, const double *found, const double *taken,
                    const double *blocks, const double *sizes, const int *depth, double *facts, int *flags,
                    const double *table, const int *halves, index group, double distant, index distance, index kept,
                    index nwave, index reach, index lanes, index size)
{
    Vector mine(n, lanes);
    index i = mine.lane;
    int p = (int)mine.part * FOUR;
    Fibre fibre{facts, flags, i, lanes};
    if (mine.pole >= poles_of(fibre, table, group))
        return;
    double total[FOUR] = {}, *to = beyond + p * mine.row + mine.at;
    LOOP(index, side, 0, 2) {
        index m = side * lanes + i;
        Pair<H> pair(m, blocks, sizes, depth, 0, distant, distance, lanes, size);
        if (pair.j >= 0)
            add_product<H>(total, pair.g, pair.row, pair.column, moved + (mine.side * 2 * lanes + m) * Pole::GROUP + mine.pole,
                           2 * mine.row, p, (int)nwave);
    }
    EACH(b, FOUR)
        if (p + b < (int)nwave)
            to[b * mine.row] = (distance > 1 ? to[b * mine.row] : 0.0) - total[b];
    if (distance > 1)
        return;
    Read u = rows_of(taken, reach + 1, i, lanes), v{found_at(found, mine, i, lanes), kept * lanes * Pole::GROUP, 1};
    LOOP(int, b, 0, FOUR)
        if (p + b < (int)nwave)
            to[b * mine.row] += times(u, v, p + b, halves[fibre[WIDTH]], (int)nwave);
}

// y = L^-1 of what is given, for every pole its own factor (sweeps.poles_down), of fibres whose band has number `width`.
template <int H>
BLOCK(32) void pole_down_again(index n, double *y, const double *given, const double *work, const int *halo, double *facts,
                               int *flags, const double *table, index group, index width, index columns, index nwave,
                               index tile, index lanes)
{
    Vector mine(n, lanes);
    Pole pole(n % (Pole::GROUP * lanes), facts, flags, table, group, width, lanes);
    Tile cut(mine.part, tile, nwave);
    if (pole.wanted)
        forward_rows<H>(Write{y + mine.at, mine.row, 1}, Read{given + mine.at, mine.row, 1},
                        Read{work + SIDES * pole.many + n % pole.many, columns * pole.many, pole.many},
                        cut.above(halo, mine.lane, lanes), cut.first, cut.last);
}

// x = L^-T D^-1 y, as `pole_down_again`.
template <int H>
BLOCK(32) void pole_up_again(index n, double *x, const double *y, const double *work, const int *halo, double *facts,
                             int *flags, const double *table, index group, index width, index columns, index nwave,
                             index tile, index lanes)
{
    Vector mine(n, lanes);
    Pole pole(n % (Pole::GROUP * lanes), facts, flags, table, group, width, lanes);
    Tile cut(mine.part, tile, nwave);
    if (pole.wanted)
        backward_rows<H>(Write{x + mine.at, mine.row, 1}, Read{y + mine.at, mine.row, 1},
                         Read{work + SIDES * pole.many + n % pole.many, columns * pole.many, pole.many}, Read{y, 0, 0},
                         cut.first, cut.last, cut.below(halo, mine.lane, lanes));
}
