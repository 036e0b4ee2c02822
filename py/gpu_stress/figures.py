"""The plots of a stress report."""
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_extract.figures.canvas import log_ticks, new_figure, save
from gpu_stress.lines import GIGA, MB
from gpu_stress.machine import GIB
from gpu_stress.nvml import throttled
from gpu_stress.rows import PAUSE, Campaign, Row, cores_busy, gains
from gpu_stress.tables import machine_pairs, module_pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"float16": "#b35806", "float32": "#2166ac", "float64": "#1b7837", "complex64": "#762a83",
           "complex128": "#c51b7d", "int32": "#4d4d4d", "int64": "#878787"}
MARKERS = "osD^vP*X<>"
LINES = {"numpy": "--", "cupy": "-"}
BANDS = ("#a6cee3", "#fdbf6f", "#b2df8a", "#cab2d6", "#fb9a99", "#ffff99", "#999999", "#8dd3c7")
WIDTH, ACROSS = 4.2, 3


def rate_figure(campaign: Campaign, path: Path) -> None:
    """Bytes per second, and GFlop/s if counted, of one process against the array's shape."""
    rows = [r for r in campaign.rows if r.procs == 1 and r.rate]
    tests = list(dict.fromkeys(r.test for r in rows))
    panels: list[tuple[str, str, Callable[[Row], float | None]]] = [
        (test, "MByte/sec, one array one way", lambda r: (r.one_way or 0) / MB) for test in tests]
    panels += [(test, "GFlop/s", lambda r: None if r.flops is None else r.flops / GIGA)
               for test in tests if any(r.test == test and r.flops for r in rows)]
    figure, axes = _grid(-(-len(panels) // ACROSS), min(len(panels), ACROSS), f"One process alone, {campaign.label}")
    for ax, (test, what, value) in zip(axes.flat, panels, strict=False):
        _against_shape(ax, [r for r in rows if r.test == test], value)
        ax.set_title(test)
        ax.set_ylabel(what, fontsize=8)
    _legend(figure, axes, len(panels))
    save(figure, path)


def _against_shape(ax: "Axes", rows: Sequence[Row], value: Callable[[Row], float | None]) -> None:
    shapes = list(dict.fromkeys(r.shape for r in sorted(rows, key=lambda r: r.elements)))
    for module, dtype in dict.fromkeys((r.module, r.dtype) for r in rows):
        points = [(shapes.index(r.shape), value(r)) for r in rows if (r.module, r.dtype) == (module, dtype)]
        known = sorted((x, y) for x, y in points if y)
        if known:
            ax.plot(*zip(*known, strict=True), marker="o", color=COLOURS[dtype], linestyle=LINES[module],
                    markerfacecolor="white" if module == "numpy" else None, label=f"{dtype}, {module}")
    ax.set_xticks(range(len(shapes)), shapes, fontsize=8)
    ax.margins(x=0.15)
    values = [y for r in rows if (y := value(r))]
    if values:
        low, high = min(values), max(values)
        room = max(1.3, np.sqrt(10 * low / high))       # at least a decade, so that there are ticks
        ax.set_yscale("log")
        ax.set_ylim(low / room, high * room)
        log_ticks(ax.yaxis)
    ax.grid(True, which="major", alpha=0.3)


def sharing_figure(campaign: Campaign, path: Path) -> None:
    """Work done together, relative to one process, against the number of processes."""
    gain = gains(campaign.rows)
    tests = list(dict.fromkeys((key[0], key[1]) for key, _ in gain))
    shapes = list(dict.fromkeys(r.shape for r in campaign.rows))
    figure, axes = _grid(-(-len(tests) // ACROSS), min(len(tests), ACROSS), f"Sharing, {campaign.label}")
    most = max((n for _, n in gain), default=1)
    for ax, (module, test) in zip(axes.flat, tests, strict=False):
        ax.plot([1, most], [1, most], color="0.6", linewidth=1)
        ax.axhline(1, color="0.6", linewidth=1, linestyle=":")
        for key in dict.fromkeys(k for k, _ in gain if k[:2] == (module, test)):
            points = sorted((n, g) for (k, n), g in gain.items() if k == key)
            ax.plot(*zip(*points, strict=True), color=COLOURS[key[3]], linewidth=1,
                    marker=MARKERS[shapes.index(key[2]) % len(MARKERS)], markersize=5, label=f"{key[2]} {key[3]}")
        ax.set_title(f"{test}, {module}")
        ax.set_xlabel("processes at once")
        ax.set_xticks(sorted({n for _, n in gain}))
        ax.set_ylim(0, max([*(g for g in gain.values()), 1.0]) * 1.15)
        ax.grid(True, alpha=0.3)
        ax.set_ylabel("rate of all together / rate of one alone", fontsize=8)
    _legend(figure, axes, len(tests), extra="grey: each as fast as alone (solid), no gain (dotted)")
    save(figure, path)


def time_figure(campaign: Campaign, path: Path) -> None:
    """Time lines of the samples, without pauses between runs."""
    samples = campaign.samples
    minute = running_minutes(samples)
    busy = dict(cores_busy(samples))
    panels: list[tuple[str, list[Any]]] = [
        ("processes", [len(s["processes"]) for s in samples]),
        ("cores busy", [busy.get(s["t"]) for s in samples]),
        ("memory of the\nprocesses, GiB", [sum(p["rss"] for p in s["processes"]) / GIB for s in samples])]
    for key, title, unit in (("load", "GPU load, %", 1.0), ("memory_used", "GPU memory,\nGiB", GIB),
                             ("power", "GPU power, W", 1.0), ("clock_sm", "GPU clock,\nMHz", 1.0),
                             ("temperature", "GPU,\ndegrees C", 1.0)):
        values = [max((g[key] / unit for g in s["gpus"] if g.get(key) is not None), default=None)
                  for s in samples]
        if any(v is not None for v in values):
            panels.append((title, values))
    figure, axes = _grid(len(panels), 1, "State of the machine during the run, "
                                         f"{campaign.label}", width=10.5, height=1.5)
    tests = _shade(axes[:, 0], campaign, minute)
    for ax, (title, values) in zip(axes[:, 0], panels, strict=True):
        steps = title == "processes"
        ax.plot(minute, np.array(values, dtype=float), color="#2166ac", linewidth=1,
                marker="" if steps else ".", markersize=3, drawstyle="steps-post" if steps else "default")
        ax.set_ylabel(title, fontsize=8)
        ax.set_ylim(0, 1.08 * max((v for v in values if v), default=1.0))
        ax.margins(x=0.01)
    axes[-1, 0].set_xlabel("minutes of running time, without pauses; red lines: a GPU reduced its clocks")
    figure.legend(tests.values(), tests, loc="outside lower center", ncols=8, fontsize=7)
    save(figure, path)


def running_minutes(samples: Sequence[dict[str, Any]]) -> np.ndarray:
    """Minutes since the first sample, with longer pauses shortened to PAUSE seconds."""
    times = np.array([s["t"] for s in samples])
    return np.concatenate([[0.0], np.cumsum(np.clip(np.diff(times), 0.0, PAUSE))]) / 60


def _shade(axes: Sequence["Axes"], campaign: Campaign, minute: np.ndarray) -> dict[str, Any]:
    """Colour the background by test, and mark reduced clocks; returns {test: its patch}."""
    samples = campaign.samples
    tests = [_test_of(s["set"], campaign) for s in samples]
    patches: dict[str, Any] = {}
    starts = [0] + [i for i in range(1, len(tests)) if tests[i] != tests[i - 1]]
    for start, end in zip(starts, [*starts[1:], len(tests) - 1], strict=True):
        number = list(dict.fromkeys(tests)).index(tests[start])
        for ax in axes:
            patches[tests[start]] = ax.axvspan(minute[start], minute[end], linewidth=0, alpha=0.25,
                                               color=BANDS[number % len(BANDS)])
    for t, sample in zip(minute, samples, strict=True):
        if any(throttled(g) for g in sample["gpus"]):
            for ax in axes:
                ax.axvline(t, color="#d73027", alpha=0.4, linewidth=1)
    return patches


def _test_of(name: str, campaign: Campaign) -> str:
    """The test of a set, from its name MODULE-TEST-SHAPE-DTYPE-Np."""
    module, test, *_ = name.split("-")
    return test if len({r.module for r in campaign.rows}) < 2 else f"{test}, {module}"


def ratio_figure(pairs: Sequence[tuple[Row, Row]], title: str, path: Path) -> None:
    """Second rate to first as bars, one for each set."""
    several = len({a.module for a, _ in pairs}) > 1
    names = [f"{a.test} {a.shape} {a.dtype}, {a.procs} proc." + f", {a.module}" * several for a, _ in pairs]
    ratios = [(b.rate or 0) / (a.rate or 1) for a, b in pairs]
    figure, axes = _grid(1, 1, title, width=8.0, height=1.2 + 0.22 * len(names))
    ax = axes[0, 0]
    places = np.arange(len(names))
    ax.barh(places, np.array(ratios) - 1, left=1, color=[COLOURS[a.dtype] for a, _ in pairs], height=0.7)
    for place, ratio in zip(places, ratios, strict=True):
        ax.annotate(f"{ratio:.3g}", (ratio, place), xytext=(3 if ratio >= 1 else -3, 0),
                    textcoords="offset points", fontsize=7, va="center", ha="left" if ratio >= 1 else "right")
    ax.axvline(1, color="0.3", linewidth=1)
    ax.set_yticks(places, names, fontsize=7)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.margins(x=0.15, y=0.01)
    log_ticks(ax.xaxis, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
    ax.set_xlabel("ratio of rates")
    ax.grid(True, axis="x", which="both", alpha=0.3)
    save(figure, path)


def draw(campaigns: Sequence[Campaign], folder: Path) -> list[tuple[Path, str]]:
    """Draw all plots that the data allow; returns (file, caption) of each."""
    made: list[tuple[Path, str]] = []

    def add(name: str, caption: str, draw_it: Callable[[Path], None]) -> None:
        draw_it(folder / f"{name}.png")
        made.append((folder / f"{name}.png", caption))

    for number, campaign in enumerate(campaigns):
        suffix = f"-{number + 1}" if len(campaigns) > 1 else ""
        for name, caption, show, drawn in (
                ("rate", "Rate and bandwidth against shape and dtype",
                 any(r.procs == 1 and r.rate for r in campaign.rows), rate_figure),
                ("sharing", "Sharing against process count", bool(gains(campaign.rows)), sharing_figure),
                ("time", "Time lines of the samples", len(campaign.samples) > 1, time_figure)):
            if show:
                add(f"{name}{suffix}", f"{caption}, {campaign.label}", partial(drawn, campaign))
        compared = f"cupy against numpy, {campaign.label}"
        if pairs := module_pairs(campaign):
            add(f"modules{suffix}", compared, partial(ratio_figure, pairs, compared))
    for number, other in enumerate(campaigns[1:], 2):
        compared = f"{other.label} against {campaigns[0].label}"
        if pairs := machine_pairs(campaigns[0], other):
            add(f"machines-{number}", compared, partial(ratio_figure, pairs, compared))
    return made


def _grid(rows: int, columns: int, title: str, width: float | None = None,
          height: float = 3.2) -> "tuple[Figure, Any]":
    figure = new_figure(width or max(WIDTH * columns, 6.0), height * rows + 0.8)
    figure.suptitle(title, fontsize=11)
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=columns == 1)


def _legend(figure: "Figure", axes: Any, used: int, extra: str = "") -> None:
    """Draw one legend below all panels, and remove unused panels."""
    for ax in axes.flat[used:]:
        ax.set_visible(False)
    entries: dict[str, Any] = {}
    for ax in axes.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", title=extra or None,
                  ncols=min(len(entries), 2 * axes.shape[1] + 1), fontsize=7, title_fontsize=7)
