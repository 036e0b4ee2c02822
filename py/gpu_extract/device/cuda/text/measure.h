// Kernels: what the definiteness of the fibres' S = A - U says, in which band each is to be had, and whether that holds
// (narrow.schur.Neighbours.complement).
//
// As there a fibre is measured in the narrowest band first, and then in wider ones until what is cut off is within the
// limits; here that is one launch after the other, in which fibres that are done return at once.
#pragma once
#include "eliminate.h"
#include "sweeps.h"

constexpr int CHUNK = 4;                      // bins of a lane of gauge and square
constexpr int GATHERED = 16;                  // chunks that gather makes one of
constexpr int SUMS = 4, SQUARES = 6;          // of a chunk
constexpr double EPS = 0x1p-52;

// A bound on the largest eigenvalue of S; of all fibres (wanted 0) also which have any bin of weight, and the first
// facts of those that have none.
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

// Which fibres are measured in band number `width`: all in the first, then those that want it, the rest in the widest;
// those with more than `deepest` fibres beyond their neighbours are given up.
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

// The answers to set `set` of the questions: each says that a fact is at most, GAMMA at least, some value.
LANE void learn_set(double (&told)[GAMMA + 1], const double *yes, const double *questions, index set, index lanes)
{
    EACH(q, QUESTIONS) {
        const double *asked = questions + (set * QUESTIONS + q) * ASKED;
        EACH(fact, GAMMA + 1)
            if (yes[q * lanes] > 0.0 && asked[3] == fact)
                told[fact] = fact == GAMMA ? larger(told[fact], asked[4]) : smaller(told[fact], asked[4]);
    }
}

// What the answers say: to the first set, and the one that was asked with it, which is set `beyond`, about the coupling to
// fibres farther than the next, squared, or the second one, for bands wider than the first; or to those that `between` says,
// as in `ask`; and which rung that makes it. Who is asked next: with the second set, -1, those of whom the first left
// something open; with the set of the rung who is above the first one; then, with another set -between, those of whom all that
// is known is that they are coupled more strongly than usual; in the end all that were measured in band number `width` are
// active.
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

// The largest element of the last diagonal of U, and the squares of S, 1'S1, 1'Sx and x'Sx: of every chunk of bins.
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

// What GATHERED chunks make of one of their `count` numbers: the largest where it is one of the first `maxima`, else the
// sum; of fibres whose gate is `open`.
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

// What all groups make of their numbers, so many asked for at a time.
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

// A limit, or what rounding leaves where that is more, up to `most`.
LANE double allowed(double limit, double most, double cond)
{
    return cond < INFINITY ? larger(limit, smaller(40.0 * EPS * cond, most)) : limit;
}

// By how much a band misses the limit on what it cuts off (decorrelate.limits; a diagonal more is `decay` times less),
// which band is wanted next, and the squares of S.
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

// depth = how many fibres beyond the eliminated one of a pair matter to it (narrow.schur.Neighbours).
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

// listed[d - 1, k] = the k-th of the pairs whose depth is d, -1 behind the last one.
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

// Whether a fibre is eliminated, or has others eliminated, in a chain.
LANE bool in_chain(index i, const int *depth, index lanes, index size)
{
    index below = other(i, 1, lanes, size), above = other(lanes + i, 1, lanes, size);
    return depth[i] > 0 || depth[lanes + i] > 0 || (below >= 0 && depth[lanes + below] > 0) || (above >= 0 && depth[above] > 0);
}

// Whether the narrowest band is not enough of a fibre: it, or one that is eliminated after it in a chain, asks for more.
LANE bool wants_more(index i, const int *depth, const int *flags, index lanes, index size)
{
    return (flags[ALIVE * lanes + i] > 0 && flags[WANTED * lanes + i] > 0) || in_chain(i, depth, lanes, size);
}

// wider = rows of one element a fibre: twice (as pairs lie) WIDER where more diagonals of S are needed than the narrowest
// band has, and WIDER where its inverse is for that; how many diagonals are made then: all in chains, else those of a band
// that is wide enough also where what is cut off falls by no more than `decay` in four diagonals.
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

// Who is asked whether a matrix tells their bins apart (decorrelate.weak): those of whom facts do not exclude that a bin is
// near weak (narrow.definite.Facts); flag: where the answer goes.
BLOCK(32) void doubt(index i, double *facts, int *flags, double told, index flag, index lanes)
{
    Fibre fibre{facts, flags, i, lanes};
    fibre[ACTIVE] = fibre[ALIVE] > 0 && (fibre[THETA] >= 1.0 || (fibre[GAMMA] == 0.0 && fibre[COND] > told));
    flags[flag * lanes + i] = fibre[ACTIVE] == 0;
}

// Who is asked bin by bin, where largest values leave open whether the narrow band holds: bundles of who is FAILED.
BLOCK(32) void reconsider(index i, int *flags, index lanes, index size)
{
    bool any = false;
    LOOP(index, j, i / size * size, (i / size + 1) * size)
        any = any || flags[STATUS * lanes + j] == FAILED;
    flags[ACTIVE * lanes + i] = any && flags[ALIVE * lanes + i] > 0;
}

// 1 / sqrt of what is compared with S in a bin: a share of icov's diagonal, or next to nothing; 0 where there is no weight.
LANE double weight_of(double root, double share) { return root / sqrt(larger(share, 1e-30)); }

// weights = 1 / sqrt of a diagonal matrix that what a fibre's band cuts off of S is within, where that falls by `decay`
// in four diagonals: element (p, p + half + k) is at most fall^k of (p, p + half) or of (p + k, p + half + k). In bins that
// are kept, first .. first + nout - 1, `floor` of the bound on S is added: poles leave what goes with that in all bins.
// Where the condition number is above most_cond, nothing holds with an x of which they leave too much: `left` times x and
// the root of the bound is above 1 (decorrelate.narrow.schur.OF_POLES).
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

// weights = 1 / sqrt of a diagonal matrix that the couplings of a fibre to those farther than the next are within.
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
// `scale`, as parts of the bound on S that questions are asked about; of S those that a fibre's band has.
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

// The answers to one of the questions; those who are not asked keep their flag.
BLOCK(32) void tell(index i, int *flags, const double *yes, index flag, index question, index lanes)
{
    if (flags[ACTIVE * lanes + i] > 0)
        flags[flag * lanes + i] = yes[question * lanes + i] > 0.0;
}

// The same of the couplings to farther fibres: the least of the shares of S, of which the first is `most`, that they are
// within.
BLOCK(32) void learn_share(index i, double *facts, const int *flags, const double *yes, const double *questions, double most,
                           index set, index lanes)
{
    LOOP(index, q, 0, flags[ACTIVE * lanes + i] > 0 ? QUESTIONS : 0)
        if (yes[q * lanes + i] > 0.0) {
            double &share = facts[FAR_SHARE * lanes + i];
            share = smaller(share, most * questions[(set * QUESTIONS + q) * ASKED + 4]);
        }
}

// What decides whether the narrow band holds.
struct Coupled {
    Fibre own;
    const double *sizes;
    const int *depth;
    double coupling, distant, worst, less_told;
    index nd, size;

    // A bound on the coupling (not squared) of two fibres that are not next to each other: by the largest products, by what
    // is eliminated, or bin by bin.
    LANE double between(index near, index far, double found) const
    {
        Fibre here = own.at(near), there = own.at(far);
        double gamma = smaller(own[GAMMA], smaller(here[FIRST_GAMMA], there[FIRST_GAMMA]));
        double value = found > distant ? sqrt(here[FAR_THETA]) : found / larger(gamma, 1e-300);
        return smaller(value, sqrt(here[FAR_SHARE] * there[FAR_SHARE]));
    }
    // What coupling of fibre `place` to fibres farther than the next, and of those on its one side to those on the other,
    // leaves in S of the fibre, in its norm, when these are eliminated one by one; outwards: -1 or 1 where `place` is in a
    // chain, and only fibres below or above it are eliminated before it, else 0; theta: of `place`; worst: a spectrum of the
    // scaled S that is not expected to be worse, for the quickest of the bounds.
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
    // The same, with that of fibres in chains, as far as it comes through those before them.
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
    // Whether those that are eliminated, alone or in chains, tell their own bins apart; in chains as far out as they matter,
    // with those beyond them, and the better the nearer they are (decorrelate.narrow.first_look, tell_together).
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

// GOOD where the narrow band holds, else EMPTY or FAILED; less_told: TELLS is for so much more than NOT_WEAK.
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
