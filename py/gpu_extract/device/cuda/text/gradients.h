// Kernels: conjugate gradients for all bundles of a piece at once, preconditioned by the fibres' own blocks.
//
// Each bundle converges at its own pace: its state says whether it still iterates, and the lanes of one that has converged
// return at once, so that a fixed number of iterations can be queued without asking the device. Scalars are never on the
// host. The preconditioner's recursions along wavelength are in sweeps.h. Vectors are (fibres, nwave).
#pragma once
#include "normal.h"

// A bundle's state: whether it iterates (1 or 0), r M^-1 r, beta, iterations, floor, smallest r M^-1 r, iterations without a
// smaller one, solutions of the piece for which too few iterations were queued.
enum State { MOVES, NORM, BETA, DONE, FLOOR, BEST, STALLED, UNDONE, STATE };
constexpr int PATIENCE = 5, CLOSE = 10, VECTORS = 6;     // an error of CLOSE times the aim is small enough

LANE double sum_of(const double *values, index count)
{
    double total = 0.0;
    FOUR_AT_ONCE
    for (int i = 0; i < (int)count; i++)
        total += values[i];
    return total;
}

// Sums of parts, in order, or the largest of them and 0.
BLOCK(32) void add_parts(index n, double *whole, const double *parts, index count, index largest)
{
    double total = 0.0;
    FOUR_AT_ONCE
    for (int i = 0; i < (int)count; i++) {
        double part = parts[n * count + i];
        total = largest ? larger(total, part) : total + part;
    }
    whole[n] = total;
}

// Set the vectors before the first iteration: r = rhs, all others 0; vectors: (VECTORS, fibres, nwave), r is the first.
BLOCK(128) void begin(index n, double *vectors, const double *rhs, index bins)
{
    EACH(v, VECTORS)
        vectors[v * bins + n] = v > 0 ? 0.0 : rhs[n];
}

// Set the states before the first `judge`: every bundle iterates, except those that are solved already, whose fibres have a
// gate that is not 0. again: not the first solution of the piece. A solution counts as undone until `judge` ends it.
BLOCK(32) void start(index n, double *state, const int *gate, index again, index nfibre)
{
    double *mine = state + n * STATE, undone = again ? mine[UNDONE] : 0.0;
    mine[MOVES] = 0.0;
    EACH(s, gate[n * nfibre] ? 0 : STATE)
        mine[s] = s == MOVES ? 1.0 : s == DONE ? -1.0 : s == UNDONE ? undone + 1.0 : 0.0;
}

// Update a bundle's state after an iteration, or before the first, and decide whether it continues. sqrt(norm) is the error in
// sigma up to the coupling between fibres: norm = r M^-1 r, M: the fibres' own blocks. If strong couplings make the iteration
// long, the norm may grow for many steps, so a bundle that stalls continues unless it is close. dots, curvatures: r M^-1 r
// and p q of every fibre.
BLOCK(32) void judge(index n, double *state, const double *dots, const double *curvatures, index nfibre, double tolerance)
{
    double *mine = state + n * STATE;
    bool first = mine[DONE] < 0.0;
    if (mine[MOVES] == 0.0)
        return;
    if (first || sum_of(curvatures + n * nfibre, nfibre) > 0.0) {
        double norm = sum_of(dots + n * nfibre, nfibre), error = sqrt(norm);
        if (first) {
            mine[FLOOR] = 1e-15 * error;
        } else {
            mine[BETA] = norm / mine[NORM];
            mine[STALLED] = norm < mine[BEST] ? 0.0 : mine[STALLED] + 1.0;
        }
        mine[BEST] = first ? norm : smaller(mine[BEST], norm);
        mine[NORM] = norm;
        mine[DONE] += 1.0;
        double aim = larger(tolerance, mine[FLOOR]);
        if (error > aim && (mine[STALLED] < PATIENCE || error > CLOSE * aim))
            return;
    }
    mine[MOVES] = 0.0;
    mine[UNDONE] -= 1.0;
}

// The direction and its image, p = z + beta p and q = r + t + beta q, in a part of a fibre, and that part's share of p q.
BLOCK(128) void advance(index n, double *parts, double *p, double *q, const double *r, const double *z, const double *t,
                        const double *state, index nfibre, index nwave)
{
    index f = n / PARTS, first = f * nwave;
    const double *mine = state + f / nfibre * STATE;
    if (mine[MOVES] == 0.0)
        return;
    double beta = mine[BETA], total = 0.0;
    FOUR_AT_ONCE
    for (index j = first + n % PARTS; j < first + nwave; j += PARTS) {
        double direction = z[j] + beta * p[j], image = r[j] + t[j] + beta * q[j];
        p[j] = direction;
        q[j] = image;
        total += direction * image;
    }
    parts[n] = total;
}

// A step along the direction, s += alpha p, r -= alpha q, in a part of a fibre.
BLOCK(128) void step(index n, double *s, double *r, const double *p, const double *q, const double *curvatures,
                     const double *state, index nfibre, index nwave)
{
    index f = n / PARTS, b = f / nfibre, first = f * nwave;
    if (state[b * STATE + MOVES] == 0.0)
        return;
    double curvature = sum_of(curvatures + b * nfibre, nfibre), alpha = state[b * STATE + NORM] / curvature;
    if (!(curvature > 0.0))
        return;
    FOUR_AT_ONCE
    for (index j = first + n % PARTS; j < first + nwave; j += PARTS) {
        double solution = s[j] + alpha * p[j], residual = r[j] - alpha * q[j];
        s[j] = solution;
        r[j] = residual;
    }
}

// The solution, x = s, 0 if the weight (the first row of sums) is 0.
BLOCK(128) void arrive(index n, double *x, const double *s, const double *sums, const int *gate, index nwave)
{
    if (!gate[n / nwave])
        x[n] = sums[n] > 0.0 ? s[n] : 0.0;
}

constexpr int BINS = 4;      // bins of a lane of `between`

// total += the contributions to BINS bins of a fibre, from j on, from another fibre, `given`. row: of icov, stored with the
// lower of the two fibres, which with SIDE 1 is the other one. Bin j + b is coupled with the other's bin at + b.
template <int SIDE>
LANE void from_other(double (&total)[BINS], const double *given, const double *row, int j, int hw, int end, index nwave)
{
    int at = SIDE ? j + hw : j - hw;
    double here[BINS];
    EACH(b, BINS)
        here[b] = 0 <= at + b && at + b < end ? given[at + b] : 0.0;
    FOUR_AT_ONCE
    for (int k = 0; k <= 2 * hw; k++) {
        EACH(b, BINS) {
            bool there = 0 <= at + b && at + b < end && j + b < end;
            total[b] += (there ? row[(SIDE ? at : j) + b] : 0.0) * here[b];
        }
        int next = SIDE ? at - 1 : at + BINS;
        double coming = 0 <= next && next < end ? given[next] : 0.0;
        SIDE ? push_front(here, coming) : push_back(here, coming);
        at += SIDE ? -1 : 1;
        row += nwave;
    }
}

// moved = E z at BINS bins of a fibre, where E are the couplings between fibres; sums are in the order of distance and band.
// icov: (fibres, nd, 2 hw + 1, nwave).
BLOCK(64) void between(index n, double *moved, const double *z, const double *icov, const double *state, index nfibre,
                       index nd, index hw, index nwave)
{
    int blocks = (int)(nwave + BINS - 1) / BINS, j = (int)(n % blocks) * BINS, end = (int)nwave;
    index f = n / blocks, i = f % nfibre, size = (2 * hw + 1) * nwave;
    if (state[f / nfibre * STATE + MOVES] == 0.0)
        return;
    double total[BINS] = {};
    LOOP(int, d, 1, (int)nd) {
        if (i + d < nfibre)
            from_other<0>(total, z + (f + d) * nwave, icov + (f * nd + d) * size, j, (int)hw, end, nwave);
        if (i >= d)
            from_other<1>(total, z + (f - d) * nwave, icov + ((f - d) * nd + d) * size, j, (int)hw, end, nwave);
    }
    EACH(b, BINS)
        if (j + b < end)
            moved[f * nwave + j + b] = total[b];
}
