"""Checks that image and PSF belong together, before any work, and again on the result.

Identity: header cards that both files have, CAMERA and the others of IDENTITY, must agree. A card that one file lacks
decides nothing.

Place of the light: on the traces, or between them. Profiles across the dispersion, from one trace to the next, are
examined in some stretches of some pairs of traces. Where a profile rises well above its own scatter, its middle is
compared with its higher end. The middle is lower as long as traces are less than about a fourth of the pitch beside the
light, even if just one of the two is lit, or neither beside a star. If the traces are unrelated to the light, it is
higher as often as lower. An image without light, or with few lit fibres, gives no verdict. A quarter of the pairs is
examined first; if they show clearly that the light is on the traces, the others are skipped.
"""
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Card, Frame, Image, IntArray, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.known import known
from gpu_extract.spots import centres

IDENTITY = ("CAMERA", "INSTRUME", "TELESCOP", "DETECTOR")
ASTRAY = 0.15          # of the stretches have light between traces: 0 to 0.06 if the PSF is right, otherwise 0.26 to 1
STRETCHES, PAIRS = 12, 48        # stretches along wavelength, and pairs of fibres, that are examined
LENGTH = 32            # rows of a stretch
EXTREMES = 4           # highest and lowest of them are left out: cosmic rays, dead rows
TRIMMED = 1.5          # the sigma of normal numbers is this many times that of the trimmed ones
POSITIONS = 9  # positions from trace to trace
LEAST_PITCH = 3.0      # pixels: closer traces leave no dark gap between them
SEEN = 8.0             # rise of a profile in units of its error: noise alone reaches it once in 1e7
FEWEST, FEWEST_PAIRS = 20, 10    # stretches with light, and pairs, that a verdict needs
FIRST = 4              # one in this many of the pairs is examined first: if CLEAR of their stretches have light and
CLEAR, SURE = 40, 0.02   # SURE of it lies between traces at most, ASTRAY of all does by chance once in 600
MISFIT = 1.25          # chi2pix of a bundle that brings a warning: noise 12 % above that of ivar, or another PSF
OVERFIT = 0.25         # and below this: x removes at most 0.33 / (sigma x in pixels) of it, the mean leverage of pixels
SMALL_PSFERR = 0.02    # a larger psferr lowers chi2 by itself: no verdict on a low one
DARK = -1.0            # typical flux in errors that brings a warning; noisy weights of faint light cause -0.5
MANY = 100             # good bins that a median needs
_ELECTRONS = re.compile(r"(e-?|electrons?|ph|photons?)(/pix(el)?)?", re.IGNORECASE)


def compare(image: Image, psf: PsfModel, config: ExtractConfig) -> list[str]:
    """Reasons against extracting this image with this PSF that are not errors: sentences.

    Raises InputError if they cannot belong together; with config.any_psf such reasons become sentences as well.
    """
    wrong = [text for text in (strangers(image.cards, psf.identity, psf.name), astray(image, psf, config)) if text]
    if wrong and not config.any_psf:
        raise InputError(f"{'; '.join(wrong)}; give the PSF of this image, or --any-psf (any_psf=True) to use this one")
    return [*wrong, *_sizes(image, psf), *_unit(image)]


def strangers(cards: Iterable[Card], identity: Mapping[str, str], name: str) -> str:
    """Contradictions between the headers of image and PSF, in words, or nothing."""
    of_image = identity_of({card.key: card.value for card in cards})
    return ", ".join(f"the image's {key} is {of_image[key]}, that of {name} is {theirs}"
                     for key, theirs in identity.items()
                     if key in of_image and not _alike(of_image[key], theirs))


def identity_of(header: Mapping[str, Any]) -> dict[str, str]:
    """The identity in a header: the cards of IDENTITY that hold a word."""
    words = {key: str(header.get(key) or "").strip(" '\"") for key in IDENTITY}
    return {key: word for key, word in words.items() if word}


def _alike(one: str, other: str) -> bool:
    """Whether two names can mean the same: r is r0, but r0 is not r1."""
    one, other = one.lower(), other.lower()
    return one.startswith(other) or other.startswith(one)


def _sizes(image: Image, psf: PsfModel) -> list[str]:
    within = image.shape[0] <= psf.shape[0] and image.shape[1] <= psf.shape[1]      # else it is turned, or another's
    if image.shape == psf.shape or (within and (image.get("NPIX_Y"), image.get("NPIX_X")) == psf.shape):
        return []           # complete, or marked as cut out of this CCD
    return [f"the image has {image.shape[0]} x {image.shape[1]} pixels, the CCD of {psf.name} has {psf.shape[0]} x "
            f"{psf.shape[1]}: both are assumed to start at the same corner"]


def in_electrons(unit: str) -> bool:
    """Whether a unit, in any usual spelling, is that of counted electrons or photons."""
    return bool(_ELECTRONS.fullmatch(unit.strip()))


def _unit(image: Image) -> list[str]:
    unit, said = str(image.get("BUNIT") or "").strip(), []
    if unit and not in_electrons(unit):
        said.append(f"the image's BUNIT is {unit}: its pixels are taken to be in electrons, and FLUX in "
                    "electron/Angstrom; if the image is in ADU, convert it first (gpu_psf preprocess)")
    if image.ivar_unit and not _inverse_square(image.ivar_unit, unit):
        said.append(f"BUNIT of IVAR is {image.ivar_unit}{f', that of the image {unit}' if unit else ''}: ivar is taken "
                    "to be in 1/electron2; if it is a variance, or in another unit, convert it first")
    return said


def _inverse_square(unit: str, of: str) -> bool:
    """Whether a unit, in any usual spelling, is 1 / the square of another one; of: empty for electrons."""
    found = re.fullmatch(r"1/(.+)2|(.+)-2", re.sub(r"[\s()*^]", "", unit))
    base = found and (found[1] or found[2])
    if not base:
        return False
    return base.lower() == re.sub(r"\s", "", of).lower() or (in_electrons(base) and (not of or in_electrons(of)))


def astray(image: Image, psf: PsfModel, config: ExtractConfig) -> str:
    """A sentence if the image's light does not lie on the PSF's traces, or nothing.

    Some pairs, spread over the image, suffice if their verdict is clear.
    """
    pair, below, rise = profiles(image, psf, config, FIRST)
    if len(pair) >= CLEAR and _share(below, rise) <= SURE:
        return ""
    pair, below, rise = profiles(image, psf, config)
    if len(pair) < FEWEST or len(np.unique(pair)) < FEWEST_PAIRS:
        return ""
    beside = _share(below, rise)
    if beside <= ASTRAY:
        return ""
    return (f"the image's light lies beside the traces of {psf.name} ({beside:.0%} of it, looked at in "
            f"{len(np.unique(pair))} places across; {ASTRAY:.0%} is allowed)")


def _share(below: Array, rise: Array) -> float:
    """The share of the light between traces."""
    weights = np.sqrt(rise)
    return float(weights[below < 0].sum() / weights.sum())


def profiles(image: Image, psf: PsfModel, config: ExtractConfig,
             every: int = 1) -> tuple[IntArray, Array, Array]:
    """For each stretch with light: its first fibre, the drop of the middle below the higher end, and the rise, in
    errors.

    Stretches with a bad pixel, or not wholly on the image, are left out. every: one in this many of the pairs
    """
    ends = config.wavelength[0] / config.wave_factor, config.wavelength[1] / config.wave_factor
    fibre, places = known(psf, ("stretches", image.shape, ends, every),
                          lambda: _stretches(image.shape, psf, ends, every))
    ivar = image.ivar.reshape(-1)[places]       # of an image as one row, which is twice as fast
    good = (ivar > 0).all(axis=(1, 2))
    if not good.any():
        return fibre[good], np.empty(0), np.empty(0)
    fibre, ivar, pix = fibre[good], ivar[good], image.pix.reshape(-1)[places[good]].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        # in sigmas of the stretch, so that units do not matter
        light = pix * np.sqrt(medians(ivar.reshape(len(ivar), -1)))[:, None, None]
        light.sort(axis=2)
        kept = light[..., EXTREMES:LENGTH - EXTREMES]
        profile = kept.mean(axis=2)
        apart = kept - profile[..., None]
        spread = np.sqrt(np.einsum("ijk,ijk->ij", apart, apart) / kept.shape[2])
        error = np.maximum(1.0, TRIMMED * medians(spread)) / np.sqrt(LENGTH)
        rise = (profile.max(axis=1) - profile.min(axis=1)) / error
        below = np.maximum(profile[:, 0], profile[:, -1]) - profile[:, POSITIONS // 2]
        seen = (rise > SEEN) & (rise < np.inf)
    return fibre[seen], below[seen] / error[seen], rise[seen]


def medians(rows: Array) -> Array:
    """np.median of each row, in double precision, at a third of its time: there must be no NaN.

    The rows are sorted. Halves are added, because the sum of two numbers may overflow.
    """
    rows.sort(axis=1)
    count = rows.shape[1]
    return 0.5 * rows[:, (count - 1) // 2].astype(np.float64) + 0.5 * rows[:, count // 2].astype(np.float64)


def _stretches(shape: tuple[int, int], psf: PsfModel, ends: tuple[float, float],
               every: int) -> tuple[IntArray, IntArray]:
    """First fibres, and pixels (n, POSITIONS, LENGTH) in an image as one row, of the stretches wholly on it.

    ends: of the requested wavelengths
    """
    low, high = psf.wavelength_range
    wave = np.linspace(max(ends[0], low), min(ends[1], high), STRETCHES + 2)
    with np.errstate(all="ignore"):
        y, x = centres(psf, (0, psf.nfibre), wave)
        near = np.flatnonzero(((x >= 0) & (x < shape[1])).any(axis=1))       # a cropped image has few of the fibres
        begin, end = (int(near[0]), int(near[-1]) + 1) if len(near) else (0, 0)
        y, x = y[begin:end], x[begin:end]
        slope = np.gradient(x, axis=1) / np.gradient(y, axis=1)
        step = np.diff(x, axis=0)
        reach = np.abs(slope) * LENGTH / 2 + 1
        inside = ((y >= LENGTH / 2) & (y <= shape[0] - LENGTH / 2 - 1) & (x >= reach) & (x <= shape[1] - reach - 1))
        fine = inside[:-1] & inside[1:] & (np.abs(step) >= LEAST_PITCH) & (np.abs(step) <= psf.stamp[1])
    fine[:, [0, -1]] = False
    pairs = np.nonzero(fine.any(axis=1))[0]
    chosen = np.zeros(len(fine), dtype=bool)
    chosen[pairs[::every * max(-(-len(pairs) // PAIRS), 1)]] = True
    pair, n = np.nonzero(fine & chosen[:, None])
    y, x, slope, step = (array[pair, n][:, None, None] for array in (y, x, slope, step))
    along = np.arange(LENGTH) - LENGTH // 2
    rows = np.floor(y).astype(np.int64) + along
    columns = np.rint(x + step * np.linspace(0, 1, POSITIONS)[:, None] + slope * along).astype(np.int64)
    return pair + begin, rows * shape[1] + columns


def misfits(frame: Frame) -> list[str]:
    """Sentences on a frame without data or light, and on its bundles whose overall chi2pix is far from 1."""
    if not frame.ivar.any():
        return ["no bin has data: no good pixel of the image lies on the requested traces; check its ivar and mask, "
                "and that this is its PSF"]
    bundles: list[int] = sorted(frame.notes.get("bundles", {}))
    psferr, told = float(frame.notes.get("psferr", 0.0)), _below_zero(frame)
    for first, after in pairwise([*bundles, int(frame.fibres[-1]) + 1]):
        rows = slice(*np.searchsorted(frame.fibres, (first, after)))
        chi2pix, good = frame.chi2pix[rows], frame.mask[rows] == 0
        far = chi2pix > MISFIT
        if psferr <= SMALL_PSFERR:
            far |= chi2pix < OVERFIT
        count, far = np.count_nonzero(good), far & good
        if count < MANY or 2 * np.count_nonzero(far) < count:
            continue        # the median lies between
        middle = float(medians(chi2pix[good][None])[0])
        if middle > MISFIT or (middle < OVERFIT and psferr <= SMALL_PSFERR):
            told.append(f"chi2pix of the bundle from fibre {first} on is {middle:.3g} (median): "
                        + ("check that this is the image's PSF, and check its "
                           "ivar" if middle > MISFIT else "check the image's ivar"))
    return told


def _below_zero(frame: Frame) -> list[str]:
    """A sentence on a frame whose flux is mostly negative."""
    good = frame.mask == 0
    count, below = np.count_nonzero(good), np.count_nonzero(good & (frame.flux < 0))
    if count < MANY or 2 * below < count:
        return []
    usual = float(np.median(frame.flux[good] * np.sqrt(frame.ivar[good])))
    return [] if usual > DARK else [f"the typical flux is {usual:.3g} errors, but light is never negative: either the "
                                    "image has the wrong sign, or too much was subtracted from it"]
