"""How sure is the test for regressions: planted slowdowns found, flat histories flagged, by length and repeats?

usage: histories.py [--histories 1000] [--noise 0.03] [--slower 1.10] [--smallest]

Seeded synthetic histories: every repeat of a commit is off by that noise (log-normal); in one set everything is slower
from a random commit on (neither the first two nor the last), in the other nothing changes. "found" is the share whose
slowdown is reported within one commit of its place; "a commit later" the share that is reported when only one further
commit is known (with at least eight before); "flagged" the share of flat ones with any report.
Exit code 1 where 60 commits with 5 repeats miss 99 % found or 1 % flagged.
"""
import argparse
import sys

import numpy as np

from gpu_perf.changes import find_changes

CASES = ((20, 5), (60, 1), (60, 3), (60, 5), (200, 5))


def shares(commits: int, repeats: int, args: argparse.Namespace) -> tuple[float, float, float]:
    """found, a commit later, flagged"""
    found = later = flagged = 0
    for seed in range(args.histories):
        random = np.random.default_rng([seed, commits, repeats])
        flat = np.exp(args.noise * random.standard_normal((commits, repeats)))
        flagged += bool(find_changes(flat.tolist()))
        place = int(random.integers(2, commits - 1))
        slow = np.exp(args.noise * random.standard_normal((commits, repeats)))
        slow[place:] *= args.slower
        found += is_there(slow, place)
        early = max(place, 8)
        shifted = np.exp(args.noise * random.standard_normal((early + 2, repeats)))
        shifted[early:] *= args.slower
        later += is_there(shifted, early)
    return found / args.histories, later / args.histories, flagged / args.histories


def is_there(times: np.ndarray, place: int) -> bool:
    """Whether a slowdown is reported within one commit of `place`."""
    return any(c.ratio > 1 and abs(c.place - place) <= 1 for c in find_changes(times.tolist()))


def main() -> int:
    """Count, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--slower", type=float, default=1.10)
    parser.add_argument("--smallest", action="store_true")
    args = parser.parse_args()
    if args.smallest:
        args.histories = 40
    print(f"{args.histories} histories each, noise {args.noise:.0%} of a repeat, {args.slower:.2f} times slower")
    print("commits repeats   found  a commit later  flagged")
    good = True
    for commits, repeats in CASES:
        found, later, flagged = shares(commits, repeats, args)
        print(f"{commits:7d} {repeats:7d} {found:7.1%} {later:15.1%} {flagged:8.1%}", flush=True)
        if (commits, repeats) == (60, 5):
            good = found >= 0.99 and flagged <= 0.01
    return int(not good and not args.smallest)


if __name__ == "__main__":
    sys.exit(main())
