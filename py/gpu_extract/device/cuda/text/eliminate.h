// Kernels: the share that the elimination of one fibre removes from another, for all fibres of a piece side by side.
//
// Arrays are flat with the fibre (or pair of fibres) fastest, so that neighbouring lanes read neighbouring numbers;
// element (j, n) of rows of `width` elements is array[(j width + n) lanes + lane]. Pair m < F is fibre i = m with the fibre
// `distance` below it; pair m >= F is fibre i = m - F with the one above. Fibre j is eliminated, fibre i remains. Fibre f
// belongs to bundle f // size; couplings end with the bundle.
//
// U = G Z G^T, G = A_ij, Z = A_jj^-1, is computed in steps: Z in its band (sweeps.h), then beyond it column by column, V = G Z,
// U = V G^T. gate and `wanted` select the pairs (lanes.h: Chosen): 0, all; WIDER, those in which the remaining fibre needs
// more diagonals than the others (`widen`); LISTED, those of a depth, with as many fibres beyond j that are eliminated first
// (`enlist`). With a list neighbouring lanes have the same pair.
//
// S = A - U and U are rows of `reach + 1` elements, where `reach` is the widest half-band that is tried; a narrower one,
// `half`, is their beginning.
#pragma once
#include "recursions.h"

constexpr int FOUR = 4;            // bins of a lane of transpose, rest, schur and remainder.mix
constexpr index FARTHER = 2;       // least distance of fibres whose coupling may be negligible
constexpr int STRETCHES = 16;      // of a diagonal; one lane each finds the largest element
constexpr int WIDER = -1;          // mark of a fibre that needs more diagonals of S than the narrowest band has

// The first bin of a stretch.
LANE index begins(index stretch, index nwave) { return nwave * stretch / STRETCHES; }

// The largest of a number and those of all stretches.
LANE double largest_of(double top, const double *values, index step)
{
    EACH(n, STRETCHES)
        top = larger(top, values[n * step]);
    return top;
}

// Whether fibre or pair i takes part: if its gate is `wanted`, or `wanted` is 0.
LANE bool passes(const int *gate, index i, index wanted) { return wanted == 0 || gate[i] == wanted; }

// Whether fibre j exists, in the bundle of i.
LANE bool beside(index i, index j, index lanes, index size) { return 0 <= j && j < lanes && j / size == i / size; }

// The diagonals of S that are made for a fibre: `half`, or with reaches those of the fibre, at most `half`.
LANE int reach_of(const int *reaches, index i, index half) { return reaches ? reaches[i] : (int)half; }

// The fibre that is eliminated in pair m, -1 if there is none.
LANE index other(index m, index distance, index lanes, index size)
{
    index i = m % lanes, j = m < lanes ? i - distance : i + distance;
    return beside(i, j, lanes, size) ? j : -1;
}

// The same, also -1 if its coupling is negligible.
LANE index counting(index m, const double *sizes, double distant, index distance, index lanes, index size)
{
    index i = m % lanes, j = other(m, distance, lanes, size);
    return j >= 0 && (distance == 1 || sizes[distance * lanes + smaller(i, j)] > distant) ? j : -1;
}

// Element (p, p + a), a >= 0, of a fibre's own block; and its place in the share of the fibre's pair on a side (`share`).
LANE double own_element(const double *blocks, index p, index a, index i, index hw, index lanes)
{
    return a <= hw ? blocks[(p * (2 * hw + 1) + hw + a) * lanes + i] : 0.0;
}
LANE index share_at(index a, index side, index p, index i, index nwave, index lanes)
{
    return ((2 * a + side) * nwave + p) * lanes + i;
}

// blocks: rows (d, j) of `width` elements, fibres fastest, from icov (fibres, nd, width, nwave); a lane moves FOUR bins.
BLOCK(64) void transpose(index n, double *blocks, const double *icov, index nd, index width, index nwave, index lanes)
{
    int groups = (int)(nwave + FOUR - 1) / FOUR, i = (int)(n % lanes), d = (int)(n / lanes / groups);
    int j = (int)(n / lanes % groups) * FOUR;
    const double *from = icov + (i * nd + d) * width * nwave + j;
    double *to = blocks + (d * nwave + j) * width * lanes + i;
    LOOP(int, k, 0, (int)width) {
        EACH(b, FOUR)
            if (j + b < (int)nwave)
                to[(b * width + k) * lanes] = from[k * nwave + b];
    }
}

// sides = rows of 1 (0 if a bin has no weight) and x; roots = 1 / sqrt of the diagonal of icov, 0 if that is 0.
BLOCK(64) void vectors(index n, double *sides, double *roots, const double *blocks, const double *weight, const double *x,
                       index hw, index nwave, index lanes)
{
    index i = n % lanes, j = n / lanes;
    bool alive = weight[i * nwave + j] > 0.0;
    double *side = sides + SIDES * j * lanes + i, diagonal = own_element(blocks, j, 0, i, hw, lanes);
    side[0] = alive ? 1.0 : 0.0;
    side[lanes] = alive ? x[i * nwave + j] : 0.0;
    roots[n] = diagonal > 0.0 ? 1.0 / sqrt(diagonal) : 0.0;
}

// tops[d, k, stretch, i] = largest |A_ij| of a stretch of a diagonal, j = i + FARTHER + d, relative to the blocks' diagonals.
BLOCK(64) void largest(index n, double *tops, const double *blocks, const double *roots, index nwave, index hw, index lanes,
                       index size)
{
    index width = 2 * hw + 1, i = n % lanes, part = n / lanes % STRETCHES, row = n / lanes / STRETCHES;
    index d = FARTHER + row / width, k = row % width - hw, last = smaller(begins(part + 1, nwave), nwave - k);
    double top = 0.0;
    if (beside(i, i + d, lanes, size)) {
        FOUR_AT_ONCE
        for (index j = larger(begins(part, nwave), -k); j < last; j++) {
            double value = fabs(blocks[((d * nwave + j) * width + hw + k) * lanes + i]);
            top = larger(top, value * (roots[j * lanes + i] * roots[(j + k) * lanes + i + d]));
        }
    }
    tops[n] = top;
}

// sizes[d, i] = a bound on the sums of rows and columns of the scaled A_ij, j = i + d: the sum of its diagonals' largest
// elements.
BLOCK(32) void coupling(index n, double *sizes, const double *tops, index hw, index lanes)
{
    index width = 2 * hw + 1, i = n % lanes, d = n / lanes;
    double total = 0.0;
    LOOP(index, k, d * width, (d + 1) * width)
        total += largest_of(0.0, tops + k * STRETCHES * lanes + i, lanes);
    sizes[FARTHER * lanes + n] = total;
}

// band = the block of fibre j of the pairs of a depth, minus the share of the fibre beyond it: a lane for FOUR rows.
BLOCK(64) void rest(index n, double *band, const double *blocks, const double *shares, const int *listed, index nwave,
                    index hw, index half, index lanes, index size)
{
    index parts = (nwave + FOUR - 1) / FOUR;
    int p = (int)(n % parts) * FOUR;
    Chosen pairs{listed, LISTED, 2 * lanes};
    EACH_CHOSEN(m, pairs, n / parts) {
        FOUND_ANEW(p);
        index j = other(m, 1, lanes, size);
        LOOP(index, a, 0, half + 1) {
            double own[FOUR], taken[FOUR];
            EACH(b, FOUR) {
                bool there = p + b < nwave;
                own[b] = there ? own_element(blocks, p + b, a, j, hw, lanes) : 0.0;
                taken[b] = there ? shares[share_at(a, m / lanes, p + b, j, nwave, lanes)] : 0.0;
            }
            EACH(b, FOUR)
                if (p + b < nwave)
                    band[(m * nwave + p + b) * (half + 1) + a] = own[b] - taken[b];
        }
    }
}

// Elements H + 1 .. wide of the inverse's rows from those in the band; rows have `width` numbers. A lane for C columns, from
// their diagonals upwards, with the same rows of the factor. Each row needs the results of the H rows before it.
template <int H, int C>
BLOCK(64) void extend(index n, double *inverse, const double *low, const int *gate, index wanted, index wide, index width,
                      index nwave, index lanes)
{
    Chosen chosen{gate, wanted, lanes};
    int parts = (int)(nwave + C - 1) / C, q = (int)(chosen.listed() ? n % parts : n / lanes) * C;
    EACH_CHOSEN(m, chosen, chosen.listed() ? n / parts : n % lanes) {
        FOUND_ANEW(q);
        Read factor = rows_of(chosen, low, H + 1, m, nwave);
        Write z = rows_of(chosen, inverse, width, m, nwave);
        double known[C][H];
        EACH(c, C)
            EACH(b, H) {
                int row = q + c - H + b;
                known[c][b] = row >= 0 && q + c < (int)nwave ? z.first[row * z.row + (H - b) * z.element] : 0.0;
            }
        LOOP(int, up, H + 2 - C, smaller(q, (int)wide) + 1) {
            int row = q - up;
            double of_row[H];
            EACH(b, H)
                of_row[b] = row >= 0 && row < (int)nwave ? factor.at(row, b + 1) : 0.0;
            EACH(c, C) {
                int a = up + c;
                if (a <= H || a > (int)wide || row < 0 || q + c >= (int)nwave)
                    continue;
                double total = 0.0;
                EACH(b, H)
                    total -= of_row[b] * known[c][b];
                z.first[row * z.row + a * z.element] = total;
                push_front(known[c], total);
            }
        }
    }
}

// One pair of fibres: i remains, j is eliminated, -1 if there is none or its coupling is negligible. G = A_ij:
// element (p, r) is g[p row + r column], |r - p| <= H; blocks: those of fibres at this distance.
template <int H> struct Pair {
    index i, j, row, column;
    const double *g;

    LANE Pair(index m, const double *blocks, const double *sizes, double distant, index distance, index lanes, index size)
        : i(m % lanes), j(counting(m, sizes, distant, distance, lanes, size)), row(0), column(0), g(nullptr)
    {
        if (j < 0)
            return;
        constexpr index WIDTH = 2 * H + 1;
        row = i < j ? (WIDTH - 1) * lanes : lanes;
        column = i < j ? lanes : (WIDTH - 1) * lanes;
        g = blocks + H * lanes + (i < j ? i : j);
    }
};

// The pair and block of lane n of `product` or `share`. BESIDE pairs are side by side, then follow the blocks of these pairs,
// so that a block of lanes reads the same rows of its pairs; with a list it is one pair.
constexpr int BESIDE = 32;
struct BlockOfPair {
    int block;
    index pair;

    LANE BlockOfPair(index n, int blocks, bool listed)
    {
        index of = listed ? n : n / BESIDE;
        block = (int)(of % blocks);
        pair = listed ? of / blocks : of / blocks * BESIDE + n % BESIDE;
    }
};

// V = G Z, rows of 2 H + half + 1 elements V[p, p + s] at s + H: a block of P rows and Q columns. Z: rows of `width`.
constexpr int PRODUCT_ROWS = 5, PRODUCT_COLUMNS = 15;

template <int H>
BLOCK(64) void product(index n, double *v, const double *blocks, const double *inverse, const double *sizes,
                        const int *gate, const int *reaches, index wanted, double distant, index distance, index nwave,
                        index half, index width, index lanes, index size)
{
    constexpr int P = PRODUCT_ROWS, Q = PRODUCT_COLUMNS;
    int wide = 2 * H + (int)half, groups = (wide + P + Q - 1) / Q, end = (int)nwave;
    Chosen chosen{gate, wanted, 2 * lanes};
    BlockOfPair place(n, (end + P - 1) / P * groups, chosen.listed());
    EACH_CHOSEN(m, chosen, place.pair) {
        FOUND_ANEW(place.block);
        int p = place.block / groups * P, q = p - H + place.block % groups * Q;
        int step = (int)(chosen.listed() ? 1 : lanes), next = (int)width - 1;
        Pair<H> pair(m, blocks, sizes, distant, distance, lanes, size);
        if (pair.j < 0 || q + H - p - P + 1 > 2 * H + reach_of(reaches, pair.i, half))
            continue;
        int row = (int)pair.row, column = (int)pair.column;
        const double *z = inverse + (chosen.listed() ? m * nwave * width : pair.j);
        Write made = rows_of(chosen, v, wide + 1, m, nwave);
        double sums[P][Q] = {};
        LOOP(int, r, larger(p - H, 0), smaller(p + P + H, end)) {
            double here[Q];
            EACH(b, Q) {
                int at = q + b, low = smaller(at, r), high = larger(at, r);
                bool there = low >= 0 && high < end && high - low <= wide;
                here[b] = there ? z[(low * next + high) * step] : 0.0;
            }
            EACH(a, P) {
                bool there = r - H <= p + a && p + a <= r + H && p + a < end;
                double g = there ? pair.g[(p + a) * row + r * column] : 0.0;
                EACH(b, Q)
                    sums[a][b] = fma(g, here[b], sums[a][b]);
            }
        }
        EACH(a, P) {
            EACH(b, Q) {
                int at = q + b, s = at - p - a + H;
                if (p + a < end && 0 <= s && s <= wide && at >= 0 && at < end)
                    made.first[(p + a) * made.row + s * made.element] = sums[a][b];
            }
        }
    }
}

// shares[a, side, p, i] = U[p, p + a], U = V G^T, a <= half, which the pair removes from i, 0 if it is negligible: a block of
// P rows and S columns.
constexpr int SHARE_ROWS = 8, SHARE_COLUMNS = 8;

template <int H>
BLOCK(64) void share(index n, double *shares, const double *v, const double *blocks, const double *sizes, const int *gate,
                      const int *reaches, index wanted, double distant, index distance, index nwave, index half,
                      index lanes, index size)
{
    constexpr int P = SHARE_ROWS, S = SHARE_COLUMNS;
    int wide = 2 * H + (int)half, groups = ((int)half + P + S - 1) / S, end = (int)nwave;
    Chosen chosen{gate, wanted, 2 * lanes};
    BlockOfPair place(n, (end + P - 1) / P * groups, chosen.listed());
    EACH_CHOSEN(m, chosen, place.pair) {
        FOUND_ANEW(place.block);
        int p = place.block / groups * P, t = p + place.block % groups * S;
        index i = m % lanes, side = m / lanes;
        int reach = reach_of(reaches, i, half), known = 2 * H + reach;
        if (t - p - P + 1 > reach)
            continue;
        Pair<H> pair(m, blocks, sizes, distant, distance, lanes, size);
        int row = (int)pair.row, column = (int)pair.column;
        Read mine = rows_of(chosen, v, wide + 1, m, nwave);
        int next = (int)mine.row, step = (int)mine.element;
        double sums[P][S] = {};
        LOOP(int, r, larger(t - H, 0), pair.j < 0 ? 0 : smaller(t + S + H, end)) {
            double here[P];
            EACH(a, P) {
                int s = r - p - a + H;
                here[a] = p + a < end && 0 <= s && s <= known ? mine.first[(p + a) * next + s * step] : 0.0;
            }
            EACH(b, S) {
                bool there = r - H <= t + b && t + b <= r + H && t + b < end;
                double g = there ? pair.g[(t + b) * row + r * column] : 0.0;
                EACH(a, P)
                    sums[a][b] = fma(here[a], g, sums[a][b]);
            }
        }
        EACH(a, P) {
            EACH(b, S) {
                int s = t + b - p - a;
                if (p + a < end && 0 <= s && s <= reach)
                    shares[share_at(s, side, p + a, i, nwave, lanes)] = sums[a][b];
            }
        }
    }
}

// far = `before` plus the shares of `farther` fibres on both sides; taken = U = far plus the `shares` of the next fibres;
// band = S = A - U: a lane for every bin. An array that is null counts as 0.
BLOCK(64) void schur(index n, double *far, double *taken, double *band, const double *before, const double *blocks,
                     const double *farther, const double *shares, const int *gate, const int *reaches, index wanted,
                     index nwave, index hw, index half, index reach, index lanes)
{
    index i = n % lanes, p = n / lanes;
    if (!passes(gate, i, wanted))
        return;
    half = reach_of(reaches, i, half);
    index low = share_at(0, 0, p, i, nwave, lanes), high = share_at(0, 1, p, i, nwave, lanes);
    const double *own = blocks + (p * (2 * hw + 1) + hw) * lanes + i;
    index row = p * (reach + 1) * lanes + i;
    int next = (int)(2 * nwave * lanes), step = (int)lanes;
    ONE_BY_ONE
    for (int first = 0; first <= (int)half; first += FOUR) {
        double u[FOUR], more[FOUR], whole[FOUR];
        EACH(b, FOUR) {
            int a = first + b;
            bool there = a <= (int)half;
            u[b] = there && before ? before[row + a * step] : 0.0;
            u[b] += there && farther ? farther[low + a * next] + farther[high + a * next] : 0.0;
            more[b] = there && shares ? shares[low + a * next] + shares[high + a * next] : 0.0;
            whole[b] = there && shares && a <= (int)hw ? own[a * step] : 0.0;
        }
        EACH(b, FOUR) {
            int a = first + b;
            if (a <= (int)half && far)
                far[row + a * step] = u[b];
            u[b] += more[b];
            if (a <= (int)half && shares) {
                taken[row + a * step] = u[b];
                band[row + a * step] = whole[b] - u[b];
            }
        }
    }
}

// tops = the largest element of every diagonal of S, infinite if one is not finite, followed by 1 if any bin has
// weight: rows of half + 2 for every stretch, a lane for every element.
BLOCK(64) void tops(index n, double *tops, const double *band, const double *sides, const int *gate, const int *reaches,
                    index wanted, index nwave, index half, index reach, index lanes)
{
    index i = n % lanes, a = n / lanes % (half + 2), part = n / lanes / (half + 2);
    if (!passes(gate, i, wanted))
        return;
    const double *values = a <= half ? band + a * lanes : sides;
    index step = (a <= half ? reach + 1 : SIDES) * lanes;
    double top = 0.0;
    index last = a <= half && a > reach_of(reaches, i, half) ? 0 : begins(part + 1, nwave);
    FOUR_AT_ONCE
    for (index j = begins(part, nwave); j < last; j++) {
        double value = fabs(values[j * step + i]);
        top = value < INFINITY ? larger(top, value) : INFINITY;
    }
    tops[n] = top;
}
