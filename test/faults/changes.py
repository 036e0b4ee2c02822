"""Functions that make faults: each returns a change of a case (case.Case)."""
from collections.abc import Sequence
from typing import Any

import numpy as np
from astropy.io import fits
from case import Case, Change, good_case

Place = tuple[Any, Any]
FIRST = np.s_[:, :45]              # columns of the first bundle


def pixel(value: float, *places: Place) -> Change:
    """Pixels with another value."""
    return lambda case: _set(case.pix, value, places)


def ivar(value: float, *places: Place) -> Change:
    """Another inverse variance."""
    return lambda case: _set(case.ivar, value, places)


def times(value: float, *places: Place) -> Change:
    """An inverse variance that is wrong by a factor."""
    def change(case: Case) -> None:
        for place in places:
            case.ivar[place] *= value
    return change


def _set(array: np.ndarray, value: float, places: Sequence[Place]) -> None:
    for place in places:
        array[place] = value


def both(*changes: Change) -> Change:
    """Two changes, one after the other."""
    def change(case: Case) -> None:
        for one in changes:
            one(case)
    return change


def units(factor: float) -> Change:
    """The image in another unit."""
    def change(case: Case) -> None:
        case.image["IMAGE"].data = case.pix.astype(np.float64) * factor
        case.image["IVAR"].data = case.ivar.astype(np.float64) / factor**2
        case.image["READNOISE"].data = case.image["READNOISE"].data.astype(np.float64) * factor
    return change


def bits(value: int, *places: Place) -> Change:
    """Bits of MASK."""
    def change(case: Case) -> None:
        for place in places:
            case.image["MASK"].data[place] |= value
    return change


def mask_of(kind: Any, value: int, *places: Place, compressed: bool = False) -> Change:
    """A MASK of another type, with these bits."""
    def change(case: Case) -> None:
        data = np.zeros(case.pix.shape, kind)
        for place in places:
            data[place] = value
        made = fits.CompImageHDU if compressed else fits.ImageHDU
        case.image[case.image.index_of("MASK")] = made(data, name="MASK")
    return change


def without(name: str, where: str = "image") -> Change:
    """A file without one of its HDUs."""
    def change(case: Case) -> None:
        hdus = getattr(case, where)
        del hdus[hdus.index_of(name)]
    return change


def shaped(name: str, shape: Any) -> Change:
    """An HDU cut, or with another number of axes; shape: gives the new array."""
    def change(case: Case) -> None:
        names = [hdu.name for hdu in case.image] if name == "all" else [name]
        for one in set(names) & {"IMAGE", "IVAR", "MASK", "READNOISE"}:
            data = np.ascontiguousarray(shape(case.image[one].data))
            if one == "IMAGE":
                case.image[0] = fits.PrimaryHDU(data, case.image[0].header)
            else:
                case.image[case.image.index_of(one)] = fits.ImageHDU(data, name=one)
    return change


def typed(kind: str) -> Change:
    """The image as integers of another type; unsigned ones are stored with BZERO."""
    def change(case: Case) -> None:
        data = np.rint(case.pix + 1000)
        case.image[0] = fits.PrimaryHDU(data.astype(kind), case.image[0].header)
    return change


def packed(kind: str) -> Change:
    """The image as compressed integers: PrimaryHDU empty, IMAGE behind it."""
    def change(case: Case) -> None:
        data = np.rint(case.pix + 1000).astype(np.int32)
        header = case.image[0].header
        hdu = fits.CompImageHDU(data, header, name="IMAGE", compression_type=kind)
        case.image[0] = hdu
        case.image.insert(0, fits.PrimaryHDU())
    return change


def scaled(bzero: float, bscale: float) -> Change:
    """The image as integers with BZERO and BSCALE."""
    def change(case: Case) -> None:
        steps(case)
        case.image[0].data = case.pix.astype(np.float64)
        case.image[0].scale("int32", bscale=bscale, bzero=bzero)
    return change


def steps(case: Case) -> None:
    """Pixels in steps of 1/64, in double precision, like numbers read with BSCALE."""
    case.image[0].data = np.rint(case.pix.astype(np.float64) * 64) / 64


def doubles(case: Case) -> None:
    """The pixels in double precision."""
    case.image[0].data = case.pix.astype(np.float64)


def nothing(case: Case) -> None:
    """No change."""


def unit(case: Case) -> None:
    """An overflowing number as a column's unit."""
    hdu = case.image["FIBERMAP"]
    hdu.header.append(fits.Card.fromstring("TUNIT6  =                1E400"), end=True)


def rounded(case: Case) -> None:
    """Pixels that integers can also hold."""
    case.pix[...] = np.rint(case.pix + 1000)


def coefficients(name: str, value: float, *fibres: int, term: int | None = None) -> Change:
    """Another series of a PSF parameter for these fibres: constant, or with one changed term."""
    def change(case: Case) -> None:
        coeff = _coeff(case, name)
        for fibre in fibres or range(len(coeff)):
            if term is None:
                coeff[fibre] = 0
            coeff[fibre, term or 0] = value
    return change


def _coeff(case: Case, name: str) -> np.ndarray:
    if name in ("XTRACE", "YTRACE"):
        return case.psf[name].data
    table = case.psf["PSF"].data
    return table["COEFF"][list(table["PARAM"]).index(name)]


def trace_of(fibre: int, other: int, shift: float = 0.0, slope: float = 0.0) -> Change:
    """A trace that lies on another one, or crosses it."""
    def change(case: Case) -> None:
        for name in ("XTRACE", "YTRACE"):
            _coeff(case, name)[fibre] = _coeff(case, name)[other]
        _coeff(case, "XTRACE")[fibre, :2] += shift, slope
    return change


def swapped(case: Case) -> None:
    """Fibres 1 and 2 exchanged."""
    for name in ("XTRACE", "YTRACE"):
        _coeff(case, name)[[1, 2]] = _coeff(case, name)[[2, 1]]


def keyword(key: str, value: Any, *, hdu: Any = "PSF", where: str = "psf") -> Change:
    """A card with another value; None: no such card."""
    def change(case: Case) -> None:
        for header in [getattr(case, where)[hdu].header] if hdu is not None else [h.header for h in case.psf]:
            if value is None:
                header.remove(key, ignore_missing=True)
            else:
                header[key] = value
    return change


def parameters(keep: Any) -> Change:
    """A PSF with only the parameters that `keep` accepts."""
    def change(case: Case) -> None:
        old = case.psf["PSF"]
        rows = [keep(str(name).strip()) for name in old.data["PARAM"]]
        case.psf[case.psf.index_of("PSF")] = fits.BinTableHDU(old.data[rows], old.header, name="PSF")
    return change


def options(*words: str) -> Change:
    """Other options."""
    def change(case: Case) -> None:
        case.options += words
    return change


def grid(text: str) -> Change:
    """Another grid."""
    return options("-w", text)


def of_fibres(nspec: int) -> Change:
    """An image and PSF of so many fibres, in multiples of ten."""
    def change(case: Case) -> None:
        other = good_case(nspec)
        case.image, case.psf = other.image, other.psf
    return change


def first_fibres(number: int) -> Change:
    """A PSF of the first fibres only."""
    def change(case: Case) -> None:
        for name in ("XTRACE", "YTRACE"):
            case.psf[name].data = np.ascontiguousarray(case.psf[name].data[:number])
        old = case.psf["PSF"]
        columns = [(name, old.data[name][:, :number] if name == "COEFF" else old.data[name]) for name in old.data.names]
        rows = np.empty(len(old.data), [(name, data.dtype, data.shape[1:]) for name, data in columns])
        for name, data in columns:
            rows[name] = data
        built = "T", "NAXIS", "BITPIX", "XTENS", "PCOU", "GCOU"
        header = fits.Header([card for card in old.header.cards if not card.keyword.startswith(built)])
        case.psf[case.psf.index_of("PSF")] = fits.BinTableHDU(rows, header, name="PSF")
    return change


def tails(name: str, value: float, fibre: int) -> Change:
    """A PSF with tails, with one parameter changed for one fibre."""
    usual = {"TAILAMP": 0.005, "TAILCORE": 1.0, "TAILXSCA": 1.0, "TAILYSCA": 1.2, "TAILINDE": 2.0}
    return both(*(coefficients(key, number) for key, number in usual.items()), coefficients(name, value, fibre))


def bundled(size: int) -> Change:
    """The PSF with bundles of so many fibres."""
    def change(case: Case) -> None:
        table = case.psf["PSF"].data
        index = [str(name).strip() for name in table["PARAM"]].index("BUNDLE")
        table["COEFF"][index, :, 0] = np.arange(table["COEFF"].shape[1]) // size
    return change


def fibermap(change_table: Any) -> Change:
    """Another fibermap: its rows changed by a function."""
    def change(case: Case) -> None:
        old = case.image["FIBERMAP"]
        data = change_table(np.array(old.data))
        case.image[case.image.index_of("FIBERMAP")] = fits.BinTableHDU(data, name="FIBERMAP")
    return change

