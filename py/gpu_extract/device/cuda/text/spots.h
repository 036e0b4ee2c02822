// Kernels: spots of the Gauss-Hermite PSFs, the same sums as in spots.simd_spots, lanes along wavelength.
//
// A spot is hy^T G hx: profiles along y and x, and the small matrix G of Gauss-Hermite coefficients. What lies between
// the steps is scratch of one bundle at a time, (fibres, numbers, bins), bins fastest, and stays in the device's
// second-level cache for the most part. Who works on a bin works on as much of it as its registers hold.
#pragma once
#include "image.h"
#include "normal.h"

// A bin's numbers: centre (y, x); of each core sigma y, sigma x, nsig; of the tail amp, core, xscale, yscale, index;
// then the coefficients of the first core, (nj, ni), and of the second.
constexpr int CENTRE_Y = 0, CENTRE_X = 1, CORES = 2, TAIL = 8;

// numbers = all Legendre series at TOGETHER bins, an eighth of a fibre apart: (fibres, nseries, nwave). series: (all
// fibres, nseries, ncoef); basis: (ndomain, ncoef, nwave); domain: where each one's series begin, and their end, then
// the series domain by domain.
constexpr int TOGETHER = 8;

template <int NCOEF>
BLOCK(128) void evaluate(index n, double *numbers, const double *series, const index *domain, const double *basis,
                         index begin, index nseries, index ndomain, index nwave)
{
    int apart = (int)(nwave + TOGETHER - 1) / TOGETHER, j = (int)(n % apart);
    index f = n / apart;
    LOOP(int, d, 0, (int)ndomain) {
        double values[NCOEF][TOGETHER];
        EACH(k, NCOEF)
            EACH(b, TOGETHER)
                values[k][b] = j + b * apart < (int)nwave ? basis[(d * NCOEF + k) * nwave + j + b * apart] : 0.0;
        LOOP(int, at, (int)domain[d], (int)domain[d + 1]) {
            int s = (int)domain[ndomain + 1 + at];
            const double *row = series + ((begin + f) * nseries + s) * NCOEF;
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

// Integrals up to u of He_k times the normal density, k = 0 .. N - 1, up to constants.
template <int N> LANE void antiderivatives(double (&values)[N], double u)
{
    constexpr double ROOT_HALF = 0.70710678118654752440, DENSITY = 0.39894228040143267794;
    double density = -DENSITY * exp(-0.5 * u * u), before = 0.0, he = 1.0;
    values[0] = 0.5 * erf(u * ROOT_HALF);
    EACH_FROM(k, 1, N) {
        values[k] = density * he;
        double next = fma(u, he, -(k - 1) * before);
        before = he;
        he = next;
    }
}

// profiles = integrals of the terms of one axis over `count` pixels: rows (term, pixel) from `place` on, bins fastest.
template <int N>
LANE void along(double *profiles, int count, double edge, double scale, index nwave)
{
    double low[N], high[N];
    antiderivatives<N>(low, edge * scale);
    LOOP(int, p, 0, count) {
        antiderivatives<N>(high, (edge + (p + 1)) * scale);
        EACH(k, N) {
            profiles[(k * count + p) * nwave] = high[k] - low[k];
            low[k] = high[k];
        }
    }
}

// The profiles of a core with NJ terms along y and NI along x, of one bin: (fibres, width, nwave), hy, then hx. The
// first lanes do y, the others x.
template <int NJ, int NI>
BLOCK(128) void profile(index n, double *profiles, const double *numbers, const int *y0, const int *x0, index core,
                        index ny, index nx, index width, index nseries, index nwave, index fibres)
{
    index bin = n % (fibres * nwave), f = bin / nwave, j = bin % nwave;
    const double *mine = numbers + f * nseries * nwave + j;
    double *place = profiles + f * width * nwave + j;
    if (n < fibres * nwave)
        along<NJ>(place, (int)ny, y0[bin] - mine[CENTRE_Y * nwave] - 0.5, 1.0 / mine[(CORES + 3 * core) * nwave], nwave);
    else
        along<NI>(place + NJ * ny * nwave, (int)nx, x0[bin] - mine[CENTRE_X * nwave] - 0.5,
                  1.0 / mine[(CORES + 3 * core + 1) * nwave], nwave);
}

// mixed[j nx + x] = sum_i G[j, i] hx[i, x] of one bin; first: of the core's coefficients among the numbers.
template <int NJ, int NI>
BLOCK(128) void mix(index n, double *mixed, const double *numbers, const double *profiles, index first, index ny, index nx,
                    index width, index depth, index nseries, index nwave)
{
    index f = n / nwave, j = n % nwave;
    const double *given = numbers + (f * nseries + first) * nwave + j;
    const double *hx = profiles + (f * width + NJ * ny) * nwave + j;
    double *out = mixed + f * depth * nwave + j;
    double g[NJ][NI];
    EACH(k, NJ)
        EACH(i, NI)
            g[k][i] = given[(k * NI + i) * nwave];
    LOOP(int, x, 0, (int)nx) {
        double total[NJ] = {};
        EACH(i, NI) {
            double here = hx[(i * nx + x) * nwave];
            EACH(k, NJ)
                total[k] = fma(g[k][i], here, total[k]);
        }
        EACH(k, NJ)
            out[(k * nx + x) * nwave] = total[k];
    }
}

// Some rows of a core's pixels; raw: as whitened spots (normal.h), set by the first core, added to by the second. CUT:
// whether the core is 0 where uy^2 + ux^2 >= nsig^2.
template <int NJ, int CORE, int CUT, int ROWS_TOGETHER>
BLOCK(128) void add_core(index n, double *raw, const double *numbers, const double *profiles, const double *mixed,
                         const int *y0, const int *x0, index ny, index nx, index width, index depth, index nseries,
                         index nwave, index fibres)
{
    index places = places_of(nwave), f = n / places % fibres, j = n % places, bin = f * nwave + j;
    int top = (int)(n / (fibres * places)) * ROWS_TOGETHER;
    if (j >= nwave)
        return;
    const double *hy = profiles + f * width * nwave + j, *given = mixed + f * depth * nwave + j;
    const double *mine = numbers + f * nseries * nwave + j;
    double *out = raw + spot_at(f, (int)j, ny * nx, nwave), terms[NJ][ROWS_TOGETHER];
    EACH(k, NJ)
        EACH(r, ROWS_TOGETHER)
            terms[k][r] = top + r < (int)ny ? hy[(k * ny + top + r) * nwave] : 0.0;
    LOOP(int, x, 0, (int)nx) {
        double total[ROWS_TOGETHER] = {};
        EACH(k, NJ) {
            double here = given[(k * nx + x) * nwave];
            EACH(r, ROWS_TOGETHER)
                total[r] = fma(terms[k][r], here, total[r]);
        }
        EACH(r, ROWS_TOGETHER) {
            int y = top + r;
            if (y >= (int)ny)
                continue;
            double *pixel = out + (x * (int)ny + y) * SECTION;
            if (CUT) {
                const double *size = mine + (CORES + 3 * CORE) * nwave;
                double uy = (y0[bin] - mine[CENTRE_Y * nwave] + y) / size[0];
                double ux = (x0[bin] - mine[CENTRE_X * nwave] + x) / size[nwave], most = size[2 * nwave];
                total[r] = fma(ux, ux, uy * uy) >= most * most ? 0.0 : total[r];
            }
            *pixel = CORE ? *pixel + total[r] : total[r];
        }
    }
}

// raw += amp r2 / (core^2 + r2)^(1 + index / 2), the power-law tail, r2 in units of its scales; a lane for each pixel and
// place of a bin.
BLOCK(128) void add_tail(index n, double *raw, const double *numbers, const int *y0, const int *x0, index nx, index ny,
                         index nseries, index nwave)
{
    index size = nx * ny, rest = n / SECTION, f = rest / size / sections_of(nwave);
    index j = rest / size % sections_of(nwave) * SECTION + n % SECTION;
    int p = (int)(rest % size);
    if (j >= nwave)
        return;
    const double *mine = numbers + f * nseries * nwave + j, *tail = mine + TAIL * nwave;
    double core = tail[nwave], power = -1.0 - 0.5 * tail[4 * nwave];
    double dx = (x0[f * nwave + j] - mine[CENTRE_X * nwave] + p / (int)ny) * tail[2 * nwave];
    double dy = (y0[f * nwave + j] - mine[CENTRE_Y * nwave] + p % (int)ny) * tail[3 * nwave];
    double r2 = dx * dx + dy * dy;
    raw[n] += tail[0] * r2 * exp(power * log(core * core + r2));
}

// Clip a spot at 0, give it the sum 1, and look through it at the pixels: whitened spots, weight and right side; a lane
// for each place of a bin.
//
// white: the raw spot on entry, then spot times sqrt(ivar) (normal.h); single: (fibres, ny nx, nwave), the spot; sums:
// (2, fibres, nwave), A^T W 1 and A^T W p; root, light: of whiten.
BLOCK(64) void finish(index n, double *white, float *single, double *sums, const double *root, const double *light,
                      const int *y0, const int *x0, const index *cuts, index nfibre, index nx, index ny, index nwave,
                      index rows, index columns, index fibres)
{
    index places = places_of(nwave), f = n / places, j = n % places, bin = f * nwave + j, size = ny * nx;
    if (j >= nwave)
        return;
    double *spot = white + spot_at(f, (int)j, size, nwave), total = 0.0, weight = 0.0, rhs = 0.0;
    FOUR_AT_ONCE
    for (int p = 0; p < (int)size; p++)
        total += larger(spot[p * SECTION], 0.0);
    double scale = total > 0.0 ? 1.0 / total : 0.0;
    Cut cut(cuts, f / nfibre);
    int top = y0[bin] - cut.top, left = x0[bin] - cut.left;
    float *kept = single + f * size * nwave + j;
    index begin = f / nfibre * columns * rows;
    FOUR_AT_ONCE
    for (int p = 0, y = 0, x = 0; p < (int)size; p++) {
        bool there = cut.holds(top + y, left + x), last = y == (int)ny - 1;
        index at = begin + (left + x) * rows + top + y;
        double value = larger(spot[p * SECTION], 0.0) * scale, r = there ? root[at] : 0.0, l = there ? light[at] : 0.0;
        kept[(y * nx + x) * nwave] = (float)value;
        spot[p * SECTION] = value = there ? value * r : 0.0;
        weight += value * r;
        rhs += value * l;
        y = last ? 0 : y + 1;
        x += last;
    }
    sums[bin] = weight;
    sums[fibres * nwave + bin] = rhs;
}
