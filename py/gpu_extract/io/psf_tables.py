"""PSF files of tabulated spots: PSFTYPE TABULATED, PSFVER 1."""
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from astropy.io import fits

from gpu_extract.data import MOST_SIDE, Array, Card, Core, IntArray, Legendre, PsfModel
from gpu_extract.errors import FileName, InputError
from gpu_extract.io.fits import find, find_optional, image_of, optional_image
from gpu_extract.io.write import image_hdu, table_hdu, write_hdus
from gpu_extract.spots.tables import LEBESGUE, core_of, magnified, table_of

TYPE, VERSION = "TABULATED", 1
OWN = "OWNWAVE"              # HDU of the fibres' own wavelengths, here and in the other formats
POSITIONS = 2, 8             # positions per pixel, least and most
MOST_NUMBERS = 1 << 24       # of all fibres' tables together
_ADVICE = "make the PSF again, or give another one"


def read_core(hdus: fits.HDUList, domain: tuple[float, float], nfibre: int) -> tuple[Core, tuple[int, int]]:
    """The tables of a file as a core for all fibres, and the stamp's (ny, nx). Raises InputError."""
    hdu = find(hdus, "STAMPS")
    stamps = image_of(hdu, 6).astype(np.float64)
    _check_shape(stamps.shape, nfibre)
    waves = _nodes(find(hdus, "WAVES"), stamps.shape[1])
    listed = find_optional(hdus, "FIBRES")
    fibres = np.arange(len(stamps)) if listed is None else _nodes(listed, len(stamps))
    if (fibres != np.rint(fibres)).any() or fibres[0] < 0 or fibres[-1] >= nfibre:
        raise InputError(f"FIBRES must be whole numbers between 0 and {nfibre - 1}; {_ADVICE}")
    if listed is None and len(stamps) != nfibre:
        raise InputError(f"STAMPS are for {len(stamps)} fibres, the traces for {nfibre}: an HDU FIBRES must assign "
                         f"them; {_ADVICE}")
    _check_light(stamps)
    grown = magnified(waves, domain)
    if not grown <= LEBESGUE:
        raise InputError(f"between WAVEMIN and WAVEMAX a polynomial through the {len(waves)} WAVES makes errors "
                         f"{grown:.3g} times as large, at most {LEBESGUE:g} times is allowed: give fewer, or more at "
                         "both ends")
    return core_of(stamps, fibres.astype(np.int64), waves, domain, nfibre), (stamps.shape[4], stamps.shape[5])


def _check_shape(shape: tuple[int, ...], nfibre: int) -> None:
    _, nwave, py, px, ny, nx = shape
    if not (ny % 2 and nx % 2 and max(ny, nx) <= MOST_SIDE and min(ny, nx) >= 3):
        raise InputError(f"STAMPS have {nx} x {ny} pixels, must be odd numbers from 3 to {MOST_SIDE}; {_ADVICE}")
    least, most = POSITIONS
    if not least <= min(py, px) <= max(py, px) <= most:
        raise InputError(f"STAMPS have {px} x {py} positions per pixel, must be {least} to {most}; {_ADVICE}")
    numbers = nfibre * nwave * py * px * ny * nx
    if numbers > MOST_NUMBERS:
        raise InputError(f"its tables are {numbers} numbers for {nfibre} fibres, at most {MOST_NUMBERS} are allowed; "
                         f"{_ADVICE}")


def _nodes(hdu: Any, count: int) -> Array:
    values = image_of(hdu, 1).astype(np.float64)
    if len(values) != count or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        raise InputError(f"{hdu.name} must be {count} ascending numbers, one for each of STAMPS; {_ADVICE}")
    return values


def _check_light(stamps: Array) -> None:
    """Check that every stamp is finite, nowhere below 0, and has light."""
    at = stamps.reshape(*stamps.shape[:4], -1)
    with np.errstate(all="ignore"):
        wrong = ~np.isfinite(at).all(axis=4) | (at < 0).any(axis=4) | ~(at.sum(axis=4) > 0) | np.isinf(at.sum(axis=4))
    if wrong.any():
        i, j, p, q = np.argwhere(wrong)[0]
        raise InputError(f"{wrong.sum()} of {wrong.size} STAMPS have pixels that are not finite or below 0, or "
                         f"no light, the first at [{i}, {j}, {p}, {q}]; {_ADVICE}")


def read_bundles(hdus: fits.HDUList, nfibre: int) -> IntArray | None:
    """The bundle number of each fibre, HDU BUNDLE; None if the file has none. Raises InputError."""
    numbers = optional_image(hdus, "BUNDLE", 1)
    if numbers is None:
        return None
    if len(numbers) != nfibre or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"BUNDLE must be {nfibre} whole numbers, one for each fibre; {_ADVICE}")
    return numbers.astype(np.int64)


def write_tables(path: FileName, psf: PsfModel, *, cards: Sequence[Card] = (),
                 tables: Mapping[str, np.ndarray] | None = None) -> None:
    """Write a tabulated PSF; see `gpu_extract.io.psf.write_psf`. Raises OutputError."""
    stamps, waves = table_of(psf)
    of_table = (Card("NPIX_X", psf.shape[1]), Card("NPIX_Y", psf.shape[0]), *range_cards(psf.cores[0].gh),
                Card("PSFERR", psf.psferr, "fractional error of the model"))
    optional = [image_hdu(psf.bundle, "BUNDLE")] if psf.bundle is not None else []
    write_hdus(path, [
        image_hdu(psf.x.coeff, "XTRACE", cards=(*cards, Card("PSFTYPE", TYPE), Card("PSFVER", VERSION),
                                               *range_cards(psf.x)), primary=True),
        image_hdu(psf.y.coeff, "YTRACE", cards=range_cards(psf.y)),
        image_hdu(stamps, "STAMPS", cards=of_table),
        image_hdu(waves, "WAVES", bunit="Angstrom"),
        *optional, *own_hdus(psf), *(table_hdu(content, name) for name, content in (tables or {}).items())])


def own_hdus(psf: PsfModel) -> list[Any]:
    """The HDU of the fibres' own wavelengths, or nothing."""
    return [] if psf.own is None else [image_hdu(psf.own.coeff, OWN, cards=range_cards(psf.own), bunit="Angstrom")]


def range_cards(series: Legendre) -> tuple[Card, Card]:
    """The range of a series."""
    return Card("WAVEMIN", series.wmin, "Angstrom"), Card("WAVEMAX", series.wmax, "Angstrom")
