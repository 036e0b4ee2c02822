"""What breaks an extraction? Random problems against the oracle, both cores.

usage: search.py [--seed 0] [--count 1300] [--only KIND] [--replay SEED] [--smallest] [--device] [--uneven] [--pads]
       [--strange]

Each seed is a problem (bench/tools/problems.py): a PSF of one of six families with perturbed coefficients, 1 to 6
fibres, steps of 0.2 to 40 Angstrom, ranges at all edges of CCD and PSF, honest ivars that vary by 1e4, and a kind of
mask: the seed's remainder by the number of kinds. --only: one kind, or "masks", all kinds with masked pixels, as many
problems as --count says. --replay: one problem, in detail. --device: by a device that is simulated, too. --uneven: each
fibre has its own pitch and width, and traces may begin in other rows.

--pads: problems of another kind instead, with light far beyond both ends of the range and masks there. Bins are
compared with the same ones of a range that goes on as far as the light, where the banded core makes them; both may be
off by the bound.

--strange: problems of other kinds (bench/tools/strange_problems.py), with odd PSFs, light and pixels. Flux may be off
by the error of the poles as well, 1.5e-10 times the largest S/N of a fibre.

A problem is wrong where an unflagged bin (flags: WEAKBIN, NODATA, ODDPIX) is off by more than max(1e-8 sigma,
100 eps cond), elements of R in units of the largest of their row, or of 1 (bench/tools/judging.py); rash where one is
unflagged that double precision cannot tell from others; strict where one is flagged that keeps 10 % of the information
that it has with all pixels good; lost where there is no frame. The exit code is 1 where there is any of these.
"""
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import numpy as np
from judging import EPS, FLAGS, FLOOR, Truth, Verdict, judge, report, truth
from parsing import parser_of
from problems import BEYOND, FAMILIES, KINDS, OF_EIGHT, Problem, make, make_of_pads, seeds
from strange_problems import STRANGE, make_strange

from gpu_extract.data import Status
from gpu_extract.errors import GpuExtractError
from gpu_extract.run import extract

CORES = ["auto", "dense"]
Draw = Callable[[int], Problem | None]


def pads_hold(wanted: Sequence[int]) -> bool:
    """Whether bins of a range are those of a longer one, in all problems of pads; prints those where they are not."""
    made, right = 0, True
    for problem in filter(None, map(make_of_pads, wanted)):
        (first, last, step), made = problem.config.wavelength, made + 1
        far = (BEYOND - 2) * step
        try:
            frame, longer = (extract(problem.image, problem.psf, replace(problem.config, wavelength=wavelength))
                             for wavelength in ((first, last, step), (first - far, last + far, step)))
        except (GpuExtractError, ArithmeticError, ValueError, Warning) as error:
            print(f"{problem.name}: lost: {type(error).__name__}: {error}", flush=True)
            right = False
            continue
        inner = slice(BEYOND - 2, BEYOND - 2 + frame.flux.shape[1])
        ivar, told = longer.ivar[:, inner], ((frame.mask | longer.mask[:, inner]) & FLAGS) == 0
        told &= longer.status[:, inner] < Status.DENSE       # of others no condition number is known
        of_flux = np.abs(frame.flux - longer.flux[:, inner]) * np.sqrt(ivar)
        of_ivar = np.abs(np.divide(frame.ivar, ivar, out=np.ones_like(ivar), where=ivar > 0) - 1)
        most = float(np.maximum(of_flux, of_ivar)[told].max(initial=0.0))
        cond = max(notes["cond"] for notes in (*frame.notes["bundles"].values(), *longer.notes["bundles"].values()))
        if most > 2 * max(FLOOR, 100 * EPS * cond):
            print(f"{problem.name}: pads of {frame.notes['pad']} bins leave {most:.1e}, cond {cond:.0e}", flush=True)
            right = False
    print(f"{made} problems of pads: {'none is' if right else 'some are'} broken")
    return right


def search(wanted: list[int], draw: Draw) -> dict[str, list[tuple[int, str, Verdict, Truth]]]:
    """Kind of problem -> seed, core, verdict and truth of each; draw: the problem of a seed."""
    found = defaultdict(list)
    for seed in wanted:
        problem = draw(seed)
        if problem is None:
            found["(PSF file absent)"].append((seed, "", None, None))
            continue
        known = truth(problem)
        verdicts = [(seed, core, judge(problem, core, known), known) for core in CORES]
        found[problem.kind] += verdicts
        for _, core, verdict, _ in verdicts:
            if verdict.broken:      # now: a search may take hours
                print("\n".join(report(problem, core, verdict, known)), flush=True)
    return found


def table(found: dict[str, list[tuple[int, str, Verdict, Truth]]]) -> bool:
    """Print what was found; whether nothing is broken."""
    print("kind       frames  lost  wrong  rash strict  flagged    weak  worst unflagged / bound")
    right = True
    for kind in (*KINDS, *STRANGE):
        rows = found.get(kind, [])
        if not rows:
            continue
        verdicts = [row[2] for row in rows]
        counts = [sum(bool(v.lost) for v in verdicts),
                  *(sum(bool(getattr(v, name).any()) for v in verdicts) for name in ("wrong", "rash", "strict"))]
        flagged = np.mean(np.concatenate([v.flagged.ravel() for v in verdicts]))
        weak = np.mean(np.concatenate([row[3].weak.ravel() for row in rows]))
        worst = max(rows, key=lambda row: row[2].worst)
        broken = sorted({row[0] for row in rows if row[2].broken})
        print(f"{kind:10s} {len(rows):6d} {counts[0]:5d} {counts[1]:6d} {counts[2]:5d} {counts[3]:6d} {flagged:8.3%} "
              f"{weak:7.3%}  {worst[2].worst:.2g} (seed {worst[0]}, {worst[1]})"
              + (f"; broken: {', '.join(map(str, broken[:8]))}{', ...' if len(broken) > 8 else ''}" if broken else ""))
        right &= not broken
    absent = len(found.get("(PSF file absent)", []))
    if absent:
        print(f"{absent} problems left out: the file of their PSF is absent (families {', '.join(FAMILIES)})")
    return right


def main() -> int:
    """Search and print."""
    parser = parser_of(__doc__, seed=0, count=1300, device=False, uneven=False, pads=False, strange=False)
    parser.add_argument("--only", choices=(*KINDS, "masks"))
    parser.add_argument("--replay", type=int)
    args = parser.parse_args()
    warnings.simplefilter("error")
    if args.device:
        CORES.append("device")
    if args.pads:
        return 0 if pads_hold(range(args.seed, args.seed + args.count)) else 1
    draw: Draw = make_strange if args.strange else partial(make, uneven=args.uneven)
    if args.replay is not None:
        problem = draw(args.replay)
        if problem is None:
            print("the file of its PSF is absent")
            return 1
        known = truth(problem)
        verdicts = {core: judge(problem, core, known) for core in CORES}
        for core, verdict in verdicts.items():
            print("\n".join(report(problem, core, verdict, known)))
        return int(any(verdict.broken for verdict in verdicts.values()))
    if args.smallest:
        chosen = [first for first, _ in OF_EIGHT.values()]
    elif args.strange:
        chosen = list(range(args.seed, args.seed + args.count))
    else:
        chosen = seeds(args.seed, args.count, only=args.only)
    found = search(chosen, draw)
    return 0 if table(found) else 1


if __name__ == "__main__":
    sys.exit(main())
