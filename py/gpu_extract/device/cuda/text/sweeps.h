// Kernels: sweeps along wavelength. A fibre's rows are cut into tiles of `tile` rows; lane n works on tile n / lanes of
// fibre n % lanes. It begins as many rows before it as the matrix needs to forget (halo[n], from `settle`).
//
// Arrays with rows of numbers have the fibre (or pair of fibres, or pole) fastest. gate and `open` select the fibres or pairs
// (lanes.h: Chosen). Matrices are given by the place of their first element and the steps from fibre to fibre, from row to row
// and from element to element.
#pragma once
#include "teams.h"

// The longest halo of all tiles of a fibre, all rows if there is only one tile. It serves upwards, where none is measured.
LANE index longest(const int *halo, index fibre, index tile, index nwave, index lanes)
{
    index most = tile < nwave ? 0 : nwave;
    for (index t = 1; t * tile < nwave; t++)
        most = larger(most, (index)halo[t * lanes + fibre]);
    return most;
}

// The rows of one tile: it keeps first .. last - 1.
struct Tile {
    index number, tile, first, last, nwave;

    LANE Tile(index number, index tile, index nwave)
        : number(number), tile(tile), first(number * tile), last(first + tile < nwave ? first + tile : nwave), nwave(nwave)
    {
    }
    LANE index start(index halo) const { return first > halo ? first - halo : 0; }
    LANE index stop(index halo) const { return last + halo < nwave ? last + halo : nwave; }
    // The first row of a substitution, downwards and upwards: it forgets half as fast as an elimination.
    LANE index above(const int *halo, index fibre, index lanes) const
    {
        return number ? start(2 * longest(halo, fibre, tile, nwave, lanes)) : 0;
    }
    LANE index below(const int *halo, index fibre, index lanes) const
    {
        return stop(2 * longest(halo, fibre, tile, nwave, lanes));
    }
};

// halo = number of rows before its tile at which a lane must begin its elimination.
template <int H, int T>
TEAMS(10) void settle(index n, int *halo, const int *gate, const double *band, index open, index place, index between,
                      index row, index element, index nwave, index tile, index lanes)
{
    Chosen chosen{gate, open, lanes};
    Tile mine(n / chosen.beside(), tile, nwave);
    EACH_CHOSEN(i, chosen, n % chosen.beside())
        halo[mine.number * lanes + i] =
            (int)halo_before<H, T>(Read{band + place + i * between, row, element}, mine.first, nwave);
}

// low = factors: rows of H + 1.
template <int H, int T>
TEAMS(10) void factor(index n, double *low, const int *halo, const int *gate, const double *band, index open, index place,
                      index between, index row, index element, index nwave, index tile, index lanes)
{
    Chosen chosen{gate, open, lanes};
    Tile mine(n / chosen.beside(), tile, nwave);
    EACH_CHOSEN(i, chosen, n % chosen.beside())
        eliminate_rows<H, 0, T>(rows_of(chosen, low, H + 1, i, nwave), Read{band + place + i * between, row, element}, {}, 0.0,
                                mine.number ? mine.start(halo[mine.number * lanes + i]) : 0, mine.first, mine.last);
}

// inverse = the inverse within its band, rows of `width`, from factors.
template <int H, int T>
TEAMS(10, 92) void invert(index n, double *inverse, const double *low, const int *halo, const int *gate, index open,
                          index width, index nwave, index tile, index lanes)
{
    Chosen chosen{gate, open, lanes};
    Tile mine(n / chosen.beside(), tile, nwave);
    EACH_CHOSEN(i, chosen, n % chosen.beside())
        invert_rows<H, H, 0, T>(rows_of(chosen, inverse, width, i, nwave), rows_of(chosen, low, H + 1, i, nwave),
                          mine.first, mine.last, mine.stop(longest(halo, i, tile, nwave, lanes)));
}

// Conjugate gradients: y = L^-1 r of one fibre and tile of `fine` rows; vectors (fibres, nwave). state: rows of `facts`
// numbers for bundles of `nfibre`, the first of which is 0 once the bundle has converged. Halos are those of tiles of `tile`
// rows.
template <int H>
BLOCK(32) void precondition_down(index n, double *y, const double *r, const double *low, const int *halo,
                                 const double *state, index facts, index nfibre, index nwave, index tile, index fine,
                                 index lanes)
{
    index i = n % lanes;
    Tile mine(n / lanes, fine, nwave);
    if (state[i / nfibre * facts] != 0.0)
        forward_rows<H>(Write{y + i * nwave, 1, 1}, Read{r + i * nwave, 1, 1}, rows_of(low, H + 1, i, lanes),
                        mine.start(2 * longest(halo, i, tile, nwave, lanes)), mine.first, mine.last);
}

// z = L^-T D^-1 y, and the tile's part of r z: parts (fibres, nparts), 0 after the last tile.
template <int H>
BLOCK(32) void precondition_up(index n, double *z, double *parts, const double *y, const double *r, const double *low,
                               const int *halo, const double *state, index facts, index nfibre, index nparts, index nwave,
                               index tile, index fine, index lanes)
{
    index i = n % lanes, t = n / lanes;
    Tile mine(t, fine, nwave);
    if (state[i / nfibre * facts] == 0.0)
        return;
    double total = 0.0;
    if (mine.first < nwave)
        total = backward_rows<H>(Write{z + i * nwave, 1, 1}, Read{y + i * nwave, 1, 1},
                                 rows_of(low, H + 1, i, lanes), Read{r + i * nwave, 1, 1}, mine.first,
                                 mine.last, mine.stop(2 * longest(halo, i, tile, nwave, lanes)));
    parts[i * nparts + t] = total;
}

// The facts about a fibre: float64 numbers, and integers.
enum Fact { COND, THETA, GAMMA, FIRST_THETA, FIRST_GAMMA, FAR_THETA, FAR_SHARE, BOUND, EXCESS, ONES, CROSS, BOTH };
enum Flag { ALIVE, ACTIVE, WIDTH, RUNG, STATUS, TOO_DEEP, WANTED, BLOCK_TELLS, TELLS, NOT_WEAK, CUT_HOLDS };

struct Fibre {
    double *facts;
    int *flags;
    index i, lanes;

    LANE double &operator[](Fact fact) const { return facts[fact * lanes + i]; }
    LANE int &operator[](Flag flag) const { return flags[flag * lanes + i]; }
    LANE Fibre at(index other) const { return {facts, flags, other, lanes}; }
};

// Whether the narrow band holds for fibre i, as far as is known.
LANE bool holds(const int *flags, index i, index lanes) { return flags[STATUS * lanes + i] == GOOD; }

constexpr index QUESTIONS = 8, ASKED = 5;      // of a set; numbers of a question: b, c / bound, 1 - g, fact, value

// Sets of questions about S (device_tables), with MANY questions a lane. between = 0: the first set and, beside it, set
// `beyond` with U of farther fibres, or the second set without `beyond`; between > 0: the set of the fibre's rung alone;
// between < 0: set -between. Fibres are not cut into tiles here: the tested matrices are nearly singular on purpose, and
// forget nothing.
template <int H, int MANY, int T>
TEAMS(1) void ask(index n, double *yes, const double *band, const double *taken, const double *far, double *facts,
                  int *flags, const double *questions, index between, index beyond, index nwave, index reach, index lanes)
{
    index i = n % lanes, q = n / lanes * MANY, set = q / QUESTIONS;
    Fibre fibre{facts, flags, i, lanes};
    if (fibre[ACTIVE] == 0)
        return;
    set = between > 0 ? 1 + fibre[RUNG] : between < 0 ? -between : set == 0 ? 0 : beyond > 0 ? beyond : 1;
    const double *share = set == beyond ? far : taken;
    Question asked[MANY];
    EACH(m, MANY) {
        const double *numbers = questions + (set * QUESTIONS + q % QUESTIONS + m) * ASKED;
        asked[m] = {numbers[0], numbers[1] * fibre[BOUND], numbers[2], true};
    }
    definite_rows<H, T>(rows_of(band, reach + 1, i, lanes), rows_of(share, reach + 1, i, lanes), asked, nwave);
    EACH(m, MANY)
        yes[(q + m) * lanes + i] = asked[m].yes ? 1.0 : 0.0;
}

// A fibre's poles of a group, GROUP at most, which are processed together. table: rows of ROW numbers for every rung: number
// of poles, sum of their weights, shifts, weights; from BEYOND on the numbers for corrections (remainder.h): the largest
// correction of the flux for which they suffice; the number of sums of poles, RANK at most; for each of the first OF_BEYOND
// groups how many of its poles, the first ones, CORRECTING at most, are in the sums; and RANK parts of each of these.
struct Poles {
    static constexpr index GROUP = 16, MOST = 64, OF_BEYOND = 3, CORRECTING = 12, RANK = 6, BEYOND = 2 + 2 * MOST,
                           SUMMED = BEYOND + 2 + OF_BEYOND, ROW = SUMMED + OF_BEYOND * GROUP * RANK, ANY = -1;
    const double *rung;
    index of, first, count;      // count: poles of the group, from number `first` on
    double bound, scale;

    // of: 0 for all poles, BEYOND for those that make corrections; width: only of fibres whose band has this number, ANY: all
    LANE Poles(const Fibre &fibre, const double *table, index of, index group, index width = ANY)
        : rung(table), of(of), first(group * GROUP), count(0), bound(fibre[BOUND]), scale(bound * sqrt(bound))
    {
        if (fibre[STATUS] != GOOD || (width != ANY && fibre[WIDTH] != width))
            return;
        rung += fibre[RUNG] * ROW;
        count = smaller((index)(of ? rung[BEYOND + 2 + group] : rung[0] - (double)first), GROUP);
    }
    LANE double shift(index p) const { return rung[2 + first + p] * bound; }
    LANE double weight(index p) const { return of ? scale : rung[2 + first + p] * rung[2 + MOST + first + p] * scale; }
    // The number of sums that make corrections, and the poles' parts of them.
    LANE index sums() const { return count > 0 ? (index)rung[BEYOND + 1] : 0; }
    LANE const double *parts() const { return rung + SUMMED + first * RANK; }
};

// work: rows of `columns` numbers: forward substitutions of 1 and x, and the factor, of every pole.
template <int H, int T>
TEAMS(10) void poles_down(index n, double *work, const double *band, const double *sides, const int *halo, double *facts,
                          int *flags, const double *table, index group, index width, index columns, index nwave, index tile,
                          index reach, index lanes)
{
    index many = Poles::GROUP * lanes, p = n % Poles::GROUP, i = n % many / Poles::GROUP;
    Poles poles({facts, flags, i, lanes}, table, 0, group, width);
    if (p >= poles.count)
        return;
    Tile mine(n / many, tile, nwave);
    eliminate_rows<H, SIDES, T>(rows_of(work, columns, n % many, many), rows_of(band, reach + 1, i, lanes),
                                rows_of(sides, SIDES, i, lanes), poles.shift(p), mine.above(halo, i, lanes), mine.first,
                                mine.last);
}

// found: rows of SIDES + ND + 1 numbers: the solutions, and diagonals 0 .. ND of the inverse, of every pole.
template <int H, int ND, int T>
TEAMS(10, 84) void poles_up(index n, double *found, const double *work, const int *halo, double *facts, int *flags,
                            const double *table, index group, index width, index columns, index nwave, index tile,
                            index lanes)
{
    index many = Poles::GROUP * lanes, i = n % many / Poles::GROUP;
    if (n % Poles::GROUP >= Poles({facts, flags, i, lanes}, table, 0, group, width).count)
        return;
    Tile mine(n / many, tile, nwave);
    invert_rows<H, ND, SIDES, T>(rows_of(found, SIDES + ND + 1, n % many, many), rows_of(work, columns, n % many, many),
                                 mine.first, mine.last, mine.below(halo, i, lanes));
}

// The same for a group's poles together, in bands for which one thread has the registers: each member of a team has a pole.
// sums, rows of SIDES + ND + 1 numbers, += c t times the results of the poles, in order; found: only their solutions.
template <int H, int ND, int T>
TEAMS(1) void poles_together(index n, double *sums, double *found, const double *work, const int *halo, double *facts,
                             int *flags, const double *table, index group, index width, index columns, index nwave,
                             index tile, index lanes)
{
    constexpr int TOLD = SIDES + ND + 1, TURN = 2;      // numbers of a row; rows after which members meet
    SHARED double told[IN_BLOCK<T>][TURN * TOLD][T + 1];
    auto &shared = told[team<T>()];
    index i = n % lanes, many = Poles::GROUP * lanes;
    Poles poles({facts, flags, i, lanes}, table, 0, group, width);
    if (poles.count <= 0)
        return;
    Tile mine(n / lanes, tile, nwave);
    index stop = mine.below(halo, i, lanes), last = poles.count - 1;
    auto lane = [=](int p) { return i * Poles::GROUP + smaller((index)p, last); };      // without a pole: as the last
    Own<T, Rising<H, ND, SIDES>> rising;
    Own<T, double> weights;
    MEMBERS(T, p) {
        Read given = rows_of(work, columns, lane(p), many);
        auto &pole = rising[p] = {};
        weights[p] = p <= last ? poles.weight(p) : 0.0;
        given.get(pole.in, stop - 1);
        double out[TOLD];
        LOOP(index, up, 0, stop - mine.last)
            pole.row(out, given, stop - 1 - up, mine.first);
    }
    ONE_BY_ONE
    for (index j = mine.last - 1; j >= mine.first; j -= TURN) {
        MEMBERS(T, p) {
            Read given = rows_of(work, columns, lane(p), many);
            Write solutions = rows_of(found, TOLD, lane(p), many);
            LOOP(int, k, 0, TURN) {
                double out[TOLD];
                rising[p].row(out, given, j - k, mine.first);
                EACH(r, SIDES)
                    if (p <= last && j - k >= mine.first)
                        solutions.first[(j - k) * solutions.row + r * solutions.element] = out[r];
                EACH(a, TOLD)
                    shared[k * TOLD + a][p] = weights[p] * out[a];
            }
        }
        MEMBERS(T, p)
            for (int a = p; a < TURN * TOLD; a += T) {
                index row = j - a / TOLD;
                double &sum = sums[(row * TOLD + a % TOLD) * lanes + i];
                if (row < mine.first)
                    continue;
                double total = group > 0 ? sum : 0.0;
                EACH(q, T)
                    total += shared[a][q];
                sum = total;
            }
    }
}

// sums, rows of elements, += c t times the results of the poles of a group, in order: a lane for every element; of: 0, or
// BEYOND for the poles that make corrections, which all have the same weight. Bands before number `first` are done already.
BLOCK(128) void add_up(index n, double *sums, const double *work, double *facts, int *flags, const double *table, index of,
                       index group, index first, index lanes)
{
    Fibre fibre{facts, flags, n % lanes, lanes};
    Poles poles(fibre, table, of, group);
    if (poles.count <= 0 || fibre[WIDTH] < first)
        return;
    double total = group > 0 ? sums[n] : 0.0;
    FOUR_AT_ONCE
    for (int p = 0; p < (int)poles.count; p++)
        total += poles.weight(p) * work[n * Poles::GROUP + p];
    sums[n] = total;
}
