// Kernels: tests of the definiteness of the fibres' S = A - U, the choice of each fibre's band, and whether that band holds
// (narrow.schur.Neighbours.complement).
//
// As there, a fibre is measured in the narrowest band first, and then in wider ones until what is cut off is within the
// limits. Here each band is a launch, in which fibres that are done return at once.
#pragma once
#include "eliminate.h"
#include "sweeps.h"

constexpr int CHUNK = 4;                      // bins of a lane of gauge and square
constexpr int GATHERED = 16;                  // chunks that gather combines into one
constexpr int SUMS = 4, SQUARES = 6;          // numbers of a chunk
constexpr double EPS = 0x1p-52;

// A bound on the largest eigenvalue of S. For all fibres (wanted 0) also whether a fibre has any bin of weight, and the
// initial facts.
BLOCK(32) void bound(index i, double *facts, int *flags, const double *tops, const int *gate, index wanted, index half,
                     index lanes)
{
    if (!passes(gate, i, wanted))
        return;
    Fibre fibre{facts, flags, i, lanes};
    index step = (half + 2) * lanes;
    double total = largest_of(0.0, tops + i, step);
    LOOP(index, a, 1, half + 1)
        total += 2.0 * largest_of(0.0, tops + a * lanes + i, step);
    fibre[BOUND] = total;
    if (wanted == 0) {
        fibre[ALIVE] = largest_of(0.0, tops + (half + 1) * lanes + i, step) > 0.0;
        fibre[WIDTH] = fibre[TOO_DEEP] = 0;
        fibre[CUT_HOLDS] = 0;
        fibre[FIRST_THETA] = 0.0;
        fibre[FIRST_GAMMA] = fibre[FAR_THETA] = fibre[FAR_SHARE] = 1.0;
    }
}

// Bins of weight 0 get the bound on the diagonal of S.
BLOCK(64) void decouple(index n, double *band, const double *facts, const double *roots, index reach, index lanes)
{
    if (roots[n] == 0.0)
        band[n / lanes * (reach + 1) * lanes + n % lanes] = facts[BOUND * lanes + n % lanes];
}

// Choose the fibres that are measured in band number `width`: all in the first, then those that need it, the rest in the
// widest. Fibres with more than `deepest` fibres beyond their neighbours are given up.
BLOCK(32) void choose(index i, double *facts, int *flags, const int *depth, const int *wider, const int *halves,
                      index width, index widest, index deepest, index lanes)
{
    Fibre fibre{facts, flags, i, lanes};
    int active = fibre[ALIVE];
    if (width > 0) {
        int far = larger(depth[i], depth[lanes + i]), wanted = fibre[WANTED];
        if (width == 1) {
            fibre[TOO_DEEP] = far > deepest;
            wanted = far > 0 ? 1 : wanted;
        }
        bool is_it = wanted == width || (width == widest && wanted > width);
        active = is_it && halves[width] <= wider[3 * lanes + i] ? active : 0;
    }
    fibre[ACTIVE] = active;
    if (active > 0) {
        fibre[WIDTH] = (int)width;
        fibre[COND] = INFINITY;
        fibre[THETA] = 1.0;
        fibre[GAMMA] = 0.0;
    }
}

// Apply the answers to set `set` of the questions: a yes means that a fact is at most, or GAMMA at least, some value.
LANE void learn_set(double (&told)[GAMMA + 1], const double *yes, const double *questions, index set, index lanes)
{
    EACH(q, QUESTIONS) {
        const double *asked = questions + (set * QUESTIONS + q) * ASKED;
        EACH(fact, GAMMA + 1)
            if (yes[q * lanes] > 0.0 && asked[3] == fact)
                told[fact] = fact == GAMMA ? larger(told[fact], asked[4]) : smaller(told[fact], asked[4]);
    }
}

// Apply the answers, and find the rung. The answers are those to the first set and the set that was asked with it: set
// `beyond`, about the squared coupling to fibres farther than the next, or in bands wider than the first the second set.
// Otherwise they are those to the set that `between` selects, as in `ask`. Fibres that are asked next: with the second set
// (-1), those for which the first left something open; with the set of their rung, those above the first rung; with set
// -between, those for which only a stronger coupling than usual is known. In the end all that were measured in band number
// `width` are active.
BLOCK(32) void learn(index i, double *facts, int *flags, const double *yes, const double *questions, const double *ratios,
                     index rungs, index between, index beyond, index width, index lanes)
{
    Fibre fibre{facts, flags, i, lanes};
    if (fibre[ALIVE] == 0 || fibre[WIDTH] != width)
        return;
    double told[GAMMA + 1] = {fibre[COND], fibre[THETA], fibre[GAMMA]};
    if (fibre[ACTIVE] > 0)
        learn_set(told, yes + i, questions, between > 0 ? 1 + fibre[RUNG] : -between, lanes);
    bool open = between == 0 && !(told[COND] < INFINITY && told[THETA] < 1.0 && told[GAMMA] > 0.0);
    if (open && width > 0)
        learn_set(told, yes + QUESTIONS * lanes + i, questions, 1, lanes);
    if (beyond > 0) {
        double far[GAMMA + 1] = {INFINITY, 1.0, 0.0};
        learn_set(far, yes + QUESTIONS * lanes + i, questions, beyond, lanes);
        fibre[FAR_THETA] = far[THETA];
    }
    EACH(fact, GAMMA + 1)
        fibre[(Fact)fact] = told[fact];
    int rung = -1;
    FOUR_AT_ONCE
    for (int n = (int)rungs - 1; n >= 0; n--)
        rung = ratios[n] >= told[COND] ? n : rung;
    fibre[RUNG] = rung;
    fibre[ACTIVE] = between == 0 && width == 0 ? open : between == 0 || between == -1 ? rung >= 1 :
                    between < 0 || told[THETA] >= 1.0;
}

// For every chunk of bins: the largest element of the last diagonal of U, and the squares of S, 1'S1, 1'Sx and x'Sx.
BLOCK(64) void gauge(index n, double *chunks, const double *band, const double *taken, const double *sides,
                     const double *roots, const int *flags, index half, index nwave, index reach, index lanes)
{
    index i = n % lanes, c = n / lanes;
    if (flags[ACTIVE * lanes + i] == 0)
        return;
    Read s = rows_of(band, reach + 1, i, lanes), u = rows_of(taken, reach + 1, i, lanes);
    Read root = rows_of(roots, 1, i, lanes), x{sides + lanes + i, SIDES * lanes, lanes};
    double last = 0.0, ones = 0.0, cross = 0.0, both = 0.0;
    LOOP(index, j, c * CHUNK, smaller((c + 1) * CHUNK, nwave)) {
        double here = root.one(j), beyond = j + half < nwave ? fabs(u.at(j, half)) * (here * root.one(j + half)) : 0.0;
        double given = x.one(j), total = s.at(j, 0), sx = total * given;
        ONE_BY_ONE
        for (int a = 1; a <= (int)half; a += Around::PAIRS) {
            Around own = Around::of(s, a, (int)half, (int)j, (int)nwave);
            own.add_products(sx, Around::of_vector(x, a, (int)half, (int)j, (int)nwave));
            EACH(b, Around::PAIRS)
                total += own.after[b] + own.before[b];
        }
        ones += here > 0.0 ? total : 0.0;
        cross += sx;
        both += given * sx;
        last = larger(last, beyond);
    }
    rows_of(chunks, SUMS, i, lanes).put({last, ones, cross, both}, c);
}

// Combine GATHERED chunks: of each of their `count` numbers the largest, if it is one of the first `maxima`, else the sum;
// for fibres whose gate is `open`.
BLOCK(64) void gather(index n, double *groups, const double *chunks, const int *gate, index open, index count, index maxima,
                      index nchunks, index lanes)
{
    index i = n % lanes, k = n / lanes % count, group = n / lanes / count;
    if (gate[i] != open)
        return;
    Read given = rows_of(chunks, count, i, lanes);
    double values[GATHERED], total = 0.0;
    EACH(c, GATHERED)
        values[c] = group * GATHERED + c < nchunks ? given.at(group * GATHERED + c, k) : 0.0;
    EACH(c, GATHERED)
        total = k < maxima ? larger(total, values[c]) : total + values[c];
    groups[n] = total;
}

// The same over all groups; GROUPS of them are read at a time.
template <int COUNT> struct Numbers {
    double of[COUNT] = {};
};
template <int COUNT, int MAXIMA> LANE Numbers<COUNT> of_groups(const Read &groups, index ngroups)
{
    constexpr int GROUPS = 8;
    Numbers<COUNT> all;
    LOOP(index, g, 0, (ngroups + GROUPS - 1) / GROUPS) {
        double values[GROUPS][COUNT];
        EACH(b, GROUPS)
            EACH(k, COUNT)
                values[b][k] = g * GROUPS + b < ngroups ? groups.at(g * GROUPS + b, k) : 0.0;
        EACH(b, GROUPS)
            EACH(k, COUNT)
                all.of[k] = k < MAXIMA ? larger(all.of[k], values[b][k]) : all.of[k] + values[b][k];
    }
    return all;
}

// A limit, or the rounding error, if that is larger, up to `most`.
LANE double allowed(double limit, double most, double cond)
{
    return cond < INFINITY ? larger(limit, smaller(40.0 * EPS * cond, most)) : limit;
}

// How far a band misses the limit on what it cuts off (decorrelate.limits), which band is needed next (what is cut off falls
// by a factor `decay` from one band to the next), and the squares of S.
BLOCK(32) void conclude(index i, double *facts, int *flags, const double *groups, double most_tail, double decay,
                        index width, index ngroups, index lanes)
{
    Fibre fibre{facts, flags, i, lanes};
    if (fibre[ACTIVE] == 0)
        return;
    auto [last, ones, cross, both] = of_groups<SUMS, 1>(rows_of(groups, SUMS, i, lanes), ngroups).of;
    double excess = fibre[EXCESS] = 4.0 * last / larger(fibre[GAMMA], 1e-300) / most_tail;
    double steps = excess > 1.0 ? larger(1.0, floor(log(excess) / log(decay) + 0.5)) : 0.0;
    fibre[WANTED] = steps > 0.0 ? (int)width + (int)smaller(steps, 9.0) : 0;
    fibre[ONES] = ones;
    fibre[CROSS] = cross;
    fibre[BOTH] = both;
    if (width == 0) {
        fibre[FIRST_THETA] = fibre[THETA];
        fibre[FIRST_GAMMA] = fibre[GAMMA];
    }
}

// depth = number of fibres beyond the eliminated one of a pair that matter to it (narrow.schur.Neighbours).
BLOCK(32) void chain(index m, int *depth, const double *facts, double coupling, index lanes, index size)
{
    const double *theta = facts + FIRST_THETA * lanes;
    index i = m % lanes, j = other(m, 1, lanes, size);
    int found = 0;
    while (j >= 0 && beside(j, 2 * j - i, lanes, size) && theta[i] * theta[j] > 1.01 * coupling) {
        index beyond = 2 * j - i;
        i = j;
        j = beyond;
        found++;
    }
    depth[m] = found;
}

// listed[d - 1, k] = the k-th of the pairs whose depth is d, -1 after the last one.
BLOCK(64) void enlist(index n, int *listed, const int *depth, index lanes)
{
    int wanted = 1 + (int)(n / (2 * lanes)), before = (int)(n % (2 * lanes)), found = -1;
    FOUR_AT_ONCE
    for (int m = 0; m < (int)(2 * lanes); m++) {
        bool here = depth[m] == wanted;
        found = here && before == 0 ? m : found;
        before -= here;
    }
    listed[n] = found;
}

// Whether a fibre is part of a chain, or has a chain eliminated.
LANE bool in_chain(index i, const int *depth, index lanes, index size)
{
    index below = other(i, 1, lanes, size), above = other(lanes + i, 1, lanes, size);
    return depth[i] > 0 || depth[lanes + i] > 0 || (below >= 0 && depth[lanes + below] > 0) || (above >= 0 && depth[above] > 0);
}

// Whether the narrowest band does not suffice: for the fibre itself, or for one that is eliminated after it in a chain.
LANE bool wants_more(index i, const int *depth, const int *flags, index lanes, index size)
{
    return (flags[ALIVE * lanes + i] > 0 && flags[WANTED * lanes + i] > 0) || in_chain(i, depth, lanes, size);
}

// wider = rows of one element per fibre. Two rows, in the order of pairs: WIDER if the fibre needs more diagonals of S than
// the narrowest band has. Then WIDER if its inverse is needed for such a fibre. Then the number of diagonals: all in chains,
// else those of a band that is wide enough even if what is cut off falls only by a factor `decay` in four diagonals.
BLOCK(32) void widen(index i, int *wider, const int *depth, double *facts, int *flags, const int *halves, index widths,
                     double decay, index nd, index lanes, index size)
{
    wider[i] = wider[lanes + i] = wants_more(i, depth, flags, lanes, size) ? WIDER : 0;
    wider[2 * lanes + i] = 0;
    LOOP(index, j, i - nd + 1, i + nd)
        if (beside(i, j, lanes, size) && wants_more(j, depth, flags, lanes, size))
            wider[2 * lanes + i] = WIDER;
    index width = in_chain(i, depth, lanes, size) ? widths - 1 : 1;
    while (width < widths - 1 && pow(decay, 0.25 * (halves[width] - halves[0])) < 1.2 * facts[EXCESS * lanes + i])
        width++;
    wider[3 * lanes + i] = halves[width];
}

// Choose the fibres for the test whether a matrix distinguishes their bins (decorrelate.weak): those whose facts do not
// exclude that a bin is nearly weak (narrow.definite.Facts); flag: for the answer.
BLOCK(32) void doubt(index i, double *facts, int *flags, double told, index flag, index lanes)
{
    Fibre fibre{facts, flags, i, lanes};
    fibre[ACTIVE] = fibre[ALIVE] > 0 && (fibre[THETA] >= 1.0 || (fibre[GAMMA] == 0.0 && fibre[COND] > told));
    flags[flag * lanes + i] = fibre[ACTIVE] == 0;
}

// Choose the fibres for tests bin by bin, if largest values leave open whether the narrow band holds: bundles with a FAILED
// fibre.
BLOCK(32) void reconsider(index i, int *flags, index lanes, index size)
{
    bool any = false;
    LOOP(index, j, i / size * size, (i / size + 1) * size)
        any = any || flags[STATUS * lanes + j] == FAILED;
    flags[ACTIVE * lanes + i] = any && flags[ALIVE * lanes + i] > 0;
}

// 1 / sqrt of the number to which S is compared in a bin: a share of icov's diagonal, or nearly 0; 0 if there is no weight.
LANE double weight_of(double root, double share) { return root / sqrt(larger(share, 1e-30)); }

// weights = 1 / sqrt of a diagonal matrix that bounds what a fibre's band cuts off of S, if that falls by a factor `decay` in
// four diagonals: element (p, p + half + k) is at most fall^k of (p, p + half) or of (p + k, p + half + k). In bins that
// are kept, first .. first + nout - 1, `floor` times the bound on S is added, because poles leave errors in proportion to it
// in all bins. With a condition number above most_cond no band holds in a bin where they leave too much of x: `left` times x
// times the root of the bound is above 1 (decorrelate.narrow.schur.OF_POLES).
BLOCK(64) void weigh_cut(index n, double *weights, const double *taken, const double *sides, const double *roots,
                         const double *facts, const int *flags, const int *halves, double decay, double floor,
                         double most_cond, double left, index first, index nout, index nwave, index reach, index lanes)
{
    index i = n % lanes, p = n / lanes;
    if (flags[ACTIVE * lanes + i] == 0)
        return;
    constexpr int FARTHEST = 40;
    int half = halves[flags[WIDTH * lanes + i]];
    Read u = rows_of(taken, reach + 1, i, lanes), root = rows_of(roots, 1, i, lanes);
    double fall = pow(decay, -0.25), times = fall / (1.0 - fall), share = 0.0;
    LOOP(index, k, 0, FARTHEST) {
        EACH(side, 2) {
            index q = side == 0 ? p + k : p - half - k;
            if (q >= 0 && q + half < nwave)
                share += times * fabs(u.at(q, half)) * (root.one(q) * root.one(q + half));
        }
        times = k == 0 ? fall : times * fall;
    }
    double bound = facts[BOUND * lanes + i];
    share += first <= p && p < first + nout ? floor * bound * (roots[n] * roots[n]) : 0.0;
    bool much = left * sqrt(bound) * fabs(sides[(p * SIDES + 1) * lanes + i]) > 1.0;
    share = much && facts[COND * lanes + i] > most_cond ? 1e30 : share;
    weights[n] = weight_of(roots[n], share);
}

// weights = 1 / sqrt of a diagonal matrix that bounds the couplings of a fibre to those farther than the next.
BLOCK(64) void weigh_far(index n, double *weights, const double *blocks, const double *roots, const int *flags, index nd,
                         index nwave, index hw, index lanes, index size)
{
    index i = n % lanes, p = n / lanes;
    if (flags[ACTIVE * lanes + i] == 0)
        return;
    double share = 0.0;
    LOOP(index, m, 0, 2 * (nd - 2)) {
        index d = 2 + m / 2, j = other(m % 2 * lanes + i, d, lanes, size);
        LOOP(index, k, -hw, j < 0 ? -hw : hw + 1) {
            index q = p + k, first = j < i ? q : p, ahead = j < i ? -k : k;
            if (0 <= q && q < nwave)
                share += fabs(blocks[((d * nwave + first) * (2 * hw + 1) + hw + ahead) * lanes + smaller(i, j)]) *
                         (roots[n] * roots[q * lanes + j]);
        }
    }
    weights[n] = weight_of(roots[n], share);
}

// related = the diagonals 0 .. half of a matrix, from `place` on in rows of `width`, times weights on both sides and
// `scale`, in units of the bound on S for the questions; of S only the diagonals in the fibre's band.
BLOCK(64) void relate(index n, double *related, const double *matrix, const double *weights, const double *facts,
                     const int *flags, const int *halves, double scale, index place, index width, index nwave, index half,
                     index lanes)
{
    index i = n % lanes, j = n / lanes;
    if (flags[ACTIVE * lanes + i] == 0)
        return;
    index within = smaller(halves ? halves[flags[WIDTH * lanes + i]] : half, nwave - 1 - j);
    double own = weights[n] * (facts[BOUND * lanes + i] * scale), *to = related + j * (half + 1) * lanes + i;
    LOOP(index, a, 0, half + 1)
        to[a * lanes] = a <= within ? own * matrix[(j * width + place + a) * lanes + i] * weights[n + a * lanes] : 0.0;
    to[0] = own > 0.0 ? to[0] : 1e300;
}

// Set the flag of fibres that were asked to the answer to one of the questions.
BLOCK(32) void tell(index i, int *flags, const double *yes, index flag, index question, index lanes)
{
    if (flags[ACTIVE * lanes + i] > 0)
        flags[flag * lanes + i] = yes[question * lanes + i] > 0.0;
}

// The same for the couplings to farther fibres: the least share of S that bounds them; the largest share asked is `most`.
BLOCK(32) void learn_share(index i, double *facts, const int *flags, const double *yes, const double *questions, double most,
                           index set, index lanes)
{
    LOOP(index, q, 0, flags[ACTIVE * lanes + i] > 0 ? QUESTIONS : 0)
        if (yes[q * lanes + i] > 0.0) {
            double &share = facts[FAR_SHARE * lanes + i];
            share = smaller(share, most * questions[(set * QUESTIONS + q) * ASKED + 4]);
        }
}

// The facts that decide whether the narrow band holds.
struct Coupled {
    Fibre own;
    const double *sizes;
    const int *depth;
    double coupling, distant, worst, less_told;
    index nd, size;

    // The least bound on the coupling (not squared) of two fibres that are not next to each other: from the largest products,
    // from what is eliminated, or from bin by bin.
    LANE double between(index near, index far, double found) const
    {
        Fibre here = own.at(near), there = own.at(far);
        double gamma = smaller(own[GAMMA], smaller(here[FIRST_GAMMA], there[FIRST_GAMMA]));
        double value = found > distant ? sqrt(here[FAR_THETA]) : found / larger(gamma, 1e-300);
        return smaller(value, sqrt(here[FAR_SHARE] * there[FAR_SHARE]));
    }
    // The error in S of the fibre, in its norm, because fibres are eliminated one by one: from the coupling of fibre `place` to
    // fibres farther than the next, and of fibres on one side to those on the other. outwards: -1 or 1 if `place` is in a
    // chain, so that only fibres below or above it are eliminated before it, else 0; theta: of `place`. The quickest bound
    // assumes that the spectrum of the scaled S is not below `worst`.
    LANE double orders(index place, index outwards, double theta) const
    {
        double near_theta = 0.0, longest = 0.0, second = 0.0, all = 0.0;
        LOOP(index, near, place - 1, place + 2) {
            if (!beside(place, near, own.lanes, size))
                continue;
            near_theta = larger(near_theta, own.at(near)[FIRST_THETA]);
            LOOP(index, pair, 0, 2 * (nd - 2)) {
                index d = 2 + pair / 2, far = other(pair % 2 * own.lanes + near, d, own.lanes, size);
                if (far < 0)
                    continue;
                double found = sizes[d * own.lanes + smaller(near, far)], value = between(near, far, found);
                bool from_here = near == place && (far - place) * outwards >= 0;
                bool across = outwards == 0 && (near < place ? far > place : far < place - 1);
                longest = larger(longest, found);
                second += from_here && found <= distant ? value * value : 0.0;
                all += from_here || across ? value : 0.0;
            }
        }
        theta = sqrt(theta * near_theta);
        longest /= worst;
        double quickest = 6.0 * theta * longest + longest * longest;
        return quickest <= coupling ? quickest : second + 2.0 * theta * all;
    }
    // The same, including the errors of fibres in chains, reduced by the couplings through which they arrive.
    LANE double all_orders() const
    {
        double total = orders(own.i, 0, own[THETA]);
        LOOP(index, side, 0, 2) {
            double through = 1.0;
            index outwards = side > 0 ? 1 : -1;
            LOOP(index, n, 0, depth[side * own.lanes + own.i]) {
                index j = own.i + outwards * (n + 1);
                double theta = own.at(j)[FIRST_THETA];
                through *= theta;
                total += through * orders(j, outwards, theta);
            }
        }
        return total;
    }
    // Whether the eliminated fibres, alone or in chains, distinguish their own bins; in chains together with the fibres beyond
    // them, as far out as they matter, and the better the nearer they are (decorrelate.narrow.first_look, tell_together).
    LANE bool eliminated_tell() const
    {
        bool told = true;
        LOOP(index, pair, 0, 2 * (nd - 1)) {
            index m = pair % 2 * own.lanes + own.i, d = 1 + pair / 2, j = counting(m, sizes, distant, d, own.lanes, size);
            index length = j < 0 ? 0 : d == 1 ? 1 + depth[m] : 1;
            double through = 1.0;
            LOOP(index, n, 0, length) {
                Fibre behind = own.at(pair % 2 ? j + n : j - n);
                through *= behind[FIRST_THETA];
                bool little = length == 1 || through <= coupling;
                told = told && behind[BLOCK_TELLS] > 0 &&
                       (little || behind[TELLS] > 0 || (through <= less_told && behind[NOT_WEAK] > 0));
            }
        }
        return told;
    }
};

// GOOD if the narrow band holds, else EMPTY or FAILED; less_told: ratio of the limits of TELLS and NOT_WEAK.
BLOCK(32) void decide(index i, double *facts, int *flags, const double *sizes, const int *depth, double coupling,
                      double most_coupling, double most_cond, double distant, double worst, double less_told, index nd,
                      index lanes, index size)
{
    Fibre fibre{facts, flags, i, lanes};
    fibre[STATUS] = fibre[ALIVE] > 0 ? FAILED : EMPTY;
    bool wide_enough = fibre[RUNG] >= 0 && fibre[TOO_DEEP] == 0 &&
                       ((fibre[EXCESS] <= 1.0 && fibre[COND] <= most_cond) || fibre[CUT_HOLDS] > 0);
    Coupled all{fibre, sizes, depth, coupling, distant, worst, less_told, nd, size};
    if (fibre[ALIVE] > 0 && wide_enough && fibre[TELLS] > 0 && all.eliminated_tell() &&
        all.all_orders() <= allowed(coupling, most_coupling, fibre[COND]))
        fibre[STATUS] = GOOD;
}
