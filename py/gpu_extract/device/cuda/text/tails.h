// Kernels: tails of spots beyond their stamps, as in passes.crosstalk, and their share in spectra.
//
// Sources are spots, or fewer sources that stand for several spots each: (fibres, sources), in order along a trace. A tail is
// a table of its height against r2 for every STRETCH sources of a fibre, first beyond the stamp, then on it. Pixels, or nodes
// of a grid of every n-th pixel, are (bundles, columns, rows) of windows that reach beyond the cut-outs.
#pragma once
#include "smooth.h"

// Of a bundle, for its tables: distance between nodes, r2 below which a tail's smooth part is its Taylor polynomial, r2 at
// which the tail has faded out.
enum Ruler { NODE, JOIN, END_R2, RULERS };
// Of a source, in steps of the grid: place, squared scales, first row and column of its stamp; amplitude.
enum Source { SOURCE_Y, SOURCE_X, SCALE_Y, SCALE_X, FIRST_ROW, FIRST_PIXEL, AMPLITUDE, SOURCES };
constexpr int STRETCH = 128;

// tables (groups, 2, nodes) = beyond the stamp `whole` times the tail plus `smooth` times its smooth part; on the stamp `held`
// times the smooth part. shapes (groups, 2): squared core, power; rulers: (bundles, RULERS); fade: 1 - FADE^2 of crosstalk.
BLOCK(64) void tabulate(index n, double *tables, const double *shapes, const double *rulers, index nodes, index groups,
                        double fade, double whole, double smooth, double held)
{
    index group = n / nodes, node = n % nodes;
    const double *ruler = rulers + group / groups * RULERS;
    double core = shapes[2 * group], power = shapes[2 * group + 1], r2 = ruler[NODE] * node, join = ruler[JOIN];
    double tail = r2 / pow(core + r2, power), inner = tail;
    if (r2 < join) {
        double one = pow(core + join, 1.0 - power), other = -core * pow(core + join, -power), by = 1.0, total = 0.0;
        LOOP(int, k, 0, 4) {
            total += (one + other) * by;
            by *= (r2 - join) / (k + 1);
            one *= -(power - 1.0 + k) / (core + join);
            other *= -(power + k) / (core + join);
        }
        inner = total;
    }
    double s = (ruler[END_R2] - r2) / fade / ruler[END_R2];
    s = smaller(larger(s, 0.0), 1.0);
    double fading = s * s * (s * s) * (35.0 - s * (84.0 - s * (70.0 - 20.0 * s)));
    tables[group * 2 * nodes + node] = (whole * tail + smooth * inner) * fading;
    tables[(group * 2 + 1) * nodes + node] = held * inner * fading;
}

// The sum over a spot's pixels on its bundle's cut-out of its light times `value` of a pixel, a function of the pixel's place
// in arrays, row and column.
template <typename Value>
LANE double sum_of_spot(const float *single, index spot, int y0, int x0, const Cut &cut, index nx, index ny, index rows,
                        index columns, index b, Value value)
{
    int top = y0 - cut.top, left = x0 - cut.left, high = (int)ny;
    double total = 0.0;
    LOOP(int, x, larger(-left, 0), smaller(cut.columns - left, (int)nx)) {
        LOOP(int, y, larger(-top, 0), smaller(cut.rows - top, high)) {
            int row = top + y, column = left + x;
            total += value((b * columns + column) * rows + row, row, column) * single[spot + (x * high + y) * SECTION];
        }
    }
    return total;
}

// share = share of each spot's light that falls on good pixels.
BLOCK(64) void share_good(index n, double *share, const double *root, const float *single, const double *scale,
                          const int *y0, const int *x0, const index *cuts, index nfibre, index nx, index ny, index nwave,
                          index rows, index columns)
{
    index f = n / nwave, b = f / nfibre;
    Cut cut(cuts, b);
    share[n] = scale[n] * sum_of_spot(single, spot_at(f, (int)(n % nwave), nx * ny, nwave), y0[n], x0[n], cut, nx, ny,
        rows, columns, b, [=](index at, int, int) { return root[at] > 0.0 ? 1.0 : 0.0; });
}

// y = the part of spectra x of which tails are made, as in variance.trusted; the first (fibres, nwave) of known are weights.
BLOCK(64) void trust(index n, double *y, const double *x, const double *share, const double *known, const double *icov,
                     index nd, index hw, index nwave, double half, double wings)
{
    index f = n / nwave, first = f * nwave;
    int j = (int)(n - first), end = (int)nwave;
    auto lit = [=](int i) { return known[first + i] > 0.0 && share[first + i] >= wings; };
    if (share[n] >= half || !lit(j)) {
        y[n] = share[n] >= half ? x[n] : 0.0;
        return;
    }
    double light = own_row(icov, f, j, nd, (int)hw, end, [=](int i) { return lit(i) ? x[first + i] : 0.0; });
    double all = own_row(icov, f, j, nd, (int)hw, end, [=](int i) { return lit(i) ? 1.0 : 0.0; });
    y[n] = all > 0.0 ? light / all : 0.0;
}

// strengths = of each source: `sign` times its amplitude times the photons of the bins that it stands for, in the stamps'
// normalisation. before: photons to subtract, or null. weights (bundles, most, taps): weight in source s of the bin
// first + every (s - tap); together: `every` of each bundle.
BLOCK(64) void pool(index n, double *strengths, const double *x, const double *before, const double *scale,
                    const double *sources, const double *weights, const index *together, index nfibre, index most,
                    index taps, index count, index nwave, index all, double sign)
{
    index f = n / count, s = n % count, b = f / nfibre, every = together[b];
    const double *mine = weights + b * most * taps;
    double total = 0.0;
    LOOP(index, tap, 0, taps) {
        LOOP(index, first, 0, every) {
            index node = s - tap, j = node * every + first, at = f * nwave + j;
            if (node < 0 || j >= nwave)
                continue;
            total += (before ? x[at] - before[at] : x[at]) * scale[at] * mine[first * taps + tap];
        }
    }
    strengths[n] = sign * total * sources[AMPLITUDE * all + n];
}

// light = the tails at a node. ranges (2, fibres, rows): first and end of the sources that reach a row; outer: their reach;
// tall, wide: size of a stamp, all in nodes; stamped: whether there are stamps; groups: of a bundle.
BLOCK(64) void gather_tails(index n, double *light, const double *strengths, const double *sources, const double *tables,
                      const double *rulers, const int *ranges, index nfibre, index count, index groups, index nodes,
                      index rows, index columns, index fibres, double outer, double tall, double wide, index stamped)
{
    index b = n / (columns * rows), all = fibres * count;
    int row = (int)(n % rows), column = (int)(n / rows % columns);
    double total = 0.0, per_node = 1.0 / rulers[b * RULERS + NODE];
    LOOP(index, f, b * nfibre, (b + 1) * nfibre) {
        LOOP(index, s, f * count + ranges[f * rows + row], f * count + ranges[(fibres + f) * rows + row]) {
            double dy = row - sources[SOURCE_Y * all + s], x = sources[SOURCE_X * all + s], strength = strengths[s];
            double dy2 = dy * dy, chord = sqrt(larger(outer * outer - dy2, 0.0)), top = sources[FIRST_ROW * all + s];
            if (strength == 0.0 || column < x - chord || column > x + chord)
                continue;
            double left = sources[FIRST_PIXEL * all + s], dx = column - x;
            bool held = stamped && row >= top && row < top + tall && column >= (int)left && column < (int)(left + wide);
            double node = (dx * dx * sources[SCALE_X * all + s] + dy2 * sources[SCALE_Y * all + s]) * per_node;
            int low = (int)smaller(node, (double)(nodes - 2));
            double share = node - low;
            index group = b * groups + (f - b * nfibre) * (groups / nfibre) + s % count / STRETCH;
            const double *table = tables + (group * 2 + (held ? 1 : 0)) * nodes + low;
            total += strength * (table[0] * (1.0 - share) + table[1] * share);
        }
    }
    light[n] = total;
}

// tails = `fine` plus cubics through `coarse`, or null: a grid of every n-th pixel, n = `every`, with node (1, 1) at the first
// pixel. added: whether to add this to what is there. weights: (every, 4).
BLOCK(128) void enlarge(index n, float *tails, const double *fine, const double *coarse, const double *weights,
                        const index *numbers, index every, index coarse_rows, index coarse_columns, index rows,
                        index columns, index added)
{
    index b = n / (columns * rows), column = n / rows % columns, row = n % rows;
    const double *wy = weights + row % every * 4, *wx = weights + column % every * 4;
    double total = 0.0;
    LOOP(int, i, 0, coarse ? 4 : 0) {
        const double *node = coarse + ((b * coarse_columns + column / every + i) * coarse_rows + row / every);
        total += wx[i] * (wy[0] * node[0] + wy[1] * node[1] + wy[2] * node[2] + wy[3] * node[3]);
    }
    float *out = tails + (place_of(numbers, b) * columns + column) * rows + row;
    float light = (float)(fine[n] + total);
    *out = added ? *out + light : light;
}

// The tails on a pixel of the cut-out; corners (bundles, 2): y and x of their windows on the CCD.
LANE double tails_on(const float *tails, const index *numbers, const index *corners, const Cut &cut, index b, int row,
                     int column, index rows, index columns)
{
    index y = row + cut.top - corners[2 * b], x = column + cut.left - corners[2 * b + 1];
    return tails[(place_of(numbers, b) * columns + x) * rows + y];
}

// sums = A^T W tails, 0 where a bin has no weight (the first row of known).
BLOCK(64) void sum_under(index n, double *sums, const float *tails, const index *numbers, const index *corners,
                         const double *root, const float *single, const double *scale, const double *known, const int *y0,
                         const int *x0, const index *cuts, index nfibre, index nx, index ny, index nwave, index rows,
                         index columns, index tail_rows, index tail_columns)
{
    index f = n / nwave, b = f / nfibre;
    Cut cut(cuts, b);
    double total = sum_of_spot(single, spot_at(f, (int)(n % nwave), nx * ny, nwave), y0[n], x0[n], cut, nx, ny, rows,
        columns, b, [=](index at, int row, int column) {
            double light = tails_on(tails, numbers, corners, cut, b, row, column, tail_rows, tail_columns);
            return root[at] * root[at] * light;
        });
    sums[n] = known[n] > 0.0 ? total * scale[n] : 0.0;
}

// Subtract the tails from the pixels.
BLOCK(128) void dim(index n, double *light, const double *root, const float *tails, const index *corners,
                    const index *cuts, index rows, index columns, index tail_rows, index tail_columns)
{
    Spot mine(n, cuts, rows, columns);
    if (mine.there())
        light[n] -= root[n] * tails_on(tails, nullptr, corners, mine.cut, mine.b, mine.row, mine.column, tail_rows,
                                       tail_columns);
}
