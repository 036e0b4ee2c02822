"""How sure is the test for regressions: planted slowdowns found, flat histories flagged, by length and repeats?

usage: histories.py [--histories 1000] [--noise 0.03] [--slower 1.10] [--smallest]

Seeded synthetic histories: every repeat of a commit is off by that noise (log-normal); in one set everything is slower
from a random commit on (neither the first two nor the last), in the other nothing changes. "found" is the share whose
slowdown is reported within one commit of its place; "a commit later" the share that is reported when only one further
commit is known (with at least eight before); "flagged" the share of flat ones with any report.
The columns "ruptures" hold up to 100 of the same histories against that library's exact searches, where it is installed
(Dynp for one change, Pelt for any number with a penalty as strict as ours): "same place" is the share of those found
whose place is that of the exact search, to a commit; "agreed flat" the share of flat histories in which neither reports
a change.
Exit code 1 where 60 commits with 5 repeats miss 99 % found or 1 % flagged, or more than 1 % of the places differ from
those of ruptures.
"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from parsing import parser_of
from scipy.special import stdtrit

from gpu_perf.changes import ALPHA, centres, find_changes, noise_of

CHECKED = 100           # histories that ruptures looks at: its searches are exact, and slow
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


def against_ruptures(commits: int, repeats: int, args: argparse.Namespace) -> tuple[float, float] | None:
    """same place, agreed flat; None where ruptures is not installed"""
    try:
        import ruptures
    except ImportError:
        return None
    found = same = flat = 0
    for seed in range(min(args.histories, CHECKED)):
        random = np.random.default_rng([seed, commits, repeats])
        quiet = np.exp(args.noise * random.standard_normal((commits, repeats)))
        place = int(random.integers(2, commits - 1))
        slow = np.exp(args.noise * random.standard_normal((commits, repeats)))
        slow[place:] *= args.slower
        own = find_changes(slow.tolist())
        if len(own) == 1:
            found += 1
            best = ruptures.Dynp(model="l2", min_size=1, jump=1).fit(centres(slow.tolist())).predict(n_bkps=1)[0]
            same += abs(best - own[0].place) <= 1
        values = centres(quiet.tolist())
        # a change must be as sure as ours: the gain in squares that a t of that probability has
        noise, freedom = noise_of(values)
        penalty = noise**2 * stdtrit(freedom, 1 - ALPHA / (2 * (commits - 1))) ** 2
        theirs = ruptures.Pelt(model="l2", min_size=1, jump=1).fit(values).predict(pen=penalty)
        flat += not find_changes(quiet.tolist()) and len(theirs) == 1
    return same / max(found, 1), flat / min(args.histories, CHECKED)


def is_there(times: np.ndarray, place: int) -> bool:
    """Whether a slowdown is reported within one commit of `place`."""
    return any(c.ratio > 1 and abs(c.place - place) <= 1 for c in find_changes(times.tolist()))


def main() -> int:
    """Count, print, judge."""
    args = parser_of(__doc__, histories=1000, noise=0.03, slower=1.10).parse_args()
    if args.smallest:
        args.histories = 40
    print(f"{args.histories} histories each, noise {args.noise:.0%} of a repeat, {args.slower:.2f} times slower")
    print("commits repeats   found  a commit later  flagged   ruptures: same place  agreed flat")
    good = True
    for commits, repeats in CASES:
        found, later, flagged = shares(commits, repeats, args)
        checked = against_ruptures(commits, repeats, args)
        beside = "not installed" if checked is None else f"{checked[0]:20.1%} {checked[1]:12.1%}"
        print(f"{commits:7d} {repeats:7d} {found:7.1%} {later:15.1%} {flagged:8.1%}   {beside}", flush=True)
        if (commits, repeats) == (60, 5):
            good = found >= 0.99 and flagged <= 0.01 and (checked is None or checked[0] >= 0.99)
    return int(not good and not args.smallest)


if __name__ == "__main__":
    sys.exit(main())
