"""The list of kernels, with their types and numbers, that are compiled ahead of their first use.

The list is etc/kernels.json, made by bench/kernel_list.py from runs of all kinds. Its parts are the uses "simulate",
"extract" (every extraction), "passes" (several passes) and "some" (a few extractions), and "band" for kernels that are
specialised for half-bands. A kernel that is not in the list is compiled when it is first needed, which costs time and
is logged.
"""
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from typing import Any

import numpy as np
from numba.core import types
from numba.core.types.containers import BaseNamedTuple, BaseTuple, NamedTuple, Tuple
from numpy.polynomial.legendre import legval

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Legendre, PsfModel
from gpu_extract.decorrelate.banded import NARROW
from gpu_extract.decorrelate.limits import Limits
from gpu_extract.kernels.kernel_cache import name_of
from gpu_extract.normal import LEAST
from gpu_extract.plan import make_plan

SIMULATE, EXTRACT, PASSES, SOME, BAND = "simulate", "extract", "passes", "some", "band"
_PAD, _DISTANCES = 16, 2      # bins beyond the ends, and distances of fibres, that are examined
_FAR = 1e9                   # pixels: off any CCD
# Up to such a sigma of the PSF along the trace, in bins, S seldom needs more diagonals than so many beyond icov's.
# Measured: it is 0.74 in the r camera, whose 500 simulated fibres need two widths; 0.82 in b, which needs four; 0.96 in
# z, which needs all.
BROADER = ((0.78, 4), (0.88, 12))
_SAMPLES = 16                # wavelengths at which it is looked at


@dataclass(frozen=True)
class Kernel:
    """One kernel for one set of types.

    module, name: of the function, or of its factory for some `numbers`; arguments: its types as JSON, see `spelt`
    seconds: of compiling it, on the machine on which the list was made
    """

    module: str
    name: str
    numbers: tuple[int, ...]
    arguments: str
    seconds: float

    @property
    def dispatcher(self) -> Any:
        """numba's function."""
        found = getattr(import_module(f"gpu_extract.{self.module}"), self.name)
        return found(*self.numbers) if self.numbers else found

    @property
    def types(self) -> tuple[Any, ...]:
        """numba's types of its arguments."""
        return tuple(read_type(each) for each in json.loads(self.arguments))

    @property
    def file(self) -> str:
        """The name of its file in the cache."""
        return name_of(self.dispatcher.py_func, self.types)

    @property
    def title(self) -> str:
        """Its name for display."""
        return f"{self.name}{list(self.numbers) if self.numbers else ''}"


@cache
def _table() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    file = resources.files("gpu_extract").joinpath("etc", "kernels.json")
    return json.loads(file.read_text(encoding="ascii"))


def unit_then() -> float:
    """The value of first_use.unit() when the list was made."""
    return _table()["unit"][0]["seconds"]


def listed(*uses: str) -> list[Kernel]:
    """The kernels of some uses that are not specialised for a half-band."""
    return [_kernel(row, {}) for use in uses for row in _table()[use]]


def for_bands(bands: Iterable[tuple[int, int]], ndiag: int, broader: int | None = None) -> list[Kernel]:
    """The kernels that are specialised for half-bands (own, hw) of a fibre and of a bundle, for all widths that S may
    have, or for those from icov's half-band up to `broader` more."""
    found = {}
    for own, hw in bands:
        widths = Limits().widths(max(own, LEAST), max(hw, LEAST)) if hw <= NARROW else []
        for half in (w for w in widths if broader is None or w <= max(hw, LEAST) + broader):
            numbers = {"own": max(own, LEAST), "hw": max(hw, LEAST), "half": half, "ndiag": ndiag}
            for row in _table()[BAND]:
                kernel = _kernel(row, numbers)
                found[kernel.module, kernel.name, kernel.numbers] = kernel
    return list(found.values())


def _kernel(row: Mapping[str, Any], numbers: Mapping[str, int]) -> Kernel:
    return Kernel(row["module"], row["name"], tuple(numbers[n] for n in row.get("numbers", ())),
                  json.dumps(row["arguments"]), row["seconds"])


def bands_of(psf: PsfModel, config: ExtractConfig) -> set[tuple[int, int]]:
    """Half-bands (own, hw) of the bundles of a job, nearly always exact: computed without any kernel, and without the
    CCD's edge."""
    plan = make_plan(psf, config, _PAD)
    (ny, nx), found = psf.stamp, set()
    for first, last in plan.bundles:
        centres = [_series(series, range(first, last), plan.extended) for series in (psf.y, psf.x)]
        corners = (np.floor(c - offset) for c, offset in zip(centres, psf.offset, strict=True))
        y, x = (np.clip(np.nan_to_num(c), -_FAR, _FAR).astype(int) for c in corners)    # of absurd traces, too
        own = _reach((y, x), (y, x), (ny, nx))
        wide = [_reach((y[d:], x[d:]), (y[:-d], x[:-d]), (ny, nx)) for d in range(1, min(last - first, _DISTANCES + 1))]
        found.add((own, max(own, *wide, 0)))
    return found


def broader(psf: PsfModel, config: ExtractConfig) -> int | None:
    """The diagonals beyond icov's that nearly always suffice, fewer for wider bins (BROADER); None: any number may be
    needed."""
    if psf.tabulated:                     # its sigma is the distance of its knots
        return None
    wave, fibres = np.linspace(*psf.wavelength_range, _SAMPLES), range(psf.nfibre)
    with np.errstate(all="ignore"):       # of absurd traces, too
        speed = np.gradient(_series(psf.y, fibres, wave), wave, axis=1) * config.wavelength[2]
        sigma = _series(psf.cores[0].sigma_y, fibres, wave) / speed
    return next((more for most, more in BROADER if np.median(abs(sigma)) <= most), None)


def _series(series: Legendre, fibres: range, wave: Array) -> Array:
    """A series of some fibres at some wavelengths: (fibres, nwave)."""
    low, high = series.wmin, series.wmax
    return np.asarray(legval((2.0 * wave - low - high) / (high - low), series.coeff[fibres.start:fibres.stop].T), float)


def _reach(one: tuple[Array, Array], other: tuple[Array, Array], stamp: tuple[int, int]) -> int:
    """The most bins between overlapping spots of two fibres, over all pairs; -1 if none overlap.

    At most NARROW + 1: beyond NARROW no kernel is specialised for a half-band, and an absurd step has thousands.
    """
    nwave = one[0].shape[1]
    for k in reversed(range(min(nwave, NARROW + 2))):
        for (ya, xa), (yb, xb) in ((one, other), (other, one)):
            rows = abs(ya[:, k:] - yb[:, :nwave - k]) < stamp[0]
            if (rows & (abs(xa[:, k:] - xb[:, :nwave - k]) < stamp[1])).any():
                return k
    return -1


def spelt(kind: Any) -> Any:
    """A numba type as JSON: its name, or ["array", item, dimensions, layout, whether it is writable], or a list
    that begins with "tuple", or with the name of a named tuple, module.Class. Raises TypeError for any other."""
    if isinstance(kind, types.Array):
        return ["array", str(kind.dtype), kind.ndim, kind.layout, kind.mutable]
    if isinstance(kind, BaseTuple):
        named = getattr(kind, "instance_class", None) if isinstance(kind, BaseNamedTuple) else None
        title = f"{named.__module__.removeprefix('gpu_extract.')}.{named.__name__}" if named else "tuple"
        return [title, *(spelt(each) for each in kind)]
    if isinstance(kind, (types.Number, types.Boolean)) and not isinstance(kind, types.Literal):
        return str(kind)
    raise TypeError(f"no kernel takes an argument of type {kind}")


def read_type(text: Any) -> Any:
    """The numba type that was `spelt`."""
    if isinstance(text, str):
        return types.boolean if text == "bool" else getattr(types, text)
    if text[0] == "tuple":
        return Tuple([read_type(each) for each in text[1:]])
    if text[0] != "array":
        module, _, name = text[0].rpartition(".")
        named = getattr(import_module(f"gpu_extract.{module}"), name)
        return NamedTuple([read_type(each) for each in text[1:]], named)
    _, item, ndim, layout, mutable = text
    return types.Array(read_type(item), ndim, layout, readonly=not mutable)
