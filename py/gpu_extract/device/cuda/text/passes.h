// Kernels of further passes over an image: the pixels' weight from a model, and pixels that stand out from it. The rules are
// those of gpu_extract.passes. Each pixel has a lane.
//
// The light of all known bundles lies bundle by bundle in the order of the frame; numbers: places of a piece's bundles in
// this order. Pixels are (bundles, columns, rows) of the cut-outs, as everywhere. gate: one number per fibre, 0 where the
// bundle may still change.
#pragma once
#include "quality.h"

// A pixel of a piece's cut-outs.
struct Spot {
    index b;
    int column, row;
    Cut cut;

    LANE Spot(index n, const index *cuts, index rows, index columns)
        : b(n / (columns * rows)), column((int)(n / rows % columns)), row((int)(n % rows)), cut(cuts, b)
    {
    }
    LANE bool there() const { return cut.holds(row, column); }
};

LANE index place_of(const index *numbers, index b) { return numbers ? numbers[b] : b; }

// others = light of all other bundles and of all bundles' tails on a pixel, in single precision and in order of bundles.
//
// models: (known, columns, rows), tails: (known, tail_columns, tail_rows) or null: of the known bundles; windows, reaches:
// (known, 4) the pixels of models and of tails: top, left, rows, columns
BLOCK(128) void add_others(index n, float *others, const float *models, const float *tails, const index *windows,
                           const index *reaches, const index *cuts, const index *numbers, index known, index rows,
                           index columns, index tail_rows, index tail_columns)
{
    Spot mine(n, cuts, rows, columns);
    float light = 0.0f;
    int y = mine.row + mine.cut.top, x = mine.column + mine.cut.left;
    LOOP(int, s, 0, mine.there() ? (int)known : 0) {
        Cut one(windows, s), far(reaches, s);
        if (s != numbers[mine.b] && one.holds(y - one.top, x - one.left))
            light += models[(s * columns + x - one.left) * rows + y - one.top];
        if (tails && far.holds(y - far.top, x - far.left))
            light += tails[(s * tail_columns + x - far.left) * tail_rows + y - far.top];
    }
    others[n] = light;
}

// root = 1 / sigma and light = (pix - others) / sigma, sigma^2 = noise^2 + max(m, 0) + (error m)^2, m the light of all:
// passes.simd_pixels.weigh. expected, others: null in the first pass. noise: read noise of each pixel, as uploaded, or null;
// then noises has that of the amplifiers (low and high y, low and high x), which meet at split_y and split_x. bare: m is the
// pixel's own light instead (passes.outliers.by_own_light). sides: (2, rows) first and end of the bundle's own columns
// (passes.sides); pixels beyond them are masked.
template <typename Real>
BLOCK(256) void expect(index n, double *root, double *light, const float *expected, const float *others,
                       const Real *noise, const double *noises, const index *cuts, const index *places,
                       const int *sides, index size, index split_y, index split_x, index rows, index columns, double error,
                       index bare, double brightest)
{
    double before = root[n];
    if (!(before > 0.0))
        return;
    Spot mine(n, cuts, rows, columns);
    const int *own = sides + 2 * mine.b * rows + mine.row;
    if (mine.column < own[0] || mine.column >= own[rows]) {
        root[n] = light[n] = 0.0;
        return;
    }
    const index *place = places + PLACES * mine.b;
    int amplifier = (mine.row + mine.cut.top >= split_y ? 2 : 0) + (mine.column + mine.cut.left >= split_x ? 1 : 0);
    double read = noise ? (double)noise[mine.b * size + (mine.row + mine.cut.top) * place[WIDE] + mine.column + place[ASIDE]]
                        : noises[amplifier];
    float other = others ? others[n] : 0.0f;
    float m = bare ? (float)smaller(larger(light[n] / before, 0.0), brightest) : (expected ? expected[n] : 0.0f) + other;
    double now = 1.0 / sqrt(read * read + larger((double)m, 0.0) + (error * m) * (error * m));
    light[n] = (light[n] / before - other) * now;
    root[n] = now;
}

// Results of a look at a bundle: number of pixels whose rejection it changed, whether so many stand out that none is rejected.
enum Looked { CHANGES, HOPELESS, LOOKED };
// Limits of a look: see passes.outliers. WRONG: the model's possible error, as a share of the brightest light nearby. The last
// four: what a spot has beside its brightest pixel, as a share of it, in each direction.
enum Limit { FAR, PAIR, STAY, GROWN, LENIENT, WRONG, UP, ACROSS, FALLING, RISING, LIMITS };
// Marks of a pixel. The first six are counted in a bundle: stands out, by more than the model may be wrong, good, good where
// the model has all the light, high and narrow and isolated, as far below the model ...
constexpr int STANDS = 1, HIGH = 2, GOOD_PIXEL = 4, SURE = 8, SHARP = 16, BELOW = 32, COUNTED = 6;
// ... rejected before and still above, or slender where the model does not have all the light; high enough by itself.
constexpr int KEPT = 64, ALONE = 128;
constexpr int SEED = 1, STAYS = 2;          // a pixel among its neighbours
constexpr int OUT = 1, CHANGED = 2;         // a pixel in the end

// Least Poisson part of a variance; t up to which counts are Gaussian; number of Newton steps: as in passes.outliers.
constexpr double FEWEST = 0.05, GAUSSIAN = 1e-3;
constexpr int STEPS = 12;

// The Gaussian errors that are exceeded as rarely as an excess: passes.outliers.rarity.
LANE double rarity(double excess, double root, double lit)
{
    double height = excess * root, light = larger(lit, FEWEST), rest = larger(1.0 / (root * root) - light, 0.0);
    if (!(height > 0.0))
        return height;
    double t = smaller(excess / (rest + light), log(1.0 + excess / light));
    if (t < GAUSSIAN)
        return height;
    LOOP(int, k, 0, STEPS)
        t -= (rest * t + light * (exp(t) - 1.0) - excess) / (rest + light * exp(t));
    return smaller(sqrt(rest * t * t + 2.0 * light * (t * exp(t) - exp(t) + 1.0)), height);
}

// Pixels as a look sees them. own: the bundle's model; expected, others: the light in the variance, or null if all noise is
// Gaussian; ends: (2, columns) first and end of the rows whose light the model contains.
struct Neighbours {
    const double *root, *light, *limits;
    const float *own, *expected, *others;
    const int *ends;
    index rows, columns;
    int reach;
    Cut cut;

    LANE index at(int row, int column) const { return column * rows + row; }
    LANE bool good(int row, int column) const { return cut.holds(row, column) && root[at(row, column)] > 0.0; }
    LANE bool sure(int row, int column) const { return row >= ends[column] && row < ends[columns + column]; }
    LANE double excess(int row, int column) const      // over the model, 0 where there is no good pixel
    {
        if (!good(row, column))
            return 0.0;
        index n = at(row, column);
        return light[n] / root[n] - larger(own[n], 0.0f);
    }
    // inverse: 1 / error; more: light that the variance contains beyond the model's
    LANE double errors(index n, double above, double inverse, double more = 0.0) const
    {
        return expected ? rarity(above, inverse, expected[n] + (others ? others[n] : 0.0f) + more) : above * inverse;
    }
    // sure: else the errors by which a pixel stands out from both adjacent columns, as the light of no bin does:
    // outliers.Pixels.slender.
    LANE double height(int row, int column, bool sure = true) const
    {
        index n = at(row, column);
        double top = excess(row, column), inverse = root[n], more = 0.0;
        if (!sure) {
            if (!good(row, column - 1) || !good(row, column + 1))
                return 0.0;
            double beside = limits[LENIENT] * limits[ACROSS], before = root[n - rows], next = root[n + rows];
            more = larger((excess(row, column - 1) + excess(row, column + 1)) / 2.0, 0.0) / beside;
            double noise = 1.0 / (before * before) + 1.0 / (next * next) + 2.0 * beside * more;
            inverse = 1.0 / sqrt(1.0 / (inverse * inverse) + more + noise / (4.0 * beside * beside));
        }
        double brightest = 0.0;
        LOOP(int, x, larger(column - reach, 0), smaller(column + reach + 1, cut.columns)) {
            LOOP(int, y, larger(row - reach, 0), smaller(row + reach + 1, cut.rows)) {
                double value = own[at(y, x)];
                brightest = larger(brightest, value < 0.0 ? -value : value);
            }
        }
        return errors(n, top - more - limits[WRONG] * brightest, inverse, more);
    }
    LANE bool narrow(int row, int column, double top) const
    {
        bool found = false;
        LOOP(int, d, 0, 4) {
            int dy = d == 1 ? 0 : 1, dx = d == 0 ? 0 : d == 3 ? -1 : 1;
            double both = (excess(row + dy, column + dx) + excess(row - dy, column - dx)) / 2.0;
            found = found || both < limits[LENIENT] * limits[UP + d] * top;
        }
        return found;
    }
    // Whether the median of the pixels two away (the lower of two) has less than half of the excess.
    LANE bool alone(int row, int column, double top) const
    {
        int known = 0;
        LOOP(int, a, 0, 16)
            known += good(row + ring(a), column + ring((a + 12) % 16)) ? 1 : 0;
        double middle = 0.0;
        LOOP(int, a, 0, 16) {
            if (!good(row + ring(a), column + ring((a + 12) % 16)))
                continue;
            double mine = excess(row + ring(a), column + ring((a + 12) % 16));
            int below = 0;
            LOOP(int, b, 0, 16) {
                bool there = good(row + ring(b), column + ring((b + 12) % 16));
                double value = there ? excess(row + ring(b), column + ring((b + 12) % 16)) : 0.0;
                below += there && (value < mine || (value == mine && b < a)) ? 1 : 0;
            }
            middle = below == (known - 1) / 2 ? mine : middle;
        }
        return middle < 0.5 * top;
    }
    // The ring's 16 pixels are (ring(a), ring(a + 12)): -2, -2, -2, -2, -2 , -1, 0, 1, 2, 2, 2, 2, 2, 1, 0, -1.
    LANE static int ring(int a) { return a < 5 ? -2 : a < 8 ? a - 6 : a < 13 ? 2 : 14 - a; }
};

LANE Neighbours neighbours(index b, const double *root, const double *light, const float *own, const index *numbers,
                           const float *expected, const float *others, const int *ends, const double *limits,
                           const index *cuts, index rows, index columns, index reach)
{
    index first = b * columns * rows;
    return {root + first, light + first, limits, own + place_of(numbers, b) * columns * rows,
            expected ? expected + first : nullptr, others ? others + first : nullptr, ends + b * 2 * columns, rows, columns,
            (int)reach, Cut(cuts, b)};
}

// marks: of each pixel by itself; rejected: by the previous look.
BLOCK(32) void stand_out(index n, signed char *marks, const double *root, const double *light, const float *own,
                         const index *numbers, const float *expected, const float *others,
                         const signed char *rejected, const int *gate, const int *ends, const double *limits,
                         const index *cuts, index nfibre, index rows, index columns, index reach)
{
    Spot mine(n, cuts, rows, columns);
    if (gate[mine.b * nfibre])
        return;
    int found = 0, row = mine.row, column = mine.column;
    Neighbours look = neighbours(mine.b, root, light, own, numbers, expected, others, ends, limits, cuts, rows, columns,
                                 reach);
    if (look.good(row, column)) {
        bool sure = look.sure(row, column), known = rejected[n] & OUT;
        index at = look.at(row, column);
        found = GOOD_PIXEL | (sure ? SURE : 0);
        bool stands = look.light[at] - look.root[at] * look.own[at] > limits[PAIR];
        double height = stands || known ? look.height(row, column, sure) : 0.0;
        if (stands) {
            found |= STANDS | (sure && height > limits[PAIR] ? HIGH : 0);
            double top = look.excess(row, column);
            if (found & HIGH && look.narrow(row, column, top) && look.alone(row, column, top))
                found |= SHARP;
        }
        if (look.light[at] - look.root[at] * look.own[at] < -limits[PAIR])
            found |= BELOW;
        if (sure ? known && height > limits[STAY] : stands && height > limits[FAR])
            found |= KEPT;
        if (height > limits[FAR])
            found |= ALONE;
    }
    marks[n] = (signed char)found;
}

// parts (bundles, COUNTED, lookers) = how many of the pixels c, c + lookers, ... of a bundle have each of the first COUNTED
// marks.
BLOCK(128) void tally(index n, double *parts, const signed char *marks, index pixels, index lookers)
{
    index b = n / lookers, c = n % lookers;
    int total[COUNTED] = {};
    FOUR_AT_ONCE
    for (index at = c; at < pixels; at += lookers) {
        int mark = marks[b * pixels + at];
        EACH(k, COUNTED)
            total[k] += mark >> k & 1;
    }
    EACH(k, COUNTED)
        parts[(b * COUNTED + k) * lookers + c] = total[k];
}

// Whether any neighbour of a pixel has a mark.
LANE bool beside(const signed char *marks, const Spot &mine, index n, index rows, int mark)
{
    bool found = false;
    LOOP(int, dx, -1, 2) {
        LOOP(int, dy, -1, 2) {
            bool other = (dx || dy) && mine.cut.holds(mine.row + dy, mine.column + dx);
            found = found || (other && marks[n + dx * rows + dy] & mark);
        }
    }
    return found;
}

// seeds: pixels that stand out by themselves or in pairs, and those rejected before that stay.
BLOCK(128) void pair_up(index n, signed char *seeds, const signed char *marks, const int *gate, const index *cuts,
                        index nfibre, index rows, index columns)
{
    Spot mine(n, cuts, rows, columns);
    if (gate[mine.b * nfibre])
        return;
    int mark = marks[n], found = 0;
    if (mark & SHARP && (mark & ALONE || beside(marks, mine, n, rows, SHARP)))
        found |= SEED;
    if (mark & KEPT && (mark & ALONE || beside(marks, mine, n, rows, KEPT)))
        found |= STAYS;
    seeds[n] = (signed char)found;
}

// rejected: seeds, their neighbours that also lie above the model, and those that stay; none where a bundle is hopeless.
BLOCK(128) void reject(index n, signed char *rejected, const signed char *seeds, const double *root, const double *light,
                       const float *own, const index *numbers, const float *expected, const float *others,
                       const double *looks, const int *gate, const int *ends, const double *limits, const index *cuts,
                       index nfibre, index rows, index columns, index reach)
{
    Spot mine(n, cuts, rows, columns);
    if (gate[mine.b * nfibre])
        return;
    bool out = seeds[n] != 0;
    if (!out && beside(seeds, mine, n, rows, SEED)) {
        Neighbours look = neighbours(mine.b, root, light, own, numbers, expected, others, ends, limits, cuts, rows, columns,
                                     reach);
        out = look.good(mine.row, mine.column) && look.sure(mine.row, mine.column)
              && look.height(mine.row, mine.column) > limits[GROWN];
    }
    out = out && looks[mine.b * LOOKED + HOPELESS] == 0.0;
    rejected[n] = (signed char)((out ? OUT : 0) | (out != ((rejected[n] & OUT) != 0) ? CHANGED : 0));
}

// Bundle by bundle, from counts (bundles, COUNTED): whether the model must be wrong, see outliers.Pixels.contradicted. most:
// share of the good pixels; if more stand out, they must look like hits; many: if more do, they cannot be hits; narrow: least
// share of them that is sharp; low: most pixels below the model for each one above it. ...
BLOCK(32) void despair(index n, double *looks, const int *gate, const double *counts, index nfibre, double most, double many,
                       double narrow, double low)
{
    const double *seen = counts + n * COUNTED;
    if (gate[n * nfibre] || seen[0] <= most * seen[2] || seen[1] <= most * seen[3])
        return;
    if (seen[1] > many * seen[3] || seen[4] < narrow * seen[1] || seen[5] > low * seen[0])
        looks[n * LOOKED + HOPELESS] = 1.0;
}

// ... After a look: what it changed. A look that changes nothing is the last, except for one before the bundle is solved. ...
BLOCK(32) void end_look(index n, double *looks, int *gate, const double *counts, index first, index nfibre)
{
    const double *seen = counts + n * COUNTED;
    if (gate[n * nfibre])
        return;
    looks[n * LOOKED + CHANGES] = seen[1];
    LOOP(int, f, 0, (int)nfibre)
        gate[n * nfibre + f] = !first && seen[1] == 0.0;
}

// ... Before a look: whether the previous one changed nothing.
BLOCK(32) void ask_again(index n, const double *looks, int *gate, index nfibre)
{
    const double *mine = looks + n * LOOKED;
    bool done = gate[n * nfibre] || mine[CHANGES] == 0.0 || mine[HOPELESS] != 0.0;
    LOOP(int, f, 0, (int)nfibre)
        gate[n * nfibre + f] = done;
}

// The pixels that a pass has rejected, for the next one.
BLOCK(256) void recall(index n, signed char *target, const signed char *rejected) { target[n] = rejected[n] & OUT; }

// Mask rejected pixels.
BLOCK(256) void strike(index n, double *root, double *light, const signed char *rejected)
{
    if (rejected[n] & OUT)
        root[n] = light[n] = 0.0;
}

// Pixels above the expected light by more than noise, except for hits, are weighted by their own light: passes.missed.
BLOCK(64) void miss(index n, double *root, double *light, const float *expected, const float *others,
                    const signed char *rejected, const int *ends, const double *limits, const index *cuts, index rows,
                    index columns, index reach, double off)
{
    if (!(root[n] > 0.0) || rejected[n] & OUT || !(light[n] - root[n] * expected[n] > off))
        return;
    Spot mine(n, cuts, rows, columns);
    Neighbours look = neighbours(mine.b, root, light, expected, nullptr, expected, others, ends, limits, cuts, rows,
                                 columns, reach);
    if (!(look.errors(look.at(mine.row, mine.column), look.excess(mine.row, mine.column), root[n]) > off)
        || look.height(mine.row, mine.column) > off)
        return;
    double more = larger(light[n] / root[n], 0.0) - larger((double)expected[n], 0.0);
    double less = 1.0 / sqrt(1.0 + more * root[n] * root[n]);
    root[n] *= less;
    light[n] *= less;
}

// The light of a piece's bundles in single precision, in the order of the pixels, at the places in `numbers` (place_of).
BLOCK(320) void shine(index n, float *light, const index *numbers, const int *near, const int *ranges, const float *single,
                      const double *lit, const index *origins, const index *cuts, index nfibre, index nx, index ny,
                      index nwave, index rows, index columns, index fibres)
{
    Pixels mine(n, near, ranges, single, lit, origins, cuts, nfibre, (int)nx, (int)ny, nwave, rows, columns, fibres);
    float *out = light + place_of(numbers, mine.b) * columns * rows;
    EACH(c, ABREAST)
        if (c < mine.many)
            out[(mine.column + c) * rows + mine.row] = mine.within(c) ? (float)mine.light[c] : 0.0f;
}

// Rejected pixels, one bit each, 32 rows of a column in one number: (bundles, columns, words).
BLOCK(64) void pack(index n, unsigned *packed, const signed char *rejected, index rows, index words)
{
    int first = (int)(n % words) * 32;
    const signed char *mine = rejected + n / words * rows + first;
    unsigned bits = 0;
    LOOP(int, r, 0, smaller((int)rows - first, 32))
        bits |= (mine[r] & OUT ? 1u : 0u) << r;
    packed[n] = bits;
}

// x less a change of it (or null); beyond: bins that are, or were, too large for a model.
BLOCK(128) void lessen_x(index n, double *x, signed char *beyond, const double *change, double most)
{
    double value = x[n] - (change ? change[n] : 0.0);
    x[n] = value;
    beyond[n] |= !(value < most && value > -most);
}
