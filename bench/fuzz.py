"""Does damaged input harm: hang, crash, take gigabytes, end in a traceback, or give other numbers without a word?

usage: fuzz.py [--count 100000] [--whole 1000] [--seed 1] [--replay N,N] [--smallest]

Small good files (images with every type of mask, PSFs of two versions, fibre maps, frames, lists of frames, manifests)
are damaged at random: cards, HDUs, bytes, sizes, gzip. Each is read, one in ten is extracted and its frame written;
--whole of them go through the whole command. They run in a process of their own, which may take 10 s of CPU (to extract
longer: kernels may be compiled) and 1 GB more than twice the file. Good is: refused in one line that names the file
(exit code 2), or done, with all numbers finite, and the same as without the damage where that has left the data alone.
Prints how many were which, each that was BAD, and ends with 1 if any was. --replay runs cases by number in this
process, with their tracebacks (w in front: a whole command); the file is kept.
"""
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

# as the programs have it: threads of a library that wait for each other take three times as long on a busy machine
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from gpu_extract.perf import clock

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from fuzz_cases import BAD, Cases, Verdict
from parsing import parser_of

SECONDS = 10  # of CPU: on a busy machine, too
COMPILING = 120  # seconds that an extraction may take: it compiles kernels that no other case has needed
PATIENCE = 6  # times those seconds by the clock: the machine may be busy
MEMORY = 1_000_000_000


class TooLong(BaseException):
    """The time of a case is over."""


def work(pipe: Connection, cases: Cases, seed: int, numbers: list[tuple[int, bool]]) -> None:
    """Run cases one after the other, and tell of each."""

    def over(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, over)
    warnings.simplefilter("error", RuntimeWarning)      # of numpy's: a number that is none
    cases.extracts = lambda: signal.setitimer(signal.ITIMER_PROF, COMPILING)
    for number, whole in numbers:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            verdict = cases.run(seed, number, whole=whole)
        except TooLong:
            verdict = Verdict(BAD, "?", cases.last, f"more than {SECONDS} s: {traceback.format_exc(limit=-4)}")
        except BaseException as error:
            words = f"{type(error).__name__}: {error}: {traceback.format_exc(limit=-3)}"
            verdict = Verdict(BAD, "?", cases.last, words)
        signal.setitimer(signal.ITIMER_PROF, 0)
        taken = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        size = max((path.stat().st_size for path in cases.folder.glob("bad.fits*")), default=0)
        if taken > MEMORY + 2 * size:
            words = f"{taken / 1e6:.0f} MB for a file of {size / 1e6:.1f} MB"
            verdict = Verdict(BAD, verdict.kind, verdict.done, words)
        pipe.send((number, whole, verdict))
    pipe.close()


def run_all(cases: Cases, seed: int, numbers: list[tuple[int, bool]],
            seconds: float = float("inf")) -> Counter[tuple[str, str]]:
    """All of them, in processes that are started again where one dies; how many came to what. BAD ones are said."""
    found: Counter[tuple[str, str]] = Counter()
    start = clock.now()
    while numbers and clock.now() - start < seconds:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=work, args=(theirs, cases, seed, numbers))
        process.start()
        theirs.close()
        while numbers and clock.now() - start < seconds:
            try:
                there = ours.poll(PATIENCE * (SECONDS + COMPILING))
                number, whole, verdict = ours.recv() if there else (*numbers[0], None)
            except EOFError:
                number, whole, verdict = *numbers[0], None
            verdict = verdict or Verdict(BAD, "?", "", f"the process died or hung, code {process.exitcode}")
            numbers = numbers[1:]
            found[verdict.kind + " whole" * whole, verdict.verdict] += 1
            if verdict.verdict == BAD:
                print(f"BAD {'w' * whole}{number}: {verdict.kind}: {verdict.done}: {verdict.words}", flush=True)
            if verdict.words.startswith("the process died"):
                break
        process.kill()
        process.join()
    return found


def replay(cases: Cases, seed: int, names: list[str]) -> None:
    """Some cases again, by number."""
    for name in names:
        print(name, cases.run(seed, int(name.lstrip("w")), whole=name.startswith("w")), flush=True)


def main() -> int:
    """Run the bench; 1 if a case was BAD."""
    parser = parser_of(__doc__, count=100_000, whole=1000, first=0, seed=1)
    parser.add_argument("--replay", metavar="N,N")
    args = parser.parse_args()
    count, whole = (100, 4) if args.smallest else (args.count, args.whole)
    with tempfile.TemporaryDirectory() as name:
        cases = Cases(Path(name)).prepare()
        if args.replay:
            replay(Cases(Path(tempfile.mkdtemp(prefix="fuzz-"))), args.seed, args.replay.split(","))
            return 0
        start = clock.now()
        numbers = [(args.first + n, kind) for kind, many in ((True, whole), (False, count)) for n in range(many)]
        found = run_all(cases, args.seed, numbers, 30 if args.smallest else float("inf"))
    for kind in sorted({kind for kind, _ in found}):
        print(f"{kind}: " + ", ".join(f"{n} {verdict}" for (of, verdict), n in sorted(found.items()) if of == kind))
    bad = sum(n for (_, verdict), n in found.items() if verdict == BAD)
    print(f"{sum(found.values())} cases of seed {args.seed} in {clock.now() - start:.0f} s: {bad} BAD")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
