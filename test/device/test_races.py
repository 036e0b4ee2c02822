"""Teams of the kernels in CUDA C++ with a thread for each member, under the thread sanitizer.

Numbers that members exchange exist when they are read, and are not overwritten before, also from one pair of a list to
the next.
"""
import subprocess
from pathlib import Path

import pytest
from host_text import compiler

from gpu_extract.device.cuda.text import eliminate, source, sweeps

ROWS, PAIRS, LISTED, LANES = 61, 26, 10, 3      # the last row is the first of those that are processed together
BARRIERS = 4      # in turn: a member that leaves one late must not seem to have met those who already wait at the next
THREADS = {      # instead of a host's turns
    "#define LANES_OF_TEAMS(T, n, count) LANES(n, count)":
        "#define LANES_OF_TEAMS(T, n, count) for (index n = 0; n < (count); n++, all_wait())",
    "#define MEMBERS(T, t) for (int turn = 0, t; turn < T && (t = lane_step < 0 ? T - 1 - turn : turn, true); turn++)":
        "#define MEMBERS(T, t) for (int t = member, once = 1; once; once = 0, all_wait())",
    "#define ALONE(T, t) MEMBERS(T, t)": "#define ALONE(T, t) for (int t = member, once = 1; once; once = 0)",
    "#define SHARED\n": "#define SHARED static\n",
    "    Kind all[T];\n    Kind &operator[](int t) { return all[t]; }":
        "    Kind one;\n    Kind &operator[](int) { return one; }"}
HARNESS = """
int main()
{
    static double band[PAIRS * ROWS * (H + 1)], low[PAIRS * ROWS * (H + 1)], inverse[PAIRS * ROWS * (H + 1)];
    static int halo[PAIRS], listed[PAIRS];
    for (int m = 0; m < PAIRS; m++) {
        listed[m] = m < SOME ? m : -1;
        for (int j = 0; j < ROWS; j++)
            for (int b = 0; b <= H && j + b < ROWS; b++)
                band[(m * ROWS + j) * (H + 1) + b] = b ? 0.3 / (1 + b + m) : 4.0;
    }
    for (auto &barrier : everyone)
        pthread_barrier_init(&barrier, nullptr, TEAM);
    pthread_t threads[TEAM];
    auto work = [](void *arg) -> void * {
        member = (int)(long)arg;
        FACTOR(LANES, low, halo, listed, band, ALL, 0, ROWS * (H + 1), H + 1, 1, ROWS, ROWS, PAIRS);
        INVERT(LANES, inverse, low, halo, listed, ALL, H + 1, ROWS, ROWS, PAIRS);
        return nullptr;
    };
    for (long t = 0; t < TEAM; t++)
        pthread_create(&threads[t], nullptr, work, (void *)t);
    for (auto thread : threads)
        pthread_join(thread, nullptr);
}
"""
WAITS = "        MEMBERS(T, t) {       // all have read"


def raced(half: int, folder: Path, broken: bool = False) -> bool:
    """Whether members of a team that goes through a list race on shared numbers."""
    kernels = sweeps.factor.sized(half), sweeps.invert.sized(half)
    text = source(*kernels)
    for host, threads in {**THREADS, **({WAITS: WAITS.replace("MEMBERS", "ALONE")} if broken else {})}.items():
        assert text.count(host) == 1, host
        text = text.replace(host, threads)
    names = {"H": half, "TEAM": kernels[0].threads, "ROWS": ROWS, "PAIRS": PAIRS, "SOME": LISTED, "LANES": LANES,
             "ALL": eliminate.LISTED, "FACTOR": kernels[0].entry, "INVERT": kernels[1].entry}
    harness = HARNESS
    for name, value in names.items():
        harness = harness.replace(name, str(value))
    head = ("#include <pthread.h>\nstatic thread_local int member, waits;\n"
            f"static pthread_barrier_t everyone[{BARRIERS}];\n"
            f"static void all_wait() {{ pthread_barrier_wait(&everyone[waits++ % {BARRIERS}]); }}\n")
    flags = "-std=c++17", "-O1", "-fsanitize=thread", "-w", "-x", "c++"
    made = subprocess.run([str(compiler()), *flags, "-", "-o", folder / "run"], input=head + text + harness,
                          capture_output=True, text=True, check=False)
    if "cannot find" in made.stderr or "unrecognized" in made.stderr:
        pytest.skip("the compiler has no sanitizer of threads")
    assert made.returncode == 0, made.stderr
    said = subprocess.run([folder / "run"], capture_output=True, text=True, check=False, timeout=120)
    if "unexpected memory mapping" in said.stderr:
        pytest.skip("the sanitizer of threads does not run on this system")
    assert said.returncode in {0, 66}, said.stderr
    return "Location is global" in said.stderr and "_columns" in said.stderr


@pytest.mark.parametrize("half", [12, 20, 40])
def test_members_of_a_team_wait_for_each_other(half: int, tmp_path: Path) -> None:
    assert not raced(half, tmp_path)


def test_a_wait_that_is_missing_is_seen(tmp_path: Path) -> None:
    assert raced(12, tmp_path, broken=True)
