// A lane is a thread of a device, or a turn of a loop on a host. The other headers do not depend on which.
// BLOCK: marks a kernel, a function for lane n; the number is the lanes in a block.
// TEAMS: marks a kernel that is a template on the half-band and on T, the threads of a lane: one for half-bands below the
// first number, else as in text.py. A block has TEAMED threads, several teams, so that adjacent numbers for adjacent lanes are
// fetched once. The second number, if given: registers that suffice for a member beside 2 for each diagonal of the band, so
// that more teams fit on a multiprocessor than with the compiler's choice.
// KNOWN_BY_NOW: a number is loaded here; otherwise a compiler may load it only where it is used, and wait.
// ASKED_ANEW: a place is read again; otherwise a compiler may keep the value from the previous turn.
// FOUND_ANEW: what follows from a number is computed again; otherwise a compiler keeps it in registers over the turns.
#pragma once

using index = long long;

#ifdef __CUDACC__
#define LANE __device__ __forceinline__
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define LANES(n, count) for (index n = blockIdx.x * (index)blockDim.x + threadIdx.x; n < (count); n = (count))
#define LANES_OF_TEAMS(T, n, count) \
    for (index n = blockIdx.x * (index)(blockDim.x / T) + threadIdx.x / T; n < (count); n = (count))
#define MEMBERS(T, t) for (int t = threadIdx.x % T, once = 1; once; once = 0, wait_for_team<T>())
#define ALONE(T, t) for (int t = threadIdx.x % T, once = 1; once; once = 0)
#define SHARED __shared__ alignas(16)
#define UNROLLED _Pragma("unroll")
#define ONE_BY_ONE _Pragma("unroll 1")
#define TWO_AT_ONCE _Pragma("unroll 2")
#define FOUR_AT_ONCE _Pragma("unroll 4")
#define KNOWN_BY_NOW(number) asm volatile("" : "+d"(number))
#define ASKED_ANEW(place) asm volatile("" : "+l"(place))
#define FOUND_ANEW(number) asm volatile("" : "+r"(number))
#define INFINITY (1.0 / 0.0)
#else
#define INFINITY __builtin_inf()
extern "C" {        // <cmath> takes longer to read than all of this text
double sqrt(double), fabs(double), floor(double), exp(double), log(double), erfc(double), pow(double, double);
double fma(double, double, double), nextafter(double, double), nan(const char *);
}
inline float nextafter(float a, float b) { return __builtin_nextafterf(a, b); }
inline bool isinf(double a) { return __builtin_isinf(a); }
#define LANE inline
#define KERNEL(...) extern "C" void
// Lanes run in any order: lane `turn * lane_step` modulo their number, which must be coprime with lane_step.
extern "C" {
inline index lane_step = 1;
void set_lane_step(index step) { lane_step = step; }
}
inline index lane_at(index turn, index count) { return (turn * lane_step % count + count) % count; }
#define LANES(n, count) for (index turn = 1, n = 0; turn <= (count) && (n = lane_at(turn, count), true); ++turn)
#define LANES_OF_TEAMS(T, n, count) LANES(n, count)
#define MEMBERS(T, t) for (int turn = 0, t; turn < T && (t = lane_step < 0 ? T - 1 - turn : turn, true); turn++)
#define ALONE(T, t) MEMBERS(T, t)
#define SHARED
#define UNROLLED
#define ONE_BY_ONE
#define TWO_AT_ONCE
#define FOUR_AT_ONCE
#define KNOWN_BY_NOW(number)
#define ASKED_ANEW(place)
#define FOUND_ANEW(number)
#endif

#define BLOCK(lanes) LANE
#define TEAMS(...) LANE

// A team: T threads of a device that work on one lane together. Every member t executes the body of MEMBERS(T, t) { ... }
// before any of them continues; a host executes it for the members in turn, in any order. Code outside is executed by all
// alike. A member's own numbers are in Own. Members exchange numbers in SHARED arrays, of which element team<T>() is this
// team's. ALONE(T, t): as MEMBERS, but without a wait at the end, so that code after it must not change what others may still
// read, nor read what others may not have written.
constexpr int WARP = 32, TEAMED = 128;
template <int T> constexpr int IN_BLOCK = TEAMED / T;
#ifdef __CUDACC__
template <int T> LANE int team() { return threadIdx.x / T; }
template <int T> LANE void wait_for_team()
{
    if constexpr (T > WARP)
        asm volatile("bar.sync %0, %1;" ::"r"(team<T>() + 1), "n"(T) : "memory");
    else
        __syncwarp(T == WARP ? 0xffffffffu : ((1u << T % WARP) - 1) << threadIdx.x % WARP / T * T);
}
template <int T, typename Kind> struct Own {
    Kind one;
    LANE Kind &operator[](int) { return one; }
};
#else
template <int T> int team() { return 0; }
template <int T, typename Kind> struct Own {
    Kind all[T];
    Kind &operator[](int t) { return all[t]; }
};
#endif

// Loops: EACH is unrolled, over elements that stay in registers; LOOP is not, for any length.
#define EACH_FROM(name, first, end) UNROLLED for (int name = first; name < (end); name++)
#define EACH(name, count) EACH_FROM(name, 0, count)
#define LOOP(type, name, first, end) ONE_BY_ONE for (type name = first; name < (end); name++)

// The fibres or pairs that a launch is for: those whose gate is `wanted`, or all without a gate, with one lane each. If
// `wanted` is LISTED, they are those that `gate` lists, -1 after the last. These may be few, so only `beside` of them have
// their own lanes; a lane goes through the list in at most TURNS turns. at: the k-th one, -1: none.
constexpr index LISTED = -2, TURNS = 12;
struct Chosen {
    const int *gate;
    index wanted, lanes;

    LANE bool listed() const { return wanted == LISTED; }
    LANE int beside() const { return (int)(listed() ? (lanes + TURNS - 1) / TURNS : lanes); }
    LANE int at(int k) const
    {
        if (k >= lanes)
            return -1;
        return listed() ? gate[k] : !gate || gate[k] == wanted ? k : -1;
    }
};
#define EACH_CHOSEN(i, chosen, first) \
    ONE_BY_ONE for (int turn_of_##i = (int)(first), i; (i = chosen.at(turn_of_##i)) >= 0; turn_of_##i += chosen.beside())

// The larger and the smaller of two numbers, the first if one is NaN: as in Python.
template <typename T> LANE T larger(T a, T b) { return b > a ? b : a; }
template <typename T> LANE T smaller(T a, T b) { return b < a ? b : a; }

template <int N> LANE void copy(double (&to)[N], const double (&from)[N])
{
    EACH(a, N)
        to[a] = from[a];
}

// 1 / x to rounding, unless the result is tiny: for code that needs a sign alone. A division takes twice the instructions
// and a branch.
LANE double about_one_over(double x)
{
#ifdef __CUDACC__
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    EACH(n, 2)
        y = fma(y, fma(-x, y, 1.0), y);
    return y;
#else
    return 1.0 / x;
#endif
}

// Shift all elements by one: the last is dropped, or the first.
template <typename T, int N> LANE void push_front(T (&values)[N], T first)
{
    UNROLLED
    for (int a = N - 1; a > 0; a--)
        values[a] = values[a - 1];
    values[0] = first;
}
template <typename T, int N> LANE void push_back(T (&values)[N], T last)
{
    EACH(a, N - 1)
        values[a] = values[a + 1];
    values[N - 1] = last;
}
