"""Where does scaling bend beyond this machine? The model of doc/scaling.md: measured, checked, up to 4096 ranks.

usage: forecast.py [--measure] [--costs FILE.json] [--folder DIR] [--figures DIR] [--page FILE.md] [--smallest]

--measure runs exposures of simulated frames on one rank and on two (as one group and as two), takes the costs of the
pieces and their spread from the one-rank run's record, what two ranks add from the others, and writes them to --costs
(default bench/forecast.json). Without it the costs are read from there. Then it prints the inputs, the model against
the points measured, and the tables; --figures draws them, --page puts what is printed into the page, between its marks.
On a machine that other work uses the measured points, and so the check, mean nothing.
"""
import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from gpu_extract.assess.forecast import Cost, Costs, Machine, exposure, extraction, interval
from gpu_extract.perf.source import commit

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from ranks import launcher, program

from exposure import judge

FRAMES = 4
BEGIN, END = "<!-- measured -->", "<!-- end of what is measured -->"
EXCHANGED = 30e6        # bytes of a bundle's normal equations (22 MB) and results, computed from their shapes
RANKS = (1, 2, 4, 8, 16, 20, 32, 64, 128, 256, 512, 1024, 2048, 4096)
# described, not measured: two sockets of 64 cores, one rank each; a core like the one measured on; all cores at work
# take 1.6 times as long for a piece (memory bandwidth, clock); 100 Gbit/s between nodes; a parallel file system with
# 50 GB/s and 50000 opens a second for everybody
NODE = Machine(cores=128, crowding=1.6, latency=2e-6, bandwidth=12e9, files=50e9, opens=5e4)


def record(frames: int, ranks: int, groups: int, folder: Path, small: bool) -> list[dict[str, Any]]:
    """What the ranks of an exposure recorded."""
    path = folder / "perf.json"
    words = ["-w", "6030,6080,0.8", "--camera", "tiny"] if small else ["--camera", "r0"]
    subprocess.run([*launcher(ranks if ranks > 1 else 0), *program("gpu_extract_exposure"), "--simulate", str(frames),
                    "-o", str(folder), "--groups", str(groups), "--recompute", "--no-gpu", "--loglevel", "warning",
                    "--perf", str(path), *words], check=True)
    ranks_found: list[dict[str, Any]] = json.loads(path.read_text())["ranks"]
    return ranks_found


def cost(ranks: Sequence[dict[str, Any]], name: str, frames: int, column: int = 3) -> list[float]:
    """Mean and standard deviation of a span over the pieces of a frame; column 3: wall, 4: CPU seconds.

    Of each piece the fastest of all frames counts: what a piece costs, without what disturbed it.
    """
    values = [s[column] for rank in ranks for s in rank["spans"] if s[0] == name]
    if not values:
        return [0.0, 0.0]
    pieces = np.array(values[:len(values) // frames * frames]).reshape(frames, -1).min(axis=0)
    return [float(pieces.mean()), float(pieces.std())]


def measure(folder: Path, small: bool) -> dict[str, Any]:
    """The costs of the pieces, and the points to check the model with."""
    frames = 2 if small else FRAMES
    one = record(frames, 1, 1, folder, small)
    shared = record(frames, 2, 1, folder, small)
    apart = record(frames, 2, 2, folder, small)
    per_frame = len([s for s in one[0]["spans"] if s[0] == "bundle"]) // frames
    bundle = cost(one, "bundle", frames)
    starts = [sum(cpu for _, cpu in rank["start"].values()) for rank in [*one, *shared, *apart]]
    images = sorted(folder.glob("simulated/*/preproc-*"))
    outputs = sorted(folder.glob("frame-*.fits"))
    points = [{"ranks": len(ranks), "groups": groups, "frames": frames,
               "seconds": judge(ranks, len(ranks))["seconds"]}
              for ranks, groups in ((one, 1), (shared, 1), (apart, 2))]
    bundles = {f"{len(ranks)} ranks, {groups} groups": cost(ranks, "bundle", frames // groups)[0]
               for ranks, groups in ((one, 1), (shared, 1), (apart, 2))}
    return {"bundles": per_frame, "start": [statistics.fmean(starts), statistics.pstdev(starts)],
            "plan": cost(one, "plan", frames), "bundle": bundle,
            "alone": (cost(one, "solve", frames)[0] + cost(one, "cut", frames)[0]) / bundle[0], "pieces": 10,
            "exchanged": EXCHANGED,
            "gather": [cost(shared[:1], "gather", frames)[0] / max(per_frame / 2, 1), 0.0],
            "assemble": cost(one, "assemble", frames), "share": cost(shared[:1], "wait for input", frames),
            "read": cost(one, "read", frames, 4), "write": cost(one, "write", frames, 4),
            "read_bytes": images[0].stat().st_size, "write_bytes": outputs[0].stat().st_size, "modules": 1100,
            "points": points, "bundle seconds": bundles}


def costs_of(found: dict[str, Any]) -> Costs:
    """The costs in a record."""
    spread = {name: Cost(*found[name]) for name in ("start", "plan", "bundle", "gather", "assemble", "share", "read",
                                                    "write")}
    plain = {name: found[name] for name in ("alone", "pieces", "exchanged", "read_bytes", "write_bytes", "modules")}
    return Costs(**spread, **plain)


def text(values: np.ndarray, digits: int = 2) -> str:
    """Median with the bounds of the middle 68 %."""
    middle, low, high = interval(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def check(found: dict[str, Any], costs: Costs) -> bool:
    """The model against the points measured, on a machine of as many cores; whether all lie within a quarter."""
    good = True
    print("\nranks groups frames  measured s  model s (68 %)       ratio")
    for point in found["points"]:
        ranks, groups, frames = point["ranks"], point["groups"], point["frames"]
        beside = found["bundle seconds"][f"{ranks} ranks, {groups} groups"] / found["bundle"][0]
        here = Machine(cores=ranks, crowding=beside, bandwidth=1e12, latency=1e-6)
        rng = np.random.default_rng(1)
        seconds = sum((extraction(costs, here, ranks // groups, found["bundles"], busy=ranks, draws=400, rng=rng,
                                  io=True) for _ in range(frames // groups)), start=np.zeros(400))
        ratio = float(np.median(seconds)) / point["seconds"]
        good = good and 0.75 < ratio < 1.33
        print(f"{ranks:5d}{groups:7d}{frames:7d}{point['seconds']:12.2f}  {text(seconds):20} {ratio:.2f}")
    return good


def tables(costs: Costs) -> dict[str, dict[str, list[tuple[float, float, float]]]]:
    """Print, and return for the figures: seconds and efficiencies against ranks."""
    curves: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    rng = np.random.default_rng(2)
    one = extraction(costs, NODE, 1, 20, busy=1, draws=400, rng=rng)
    print("\none frame on n ranks (strong), one frame for every 20 ranks (weak), 30 frames with their start\n"
          " ranks  strong s (68 %)       efficiency  weak s               30 frames s          of it start s")
    for ranks in RANKS:
        strong = extraction(costs, NODE, ranks, 20, busy=ranks, draws=400, rng=rng)
        weak = exposure(costs, NODE, max(ranks // 20, 1), ranks, started=True)
        night = exposure(costs, NODE, 30, ranks)
        efficiency = float(np.median(one)) / (ranks * strong)
        for name, values in (("strong", strong), ("weak", weak["all"]), ("30 frames", night["all"]),
                             ("start-up", night["start"]), ("efficiency", efficiency)):
            curves.setdefault(name, {}).setdefault("y", []).append(interval(values))
        print(f"{ranks:6d}  {text(strong, 3):21} {np.median(efficiency):8.3f}    {text(weak['all']):20} "
              f"{text(night['all']):20} {text(night['start'])}")
    hour = exposure(costs, NODE, 3000, NODE.cores, started=True, draws=50)
    print(f"\nframes per node-hour, {NODE.cores} cores, long after the start: {text(3600 * 3000 / hour['all'], 0)}")
    return curves


def draw(curves: dict[str, dict[str, list[tuple[float, float, float]]]], folder: Path) -> None:
    """Seconds against ranks, with the middle 68 % of the draws."""
    from gpu_extract.figures.canvas import new_figure, save, tidy

    figure = new_figure(8.4, 3.6)
    for place, names, label in ((1, ("strong", "weak", "30 frames", "start-up"), "seconds"),
                                (2, ("efficiency",), "efficiency of one frame on n ranks")):
        ax = figure.add_subplot(1, 2, place)
        for name in names:
            middle, low, high = np.array(curves[name]["y"]).T
            ax.fill_between(RANKS, low, high, alpha=0.3, lw=0)
            ax.plot(RANKS, middle, lw=1.2, label=name)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log" if place == 1 else "linear")
        tidy(ax, xlabel="ranks", ylabel=label)
        ax.legend(frameon=False, fontsize=8)
    save(figure, folder / "forecast.png")


def main() -> int:
    """Measure or read the costs, check, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--costs", default=str(Path(__file__).with_suffix(".json")))
    parser.add_argument("--folder")
    parser.add_argument("--figures")
    parser.add_argument("--page")
    parser.add_argument("--smallest", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if args.measure or args.smallest:
            found = measure(Path(args.folder or scratch), args.smallest)
            if not args.smallest:
                Path(args.costs).write_text(json.dumps(found, indent=1) + "\n", encoding="ascii")
        else:
            found = json.loads(Path(args.costs).read_text(encoding="ascii"))
    costs = costs_of(found)
    printed = io.StringIO()
    with redirect_stdout(printed):
        print("costs, seconds     mean      sd")
        for name, value in found.items():
            if isinstance(value, list) and name != "points":
                print(f"{name:14}{value[0]:9.4f}{value[1]:8.4f}")
        print(f"not divided among ranks that share a bundle: {costs.alone:.2f}; commit {commit()}")
        good = check(found, costs)
        curves = tables(costs)
    print(printed.getvalue(), end="")
    if args.figures:
        draw(curves, Path(args.figures))
    if args.page:
        page = Path(args.page)
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n```text\n{printed.getvalue()}```\n{END}{after}", encoding="utf-8")
    return 0 if good or args.smallest else 1


if __name__ == "__main__":
    sys.exit(main())
