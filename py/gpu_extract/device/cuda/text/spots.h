// Kernels: spots of the Gauss-Hermite PSFs, the same sums as in spots.simd_spots, lanes along wavelength.
//
// A spot is hy^T G hx: profiles along y and x, and the small matrix G of Gauss-Hermite coefficients. A lane makes the spot
// of a bin from the bin's numbers: hy^T G stays in registers, and hx is computed column by column.
#pragma once
#include "image.h"
#include "normal.h"

// A bin's numbers: centre (y, x); of each component sigma y, sigma x, nsig; of the tail amp, core, xscale, yscale, index;
// then the coefficients of the first component, (nj, ni), and of the second. Components are called cores here.
constexpr int CENTRE_Y = 0, CENTRE_X = 1, CORES = 2, TAIL = 8;

// numbers = all Legendre series at TOGETHER bins, an eighth of a fibre apart: (fibres, nseries, nwave). series: (all
// fibres, nseries, ncoef); starts: each bundle's first fibre among these; basis: (ndomain, ncoef, nwave); domain: the place
// where each domain's series begin, and the end, then the series domain by domain.
constexpr int TOGETHER = 8;

template <int NCOEF>
BLOCK(128) void evaluate(index n, double *numbers, const double *series, const index *domain, const double *basis,
                         const index *starts, index nfibre, index nseries, index ndomain, index nwave)
{
    int apart = (int)(nwave + TOGETHER - 1) / TOGETHER, j = (int)(n % apart);
    index f = n / apart, known = starts[f / nfibre] + f % nfibre;
    LOOP(int, d, 0, (int)ndomain) {
        double values[NCOEF][TOGETHER];
        EACH(k, NCOEF)
            EACH(b, TOGETHER)
                values[k][b] = j + b * apart < (int)nwave ? basis[(d * NCOEF + k) * nwave + j + b * apart] : 0.0;
        LOOP(int, at, (int)domain[d], (int)domain[d + 1]) {
            int s = (int)domain[ndomain + 1 + at];
            const double *row = series + (known * nseries + s) * NCOEF;
            double total[TOGETHER] = {};
            EACH(k, NCOEF) {
                double coefficient = row[k];
                EACH(b, TOGETHER)
                    total[b] = fma(coefficient, values[k][b], total[b]);
            }
            EACH(b, TOGETHER)
                if (j + b * apart < (int)nwave)
                    numbers[(f * nseries + s) * nwave + j + b * apart] = total[b];
        }
    }
}

constexpr double ROOT_HALF = 0.70710678118654752440, DENSITY = 0.39894228040143267794;

// The integral of the normal density to u from the end on u's side. A pixel's integral is the difference between its edges,
// plus 1 if the centre lies between. It has all digits in the wings, where a difference of erf is rounding.
LANE double from_outside(double u)
{
    return (u < 0.0 ? 0.5 : -0.5) * erfc(fabs(u) * ROOT_HALF);
}
LANE double if_between(double left, double right) { return left < 0.0 && right >= 0.0 ? 1.0 : 0.0; }

// Integrals up to u of He_k times the normal density, k = 0 .. N - 1, up to constants; for k = 0 see `from_outside`.
template <int N> LANE void antiderivatives(double (&values)[N], double u)
{
    values[0] = from_outside(u);
    KNOWN_BY_NOW(values[0]);      // before anything else is begun, or the registers do not suffice
    KNOWN_BY_NOW(u);
    double density = -DENSITY * exp(-0.5 * u * u), before = 0.0, he = 1.0;
    EACH_FROM(k, 1, N) {
        values[k] = density * he;
        double next = fma(u, he, -(k - 1) * before);
        before = he;
        he = next;
    }
}

// The integrals of N terms over the pixels of one axis, one after the other.
template <int N> struct Along {
    double low[N], edge, scale, done = 0.0;      // at the lower edge of the next pixel

    LANE Along(double edge, double scale) : edge(edge), scale(scale) { antiderivatives<N>(low, edge * scale); }
    LANE void next(double (&profile)[N])
    {
        double high[N];
        done += 1.0;
        antiderivatives<N>(high, (edge + done) * scale);
        EACH(k, N) {
            profile[k] = high[k] - low[k];
            low[k] = high[k];
        }
        profile[0] += if_between(edge + (done - 1.0), edge + done);
    }
};

// Rows of a core with NJ terms along y and NI along x, hy^T G hx, of one bin, column by column. CUT: whether it is 0 where
// uy^2 + ux^2 >= nsig^2. mine: the bin's numbers; first: the core's first coefficient; y, x: the first row and column, from
// the centre. A core without terms does not exist.
template <int NJ, int NI, int CUT, int ROWS> struct CoreRows {
    double terms[NI][ROWS] = {}, far[CUT ? ROWS : 1], x, most, wide;      // hy^T G; uy^2, nsig^2, sigma x
    Along<NI> columns;

    LANE CoreRows(const double *mine, index core, index first, double y, double x, index nwave)
        : x(x), wide(mine[(CORES + 3 * core + 1) * nwave]), columns(x - 0.5, 1.0 / wide)
    {
        double high = mine[(CORES + 3 * core) * nwave], nsig = CUT ? mine[(CORES + 3 * core + 2) * nwave] : 0.0;
        double edge = y - 0.5, scale = 1.0 / high;      // edge: of the first row; arrays have a number for each edge of a row
        double density[ROWS + 1], value[ROWS + 1], he[ROWS + 1], before[ROWS + 1] = {};
        LOOP(int, r, 0, ROWS + 1) {      // not unrolled: compilers would compute all at once
            double u = (edge + r) * scale;
            push_back(density, -DENSITY * exp(-0.5 * u * u));
            push_back(value, from_outside(u));
            push_back(he, 1.0);
        }
        const double *given = mine + first * nwave;
        LOOP(int, j, 0, NJ) {      // term by term, so that each number of G is read once
            double hy[ROWS];
            EACH(r, ROWS)
                hy[r] = value[r + 1] - value[r] + (j == 0 ? if_between(edge + r, edge + (r + 1)) : 0.0);
            EACH(i, NI) {
                EACH(r, ROWS)
                    terms[i][r] = fma(given[i * nwave], hy[r], terms[i][r]);
            }
            given += NI * nwave;
            EACH(r, ROWS + 1) {
                value[r] = density[r] * he[r];
                double next = fma((edge + r) * scale, he[r], -j * before[r]);
                before[r] = he[r];
                he[r] = next;
            }
        }
        EACH(r, CUT ? ROWS : 0)
            far[CUT ? r : 0] = (y + r) / high * ((y + r) / high);
        most = nsig * nsig;
    }
    LANE void add_column(double (&total)[ROWS])
    {
        double hx[NI], own[CUT ? ROWS : 1] = {}, ux = CUT ? (x + columns.done) / wide : 0.0;
        columns.next(hx);
        EACH(i, NI)
            EACH(r, ROWS) {
                double &sum = CUT ? own[CUT ? r : 0] : total[r];
                sum = fma(terms[i][r], hx[i], sum);
            }
        EACH(r, CUT ? ROWS : 0)
            total[r] += fma(ux, ux, far[CUT ? r : 0]) >= most ? 0.0 : own[CUT ? r : 0];
    }
};
template <int CUT, int ROWS> struct CoreRows<0, 0, CUT, ROWS> {
    LANE CoreRows(const double *, index, index, double, double, index) {}
    LANE void add_column(double (&)[ROWS]) {}
};

// The power-law tail amp r2 / (core^2 + r2)^(1 + index / 2) at a pixel dy, dx from the centre; r2 is in units of its scales.
LANE double tail_at(const double *tail, double dy, double dx, index nwave)
{
    double core = tail[nwave], power = -1.0 - 0.5 * tail[4 * nwave], x = dx * tail[2 * nwave], y = dy * tail[3 * nwave];
    double r2 = x * x + y * y;
    return tail[0] * r2 * exp(power * log(core * core + r2));
}

// The spot of a bin, clipped at 0, ROWS rows at a time, column by column, and its weight and right-hand side. The sum of the
// stored spot is not 1, but 1 / scale, which every user of spots must take into account.
//
// single: the spot, white: times sqrt(ivar), both as in normal.h; scale: (fibres, nwave); sums: (2, fibres, nwave), A^T W 1
// and A^T W p of the spot with sum 1; numbers: (fibres, nseries, nwave); first, second: first coefficients of both cores;
// root, light: from whiten; gate: of fibres, not 0 if the spots are made already.
template <int NJ, int NI, int CUT, int NJ2, int NI2, int CUT2, int TAILED, int ROWS>
BLOCK(64) void make(index n, double *white, float *single, double *scale, double *sums, const double *numbers,
                    const double *root, const double *light, const int *gate, const int *y0, const int *x0,
                    const index *cuts, index first, index second, index nfibre, index nx, index ny, index nseries,
                    index nwave, index rows, index columns, index fibres)
{
    index places = places_of(nwave), f = n / places, j = n % places, bin = f * nwave + j;
    if (j >= nwave || gate[f])
        return;
    const double *mine = numbers + f * nseries * nwave + j;
    double y = y0[bin] - mine[CENTRE_Y * nwave], x = x0[bin] - mine[CENTRE_X * nwave];
    Cut cut(cuts, f / nfibre);
    int row = y0[bin] - cut.top, column = x0[bin] - cut.left, high = (int)ny;
    index place = spot_at(f, (int)j, ny * nx, nwave), pixel = (f / nfibre * columns + column) * rows + row;
    double total = 0.0, weight = 0.0, rhs = 0.0;
    LOOP(int, top, 0, high) {
        CoreRows<NJ, NI, CUT, ROWS> core(mine, 0, first, y + top, x, nwave);
        CoreRows<NJ2, NI2, CUT2, ROWS> other(mine, 1, second, y + top, x, nwave);
        LOOP(int, p, 0, (int)nx) {
            bool there = 0 <= column + p && column + p < cut.columns;
            index at = pixel + p * rows + top, to = place + (p * high + top) * SECTION;
            double values[ROWS] = {};
            core.add_column(values);
            other.add_column(values);
            UNROLLED
            for (int g = 0; g < ROWS; g += FEW) {
                double roots[FEW], lights[FEW];
                bool seen[FEW];
                EACH(r, FEW) {
                    int below = top + g + r;
                    seen[r] = there && g + r < ROWS && below < high && (unsigned)(row + below) < (unsigned)cut.rows;
                    roots[r] = seen[r] ? root[at + g + r] : 0.0;
                    lights[r] = seen[r] ? light[at + g + r] : 0.0;
                }
                EACH(r, FEW) {
                    int n = (g + r) % ROWS;
                    if (g + r >= ROWS || top + n >= high)
                        continue;
                    if (TAILED)
                        values[n] += tail_at(mine + TAIL * nwave, y + (top + n), x + p, nwave);
                    double value = larger(values[n], 0.0), whitened = seen[r] ? value * roots[r] : 0.0;
                    total += value;
                    weight = fma(whitened, roots[r], weight);
                    rhs = fma(whitened, lights[r], rhs);
                    single[to + n * SECTION] = (float)value;
                    white[to + n * SECTION] = whitened;
                }
            }
        }
        top += ROWS - 1;
    }
    double one = scale[bin] = total > 0.0 ? 1.0 / total : 0.0;
    sums[bin] = weight * one;
    sums[fibres * nwave + bin] = rhs * one;
}
