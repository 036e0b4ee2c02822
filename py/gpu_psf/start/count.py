"""The numbering of fibres: matches the traces that were found to the fibres of the slit.

A missing fibre leaves a gap of two pitches, and there are gaps between bundles. Every numbering of the traces is judged
by the distances between neighbours. The best is used if no other is nearly as good.
"""
from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import make_interp_spline

from gpu_extract.data import Array, IntArray, Legendre
from gpu_extract.errors import InputError
from gpu_psf.series import at_rows
from gpu_psf.start.profiles import Traces

MOST_MISSING = 0.2        # of the fibres
SPREAD = 0.12             # scatter of distances, in pitches
CLEARER = 4.0             # least difference in chi2 between the best numbering and the next
AROUND = 12               # traces whose distances give the pitch at a place
WIDE = 1.35               # pitches: wider steps are gaps
MOST_OFF = 0.4            # largest difference of a step from its numbering, in pitches


@dataclass(frozen=True)
class Slit:
    """The layout of the fibres: count, and size of the bundles, as one number or one for each (None: no gaps between
    bundles).

    skip: traces at small x that are not fibres (e.g. an order without known wavelengths)
    """

    count: int
    bundle: int | tuple[int, ...] | None = None
    skip: int = 0

    @property
    def number(self) -> IntArray:
        """The bundle of each fibre, (count,)."""
        if isinstance(self.bundle, tuple):
            return np.repeat(np.arange(len(self.bundle)), self.bundle)
        return np.arange(self.count) // (self.bundle or self.count)


def match_fibres(traces: Traces, slit: Slit) -> Traces:
    """Traces of exactly the slit's fibres. Missing ones are interpolated between their neighbours, and marked. If there
    are too many traces, those cut off by the CCD's edge are left out.

    Raises InputError if the numbers cannot be matched.
    """
    traces = _on_the_ccd(take(traces, np.arange(slit.skip, len(traces.light))), slit.count)
    n = len(traces.light)
    if n > slit.count:
        raise InputError(f"found {n} traces in the flat, expected {slit.count}: mask bad columns along the traces, "
                         f"which look like fibres (gpu_psf preprocess --bad), or give the flat of this spectrograph, "
                         f"or --fibres {n}")
    middle = at_rows(traces.x, np.array([(traces.x.wmin + traces.x.wmax) / 2]))[:, 0]
    if n == slit.count:
        _check_gaps(_steps(middle), slit)
        return traces
    if n < 3 or not may_be_missing(slit.count - n, slit.count):
        raise InputError(f"found {n} traces in the flat, expected {slit.count}: too many are missing to tell which; "
                         f"give --fibres {n}, or a brighter flat")
    numbers, gap = _numbers(middle, slit)
    return _with_missing(traces, numbers, slit, gap)


def may_be_missing(missing: int, count: int) -> bool:
    """Whether gaps can tell which fibres are missing."""
    return 0 < missing <= max(MOST_MISSING * count, 1)


def _on_the_ccd(traces: Traces, count: int) -> Traces:
    """The traces without surplus outer ones that leave the CCD, first those with the shortest length on it."""
    if len(traces.light) <= count:
        return traces
    y = np.linspace(traces.x.wmin, traces.x.wmax, 64)
    x = at_rows(traces.x, y)
    share = np.mean((x >= 0) & (x <= traces.columns - 1), axis=1)
    kept = list(range(len(share)))
    while len(kept) > count and min(share[kept[0]], share[kept[-1]]) < 0.999:
        kept.pop(0 if share[kept[0]] <= share[kept[-1]] else -1)
    return take(traces, np.array(kept))


def take(traces: Traces, kept: np.ndarray) -> Traces:
    """A subset of the traces."""
    return replace(traces, x=replace(traces.x, coeff=traces.x.coeff[kept]),
                   sigma=replace(traces.sigma, coeff=traces.sigma.coeff[kept]), light=traces.light[kept],
                   error=traces.error[kept], interpolated=traces.interpolated[kept])


def _numbers(x: Array, slit: Slit) -> tuple[np.ndarray, float]:
    """The fibre number of each trace, from the cheapest path through (trace, fibres missing so far), and the gap
    between bundles in pitches."""
    steps, missing = _steps(x), slit.count - len(x)
    gap, bundle = _gap(steps, slit), slit.number
    best = [[(0.0, [k]) for k in range(missing + 1)]]
    for n, step in enumerate(steps):
        row: list[tuple[float, list[int]]] = []
        for total in range(missing + 1):
            ways = []
            for before in range(total + 1):
                cost, path = best[n][before]
                lo, hi = path[-1], n + 1 + total
                expected = (hi - lo) + gap * (bundle[hi] - bundle[lo])
                ways.append((cost + ((step - expected) / (SPREAD * np.sqrt(hi - lo)))**2, [*path, hi]))
            row.append(min(ways, key=lambda way: way[0]))
        best.append(row)
    ends = sorted(((cost, path) for cost, path in best[-1] if path[-1] < slit.count), key=lambda way: way[0])
    if len(ends) > 1 and ends[1][0] - ends[0][0] < CLEARER:
        raise InputError(f"found {len(x)} traces in the flat, expected {slit.count}: the gaps do not tell which are "
                         f"missing; give --fibres {len(x)}, --bundlesize, or another flat")
    numbers = np.array(ends[0][1])
    expected = np.diff(numbers) + gap * np.diff(bundle[numbers])
    if (np.abs(steps - expected) > MOST_OFF * np.sqrt(np.diff(numbers))).any():
        raise InputError(f"found {len(x)} traces in the flat, {_grouped(steps)}, expected {slit.count}{_sized(slit)}: "
                         f"no missing fibres explain these gaps; give --fibres {len(x)}, or the right --bundlesize")
    return numbers, gap


def _check_gaps(steps: Array, slit: Slit) -> None:
    """Raise InputError where gaps are seen within bundles."""
    if slit.bundle is not None and ((steps > WIDE) & (np.diff(slit.number) == 0)).any():
        raise InputError(f"found {len(steps) + 1} traces in the flat, {_grouped(steps)}, expected "
                         f"{slit.count}{_sized(slit)}: give the right --bundlesize, or none")


def _steps(x: Array) -> Array:
    """Distances between neighbours in pitches."""
    steps = np.diff(x)
    around = [steps[max(n - AROUND, 0):n + AROUND + 1] for n in range(len(steps))]
    return steps / np.array([np.median(near[near < 1.5 * np.quantile(near, 0.25)]) for near in around])   # of no gaps


def _grouped(steps: Array) -> str:
    """The numbers of traces between gaps, in words."""
    groups = np.diff([-1, *np.flatnonzero(steps > WIDE), len(steps)])
    return f"{' | '.join(map(str, groups))} between gaps" if len(groups) > 1 else "without a gap"


def _sized(slit: Slit) -> str:
    if slit.bundle is None:
        return ""
    return f", bundles of {' | '.join(map(str, np.bincount(slit.number)))}"


def _gap(steps: Array, slit: Slit) -> float:
    """Extra distance at a gap between bundles, in pitches: the median of the wide steps minus one."""
    wide = steps[steps > WIDE]
    return float(np.median(wide) - 1) if slit.bundle is not None and len(wide) else 0.0


def _with_missing(traces: Traces, numbers: np.ndarray, slit: Slit, gap: float) -> Traces:
    """Put missing fibres between their neighbours: every coefficient is interpolated linearly from the nearest two,
    over the place on the slit."""
    every = np.arange(slit.count)
    place = every + gap * slit.number

    def filled(series: Legendre) -> Legendre:
        return replace(series, coeff=make_interp_spline(place[numbers], series.coeff, k=1)(place))

    light, error = np.zeros(slit.count), np.full(slit.count, np.inf)
    light[numbers], error[numbers] = traces.light, traces.error
    return replace(traces, x=filled(traces.x), sigma=filled(traces.sigma), light=light, error=error,
                   interpolated=~np.isin(every, numbers))
