"""A spectrograph described by a section of a short file: detector, wavelengths, fibres (etc/spectrographs.ini).

The description is validated as a whole: one message lists every problem.
"""
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gpu_extract.errors import FileName, InputError, did_you_mean, not_allowed
from gpu_extract.io.presets import read_ini
from gpu_psf.preprocess import DISPERSIONS
from gpu_psf.start.count import Slit
from gpu_psf.start.search import Range

ORDERS = ("ascending", "descending")
AGREE = 0.1             # largest relative disagreement of range and dispersion


@dataclass(frozen=True)
class Spectrograph:
    """A fibre spectrograph as described by its user; None: not given.

    axis: of the raw image along which wavelengths ascend: y, -y, x or -x
    bias: ADU; overscan: columns (lo, hi) of it; gain: electron per ADU; read_noise: electron; saturation: ADU
    range: lowest and highest wavelength of the middle fibre on the detector, Angstrom; middle: half way between its
        ends; dispersion: Angstrom per pixel there
    fibres: their number; bundles: number in each bundle, with gaps between bundles; order: of the fibres' numbers along
        the other axis; skip: traces before the first fibre
    """

    name: str
    axis: str = "y"
    bias: float | None = None
    overscan: tuple[int, int] | None = None
    gain: float | None = None
    read_noise: float | None = None
    saturation: float | None = None
    range: tuple[float, float] | None = None
    middle: float | None = None
    dispersion: float | None = None
    fibres: int | None = None
    bundles: tuple[int, ...] | None = None
    order: str = "ascending"
    skip: int = 0

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise InputError(f"{self.name}: {'; '.join(problems)}")

    def _problems(self) -> Iterator[str]:
        yield from not_allowed(self, {"axis": DISPERSIONS, "order": ORDERS})
        for name in ("gain", "read_noise", "saturation", "middle", "dispersion", "fibres"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                yield f"{name} is {value:g}, must be above 0"
        if self.skip < 0:
            yield f"skip is {self.skip}, must be 0 or more"
        if self.bias is not None and self.overscan is not None:
            yield "bias and overscan are both given: give one of them at most"
        if self.overscan is not None and not 0 <= self.overscan[0] < self.overscan[1]:
            yield f"overscan is {self.overscan[0]}, {self.overscan[1]}, must be two ascending columns"
        yield from self._wavelength_problems()
        yield from self._fibre_problems()

    def _wavelength_problems(self) -> Iterator[str]:
        if self.range is None:
            if (self.middle is None) != (self.dispersion is None):
                yield "middle or dispersion is given alone: give both, or range as well"
            return
        low, high = self.range
        if not 0 < low < high:
            yield (f"range is {low:g}, {high:g}, must be two ascending wavelengths in Angstrom (axis gives their "
                   "direction on the detector)")
        elif self.middle is not None and abs(self.middle - (low + high) / 2) > (high - low) / 4:
            yield (f"middle is {self.middle:g}, must lie in the middle half of the range, {low + (high - low) / 4:g} "
                   f"to {high - (high - low) / 4:g}")

    def _fibre_problems(self) -> Iterator[str]:
        if self.fibres is None and (self.bundles is not None or self.skip):
            yield "bundles and skip need a known number of fibres: also give fibres"
        if self.bundles is not None and (not self.bundles or min(self.bundles) < 1):
            yield f"bundles is {_listed(self.bundles)}, must be numbers of fibres, each 1 or more"
        elif self.bundles is not None and self.fibres is not None and self.fibres > 0:
            total = sum(self.bundles)
            if len(self.bundles) == 1 and self.fibres % total:
                yield f"bundles is {total}, which does not divide {self.fibres} fibres: give the size of each bundle"
            elif len(self.bundles) > 1 and total != self.fibres:
                yield f"bundles is {_listed(self.bundles)}, which are {total} fibres, but fibres is {self.fibres}"

    @property
    def slit(self) -> Slit | None:
        """The layout of the fibres, None if their number is not given."""
        if self.fibres is None:
            return None
        sizes = self.bundles
        return Slit(self.fibres, sizes[0] if sizes is not None and len(sizes) == 1 else sizes, self.skip)

    def wavelengths(self, ny: int) -> Range:
        """Wavelengths of the middle fibre in the first, last and middle of ny rows. Raises InputError if none are
        given, or if range and dispersion do not fit ny rows."""
        if self.range is None:
            if self.middle is None or self.dispersion is None:
                raise InputError(f"{self.name}: has no wavelengths: give range = LOWEST, HIGHEST, or middle and "
                                 "dispersion")
            half = self.dispersion * (ny - 1) / 2
            if half >= self.middle:
                raise InputError(f"{self.name}: {ny} rows of {self.dispersion:g} A around {self.middle:g} A begin "
                                 "below 0: give dispersion in Angstrom per pixel")
            return Range(self.middle - half, self.middle + half, self.middle)
        mean = (self.range[1] - self.range[0]) / (ny - 1)
        if self.dispersion is not None and abs(mean / self.dispersion - 1) > AGREE:
            raise InputError(f"{self.name}: range on the {ny} rows of the image is {mean:.4g} A per pixel, dispersion "
                             f"is {self.dispersion:g}; they must agree to {AGREE:.0%}: check axis ({self.axis})")
        return Range(*self.range, self.middle)


def _listed(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:g}" for number in numbers) or "empty"


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _several(kind: Callable[[str], Any], count: int | None = None) -> Callable[[str], tuple[Any, ...]]:
    def read(text: str) -> tuple[Any, ...]:
        found = tuple(kind(word) for word in text.split(","))
        if count is not None and len(found) != count:
            raise ValueError
        return found

    return read


# the value of each key, in words, and its parser (which raises ValueError)
KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "axis": ("a word", str), "order": ("a word", str), "overscan": ("two columns LO, HI", _several(int, 2)),
    "range": ("two wavelengths LOWEST, HIGHEST", _several(_number, 2)),
    "bundles": ("whole numbers, separated by commas", _several(int)),
    **dict.fromkeys(("bias", "gain", "read_noise", "saturation", "middle", "dispersion"), ("a number", _number)),
    **dict.fromkeys(("fibres", "skip"), ("a whole number", int))}


def read_spectrograph(name: FileName) -> Spectrograph:
    """The description called `name`: one that comes with the package, FILE.ini:SECTION, or FILE.ini with one section.

    Raises InputError if there is no such description, and with every problem that it has.
    """
    file, ending, chosen = str(name).rpartition(".ini")
    own = bool(ending) and (not chosen or chosen[0] == ":")
    path = file + ending
    shipped = resources.files("gpu_extract").joinpath("etc", "spectrographs.ini")
    with nullcontext(path) if own else resources.as_file(shipped) as there:
        parser = read_ini(there, "is not a description of a spectrograph", "#")
    section = chosen.removeprefix(":") if own else str(name)
    if own and not section and len(parser.sections()) == 1:
        section = parser.sections()[0]
    if section not in parser.sections():
        raise InputError(_no_such(path, section, parser.sections(), own=own))
    return _described(f"{path}:{section}" if own else section, dict(parser[section]))


def _no_such(path: str, section: str, known: list[str], *, own: bool) -> str:
    if not own:
        return (f"no spectrograph {section!r}; known: {', '.join(known)}; or give a file "
                f"(FILE.ini){did_you_mean(section, known)}")
    if not known:
        return f"{path}: holds no description; a line [NAME] begins one"
    what = f"no spectrograph {section!r}" if section else f"{len(known)} spectrographs"
    return (f"{path}: {what}; choose one: {', '.join(f'{path}:{other}' for other in known)}"
            f"{did_you_mean(section, known)}")


def _described(name: str, words: dict[str, str]) -> Spectrograph:
    """A description from its words. Raises InputError with all problems."""
    problems, values = [], {}
    for key, text in words.items():
        if key not in KEYS:
            near = did_you_mean(key, KEYS)
            problems.append(f"{key} is not known" + (near or f"; known: {', '.join(sorted(KEYS))}"))
            continue
        what, read = KEYS[key]
        try:
            values[key] = read(text.strip())
        except ValueError:
            problems.append(f"{key} is {text!r}, must be {what}")
    try:
        found = Spectrograph(name, **values)
    except InputError as error:
        problems.append(str(error).removeprefix(f"{name}: "))
    if problems:
        raise InputError(f"{name}: {'; '.join(problems)}")
    return found
