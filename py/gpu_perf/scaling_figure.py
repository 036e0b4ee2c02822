"""Scaling: run time, efficiency and POP metrics against ranks, with the ideal lines and published figures."""
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_extract.errors import FileName
from gpu_extract.figures.canvas import log_ticks, new_figure, save, tidy
from gpu_perf.sweep_results import Curve, Spread

COLOURS = ("#2166ac", "#d95f02", "#1b7837", "#7b3294", "#c51b7d", "#4d4d4d")
STYLES = ("-", "--", ":", "-.")


def scaling_figure(path: FileName, curves: Sequence[Curve], time: str) -> None:
    """Draw a row of three panels for each mode. time: meaning of the seconds, for the axis label."""
    modes = list(dict.fromkeys(c.mode for c in curves if not c.published))
    figure = new_figure(12.5, 3.9 * len(modes))
    for row, mode in enumerate(modes):
        own = [c for c in curves if c.mode == mode]
        axes = [figure.add_subplot(len(modes), 3, 3 * row + column + 1) for column in range(3)]
        _seconds(axes[0], own, mode)
        _efficiency(axes[1], own)
        _metrics(axes[2], [c for c in own if not c.published])
        most = max(n for c in own for n in c.seconds)
        for ax, ylabel in zip(axes, (f"{time}, s", "efficiency", "POP metrics"), strict=True):
            tidy(ax, xlabel="ranks", ylabel=ylabel)
            ax.set_xticks(sorted({n for c in own for n in c.seconds}))
            ax.set_xlim(1 - 0.04 * most, 1.08 * most)
        axes[0].set_title(f"{mode} scaling: " + ("a fixed frame" if mode == "strong" else "one bundle per rank"),
                          fontsize=10, loc="left")
    save(figure, path)


def _seconds(ax: Any, curves: Sequence[Curve], mode: str) -> None:
    for number, curve in enumerate(curves):
        _draw(ax, curve.seconds, number, curve)
        first = min(curve.seconds, default=0)
        if first and not curve.published:
            ranks = sorted({n for c in curves for n in c.seconds})
            top = curve.seconds[first][1]
            ideal = [top * first / n if mode == "strong" else top for n in ranks]
            ax.plot(ranks, ideal, color="0.7", lw=0.8, zorder=0)
    ax.set_yscale("log")
    log_ticks(ax.yaxis)
    ax.plot([], [], color="0.7", lw=0.8, label="ideal")
    ax.legend(frameon=False, fontsize=7)


def _efficiency(ax: Any, curves: Sequence[Curve]) -> None:
    for number, curve in enumerate(curves):
        _draw(ax, curve.efficiency, number, curve)
    ax.axhline(1, color="0.7", lw=0.8, zorder=0)
    ax.set_ylim(0, None)


def _metrics(ax: Any, curves: Sequence[Curve]) -> None:
    names = list(dict.fromkeys(n for c in curves for n in c.metrics))
    for number, curve in enumerate(curves):
        for style, name in enumerate(names):
            points = sorted(curve.metrics.get(name, {}).items())
            ax.plot([n for n, _ in points], [s[1] for _, s in points], STYLES[style % len(STYLES)] + "o", ms=4,
                    color=COLOURS[number % len(COLOURS)])
    for style, name in enumerate(names):
        ax.plot([], [], STYLES[style % len(STYLES)], color="0.3", label=name)
    ax.axhline(1, color="0.7", lw=0.8, zorder=0)
    ax.set_ylim(0, None)
    ax.legend(frameon=False, fontsize=7)


def _draw(ax: Any, values: Mapping[int, Spread], number: int, curve: Curve) -> None:
    """Medians with bars from the lowest to the highest repeat; published figures are single and grey."""
    points = sorted(values.items())
    if not points:
        return
    ranks = [n for n, _ in points]
    if curve.published:
        style = STYLES[number % len(STYLES)]
        ax.plot(ranks, [s[1] for _, s in points], style, marker="s", ms=3, lw=0.9, color="0.55", label=curve.label)
        return
    bars = [[s[1] - s[0] for _, s in points], [s[2] - s[1] for _, s in points]]
    ax.errorbar(ranks, [s[1] for _, s in points], yerr=bars, fmt="-o", ms=4, lw=1.4, capsize=3,
                color=COLOURS[number % len(COLOURS)], label=curve.label)
