// Kernels: the model on the pixels, chi2pix and pixmask_fraction.
//
// A pixel gathers the light of the spots that touch it, fibre by fibre and bin by bin. Nothing is scattered, so no two
// lanes write to the same place. Pixels of a bundle's cut-out are (columns, rows), rows fastest; spots and their scale are as
// in normal.h; positions (fibres, nwave); cuts (bundles, 4).
#pragma once
#include "image.h"
#include "normal.h"

// Find the bins of a fibre that touch a row of the cut-out: ranges (2, fibres, rows), the first bin and one past the last.
// Rows ascend or descend along wavelength. A lane for each fibre and row.
BLOCK(128) void bins_of_row(index n, int *ranges, const int *y0, const index *cuts, index nfibre, index ny, index nwave,
                            index rows, index fibres)
{
    index f = n / rows;
    const int *tops = y0 + f * nwave;
    int y = (int)(n % rows) + Cut(cuts, f / nfibre).top;
    bool up = tops[nwave - 1] >= tops[0];
    EACH(end, 2) {
        // Bins before `low` are wholly before the row (end 0), or begin before or on it (end 1), in the trace's order.
        int low = 0, high = (int)nwave, size = up == (end == 0) ? (int)ny : 0;
        ONE_BY_ONE
        while (low < high) {
            int middle = (low + high) / 2;
            bool before = (tops[middle] + size <= y) == up;
            low = before ? middle + 1 : low;
            high = before ? high : middle;
        }
        ranges[end * fibres * rows + n] = low;
    }
}

// near = for every ABREAST adjacent pixels of a row of a cut-out, the first fibre of the bundle that may touch one, plus NEAR
// times one past the last. ranges: (2, fibres, rows), bins of every fibre that touch the row; the columns of all their spots
// are examined.
constexpr int NEAR = 1 << 15;
constexpr int ABREAST = 4;      // pixels of one lane of project and chi_square

LANE index groups_of(index columns) { return (columns + ABREAST - 1) / ABREAST; }

BLOCK(32) void near_fibres(index n, int *near, const int *ranges, const int *x0, const index *cuts, index nfibre, index nx,
                           index nwave, index rows, index columns, index fibres)
{
    index b = n / rows;
    int row = (int)(n % rows), groups = (int)groups_of(columns);
    Cut cut(cuts, b);
    int *mine = near + b * groups * rows + row;
    LOOP(int, c, 0, groups)
        mine[c * rows] = 0;
    LOOP(int, k, 0, (int)nfibre) {
        index f = b * nfibre + k;
        int first = ranges[f * rows + row], last = ranges[(fibres + f) * rows + row];
        int low = (int)columns, high = 0;
        LOOP(int, j, first, last) {
            int left = x0[f * nwave + j] - cut.left;
            low = left < low ? left : low;
            high = left + (int)nx > high ? left + (int)nx : high;
        }
        low = low > 0 ? low : 0;
        high = high < (int)columns ? high : (int)columns;
        ONE_BY_ONE
        for (int c = low / ABREAST; c * ABREAST < high; c++) {
            int before = mine[c * rows];
            mine[c * rows] = (before ? before % NEAR : k) + (k + 1) * NEAR;
        }
    }
}

// The numbers of a bin for Pixels: lit = x scale, origins = y0 and x0 in one number.
BLOCK(128) void join(index n, double *lit, index *origins, const double *scale, const double *x, const int *y0, const int *x0)
{
    lit[n] = x[n] * scale[n];
    origins[n] = y0[n] * (1ll << 32) + (unsigned)x0[n];
}

// The pixels of lane n: ABREAST of row `row` of bundle b, from `column` on; light: A x at them. The numbers of FEW bins are
// read before any is used.
struct Pixels {
    index b;
    int place, column, row, many;
    Cut cut;
    double light[ABREAST] = {};

    LANE Pixels(index n, const int *near, const int *ranges, const float *single, const double *lit, const index *origins,
                const index *cuts, index nfibre, int nx, int ny, index nwave, index rows, index columns, index fibres)
        : b(n / (groups_of(columns) * rows)), place((int)(n % (groups_of(columns) * rows))),
          column(place / (int)rows * ABREAST), row(place % (int)rows), many((int)columns - column), cut(cuts, b)
    {
        int y = row + cut.top, at = column + cut.left, around = row < cut.rows ? near[n] : 0, stop = around / NEAR;
        LOOP(int, k, around % NEAR, stop) {
            index f = b * nfibre + k;
            int first = ranges[f * rows + row], last = ranges[(fibres + f) * rows + row];
            const float *spots = single + spot_at(f, 0, nx * ny, nwave);
            const index bins = f * nwave;
            ONE_BY_ONE
            for (int begin = first; begin < last; begin += FEW) {
                double values[FEW];
                float here[FEW][ABREAST];
                EACH(b, FEW) {
                    index j = begin + b < last ? begin + b : begin, origin = origins[bins + j];
                    int right = at - (int)origin, below = y - (int)(origin >> 32);
                    int pixel = (int)spot_at(0, (int)j, nx * ny, nwave) + (right * ny + below) * SECTION;
                    values[b] = begin + b < last ? lit[bins + j] : 0.0;
                    EACH(c, ABREAST)
                        here[b][c] = (unsigned)(right + c) < (unsigned)nx ? spots[pixel + c * ny * SECTION] : 0.0f;
                }
                EACH(b, FEW)
                    EACH(c, ABREAST)
                        light[c] = fma(values[b], (double)here[b][c], light[c]);
            }
        }
    }
    LANE bool within(int c) const { return row < cut.rows && column + c < cut.columns; }
};

// The model image in the host's order: (bundles, rows, columns); 0 beyond the cut-out.
BLOCK(256) void project(index n, double *model, const int *near, const int *ranges, const float *single, const double *lit,
                        const index *origins, const index *cuts, index nfibre, index nx, index ny, index nwave, index rows,
                        index columns, index fibres)
{
    Pixels mine(n, near, ranges, single, lit, origins, cuts, nfibre, (int)nx, (int)ny, nwave, rows, columns, fibres);
    EACH(c, ABREAST)
        if (c < mine.many)
            model[(mine.b * rows + mine.row) * columns + mine.column + c] = mine.within(c) ? mine.light[c] : 0.0;
}

// chi = (pix - model)^2 W' of a pixel, 1/W' = 1/ivar + (psferr model)^2; -1 if it is masked.
BLOCK(256) void chi_square(index n, double *chi, const double *root, const double *light, const int *near,
                           const int *ranges, const float *single, const double *lit, const index *origins,
                           const index *cuts, index nfibre, index nx, index ny, index nwave, index rows, index columns,
                           index fibres, double psferr)
{
    Pixels mine(n, near, ranges, single, lit, origins, cuts, nfibre, (int)nx, (int)ny, nwave, rows, columns, fibres);
    EACH(c, ABREAST) {
        if (c >= mine.many)
            continue;
        index at = (mine.b * columns + mine.column + c) * rows + mine.row;
        double r = root[at], scaled = r * mine.light[c], difference = light[at] - scaled, error = psferr * scaled;
        chi[at] = !(r > 0.0) ? -1.0 : mine.within(c) ? difference * difference / fma(error, error, 1.0) : 0.0;
    }
}

// One kept bin: chi2pix = A^T chi / A^T good and pixmask_fraction = 1 - A^T good, 1 exactly without a good pixel.
BLOCK(64) void weigh(index n, double *chi2pix, double *fraction, const double *chi, const float *single,
                     const double *scale, const int *y0, const int *x0, const index *cuts, index nfibre, index nx,
                     index ny, index nwave, index nout, index begin, index rows, index columns)
{
    index f = n / nout, b = f / nfibre;
    int j = (int)(n % nout + begin), high = (int)ny;
    Cut cut(cuts, b);
    int top = y0[f * nwave + j] - cut.top, left = x0[f * nwave + j] - cut.left;
    const float *spot = single + spot_at(f, j, nx * ny, nwave);
    const double *pixels = chi + b * columns * rows;
    double total = 0.0, seen = 0.0;
    LOOP(int, x, larger(-left, 0), smaller(cut.columns - left, (int)nx)) {
        const double *column = pixels + (left + x) * (int)rows + top;
        ONE_BY_ONE
        for (int first = 0; first < high; first += FEW) {
            double here[FEW], values[FEW];
            EACH(r, FEW) {
                int y = first + r;
                here[r] = y < high && (unsigned)(top + y) < (unsigned)cut.rows ? column[y] : -1.0;
                values[r] = y < high ? (double)spot[(x * high + y) * SECTION] : 0.0;
            }
            EACH(r, FEW) {
                double value = here[r] >= 0.0 ? values[r] : 0.0;
                total = fma(value, here[r], total);
                seen += value;
            }
        }
    }
    double unseen = 1.0 - seen * scale[f * nwave + j];
    chi2pix[n] = seen > 0.0 ? total / seen : 0.0;
    fraction[n] = seen > 0.0 ? (unseen < 0.0 ? 0.0 : unseen > 1.0 ? 1.0 : unseen) : 1.0;
}
