"""Extracted frames: writing them in a format for survey pipelines and specutils, and reading them back."""
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpu_extract.checks.arguments import seam
from gpu_extract.checks.sense import medians
from gpu_extract.data import OUTPUTS, Array, Card, FiberMap, Frame, SpecMask, as_cards
from gpu_extract.errors import FileName, InputError, OutputError, check_flags, check_kind
from gpu_extract.fibermap import FIBRES_PER_SPECTROGRAPH
from gpu_extract.io.atomic import Commit, at_once
from gpu_extract.io.facts import background_table, bundle_table, count_cards, fibermin, frame_cards, status_cards
from gpu_extract.io.fibermap import not_finite, optional_fibermap
from gpu_extract.io.fits import find, image_of, open_fits, optional_image, refuse_other
from gpu_extract.io.headers import cards_of
from gpu_extract.io.write import fibermap_hdus, image_hdu, table_hdu, table_hdus, write_hdus

FLUX_UNIT = OUTPUTS["flux"].unit
_NEEDED = ("flux", "ivar", "resolution")      # by readers of a frame
GRID = "GRID"            # HDU of the common coordinate, if WAVELENGTH has a row for each fibre
RANGES = {"B": (4000.0, 5800.0), "R": (5800.0, 7600.0), "Z": (7600.0, 9800.0)}     # scored ranges of the camera arms


def write_frame(path: FileName, frame: Frame, *, cards: Sequence[Card] = (),
                scores: bool = True, commit: Commit = at_once) -> None:
    """Write FLUX, IVAR, MASK, WAVELENGTH, RESOLUTION, FIBERMAP, CHI2PIX, SCORES, PIXMASK_FRACTION, STATUS, and the
    tables BUNDLES and BACKGROUND; HDUs that the frame lacks, and SCORES if nothing is scored, are left out.

    cards: added to the header, after those of the frame and before the list of versions
    scores: False leaves SCORES out
    commit: see io.atomic

    Raises OutputError if a value is NaN or infinite (everything is then written to a debug file, which the message
    names), and if the file cannot be written. An existing file of this name is then unchanged.
    """
    check_kind("frame", frame, Frame, "a Frame, which extract makes")
    check_flags(scores=scores)
    cards, commit = as_cards(cards), seam("commit", commit, at_once)
    images = frame_images(frame)
    table = score_table(frame, images) if scores else None
    bundles, smooth = bundle_table(frame), background_table(frame)
    refuse_not_finite(path, frame, images, {"SCORES": table, "BUNDLES": bundles, "BACKGROUND": smooth})
    brief = frame if bundles is None else replace(frame, notes={**frame.notes, "bundles": {}})     # these have a table
    headers = {"FLUX": frame_cards(brief, [*count_cards(frame), *cards]), "STATUS": status_cards()}
    units = {"WAVELENGTH": "Angstrom", GRID: "Angstrom", **{output.hdu: output.unit for output in OUTPUTS.values()},
             **_own_units(frame)}
    made = {name: image_hdu(array, name, bunit=units[name], cards=headers.get(name, ()), primary=name == "FLUX")
            for name, array in images.items()}
    first = [made.pop(name) for name in ("FLUX", "IVAR", "MASK", "WAVELENGTH", GRID, "RESOLUTION") if name in made]
    hdus = [*first, *fibermap_hdus(frame.fibermap), made.pop("CHI2PIX"), *table_hdus("SCORES", table), *made.values(),
            *table_hdus("BUNDLES", bundles), *table_hdus("BACKGROUND", smooth)]
    write_hdus(path, hdus, commit, read_back=True)


def _own_units(frame: Frame) -> dict[str, str]:
    """The units of FLUX and IVAR of a frame that was read in another unit; that of IVAR has no standard spelling."""
    return {} if frame.unit in ("", FLUX_UNIT) else {"FLUX": frame.unit, "IVAR": ""}


def frame_images(frame: Frame) -> dict[str, np.ndarray]:
    """The frame's arrays in the types of the file."""
    arrays = {output: getattr(frame, name) for name, output in OUTPUTS.items()}
    with np.errstate(over="ignore", invalid="ignore"):           # overflows become infinite, and are refused
        images = {output.hdu: np.asarray(array, output.stored) for output, array in arrays.items() if array is not None}
    wave = {"WAVELENGTH": frame.wave.astype(np.float64)}
    if frame.own_wave is not None:
        wave = {"WAVELENGTH": frame.own_wave.astype(np.float64), GRID: wave["WAVELENGTH"]}
    return images | wave


def score_table(frame: Frame, images: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, str]] | None:
    """The rows of SCORES and the meaning of each column, or None if the wavelengths lie outside every scored range.

    images: from `frame_images`; the scores are those of the written values, so that a frame in single precision has the
    same scores.
    """
    # scores refer to the wavelength range of a camera arm, and orders have no common range
    scores = {} if frame.own_wave is not None else raw_scores(frame.wave, images["FLUX"], images["IVAR"])
    if not scores:
        return None
    if frame.notes.get("passes", 1) > 1:
        hit = np.count_nonzero(frame.mask & np.uint32(SpecMask.COSMIC), axis=1)
        scores[f"NUM_COSMIC_{band_of(frame.wave)}"] = hit.astype(np.float64), "bins with mask bit COSMIC"
    rows = np.empty(len(frame.fibres), [(name, np.float64) for name in scores])
    for name, (values, _) in scores.items():
        rows[name] = values
    return rows, {name: text for name, (_, text) in scores.items()}


def band_of(wave: Array) -> str:
    """The camera arm of a wavelength grid (Angstrom): B, R or Z, by its mean."""
    mean = float(np.mean(wave))
    if mean <= RANGES["B"][1]:
        return "B"
    return "Z" if mean >= RANGES["Z"][0] else "R"


def raw_scores(wave: Array, flux: np.ndarray, ivar: np.ndarray) -> dict[str, tuple[Array, str]]:
    """Column name -> (score of raw spectra per fibre, meaning): one number over a fixed range per camera arm.

    The definition is that of survey frames (desispec.specscore, suffix RAW): the flux per Angstrom is summed unchanged,
    and divided by the bin width once more for the median. This is odd, but the numbers are compared across years.

    wave: (nwave,) Angstrom; flux, ivar: (nspec, nwave), electron/Angstrom and its inverse variance

    Empty if the grid has no bin within the arm's range.
    """
    band = band_of(wave)
    low, high = RANGES[band]
    scored = np.nonzero((wave >= low) & (wave < high))[0]
    if len(scored) == 0 or len(wave) < 2:
        return {}
    inside = slice(scored[0], scored[-1] + 1)
    width = np.gradient(wave)[inside]
    counts = flux[:, inside].astype(np.float64)
    error = np.sqrt(ivar[:, inside].astype(np.float64).clip(min=0))     # inverse error
    where = f"in wave. range {low:.0f},{high:.0f}A"
    return {
        f"SUM_RAW_COUNT_{band}": (counts.sum(axis=1), f"sum counts {where}"),
        f"MEDIAN_RAW_COUNT_{band}": (medians(counts / width), f"median counts/A {where}"),
        f"MEDIAN_RAW_SNR_{band}": (medians(error * counts / np.sqrt(width)),
                                   f"median SNR/sqrt(A) {where}"),
    }


def refuse_not_finite(path: FileName, frame: Frame, images: Mapping[str, np.ndarray],
                      tables: Mapping[str, tuple[np.ndarray, dict[str, str]] | None]) -> None:
    """Raise OutputError if anything to write is NaN or infinite, after writing a debug file, and if IVAR is not 0
    without data."""
    if "IVAR" in images and images["IVAR"][(images["MASK"] & np.uint32(SpecMask.NODATA)) != 0].any():
        raise OutputError(f"{path}: not written: IVAR is not 0 where MASK marks no data; please report it")
    bad = {name: int(np.count_nonzero(~np.isfinite(a))) for name, a in images.items() if a.dtype.kind == "f"}
    rows = {name: table[0] for name, table in tables.items() if table is not None}
    if frame.fibermap is not None:
        rows["FIBERMAP"] = frame.fibermap.rows
    bad |= {name: len(not_finite(each)) for name, each in rows.items()}
    bad = {name: count for name, count in bad.items() if count}
    if not bad:
        return
    what = ", ".join(f"{name} ({count})" for name, count in bad.items())
    kept = _keep_for_debugging(path, frame, images)
    raise OutputError(f"{path}: not written: NaN or infinite values in {what}; {kept}; please report it")


def _keep_for_debugging(path: FileName, frame: Frame, images: Mapping[str, np.ndarray]) -> str:
    """Write all arrays unchanged next to the output; returns where, or why not, in words."""
    name = Path(path)
    debug = name.with_name(name.name.removesuffix(".gz").removesuffix(".fits") + ".debug.fits")
    hdus = [image_hdu(None, "", cards=frame_cards(frame), primary=True)]
    hdus += [image_hdu(array, key) for key, array in images.items()]
    try:
        write_hdus(debug, hdus)
    except OutputError as error:
        return f"a debug file could not be written either ({error})"
    return f"all arrays are in {debug}"


def write_model(path: FileName, frame: Frame, *, cards: Sequence[Card] = (), commit: Commit = at_once) -> None:
    """Write the model image (ny, nx), electron, with the frame's header. Raises OutputError, InputError."""
    if frame.model is None:
        raise InputError("the frame has no model image; extract with model=True (-m FILE)")
    image = {"MODEL": frame.model.astype(np.float32)}
    refuse_not_finite(path, frame, image, {})
    hdu = image_hdu(image["MODEL"], "MODEL", bunit="electron", primary=True, cards=frame_cards(frame, cards))
    write_hdus(path, [hdu], commit, read_back=True)


def write_spectra(path: FileName, frame: Frame, *, cards: Sequence[Card] = (), commit: Commit = at_once) -> None:
    """Write a frame as a spectra file of its one band (B, R or Z): `{BAND}_WAVELENGTH`, `_FLUX`, `_IVAR`, `_MASK`,
    `_RESOLUTION` and an empty primary. Raises OutputError.

    The layout is that of survey spectra files: specutils ("DESI spectra") and desispec.io.read_spectra open it without
    an additional loader.

    Raises InputError if fibres have their own wavelengths, which such files cannot hold.
    """
    if frame.own_wave is not None:
        raise InputError(f"{path}: a spectra file has one wavelength grid, but fibres of this PSF have their own; "
                         "leave --spectra out, and use the frame")
    images = frame_images(frame)
    scores = score_table(frame, images)
    refuse_not_finite(path, frame, images, {"SCORES": scores})
    band = band_of(frame.wave)
    units = {"WAVELENGTH": "Angstrom", "FLUX": FLUX_UNIT, "IVAR": OUTPUTS["ivar"].unit, **_own_units(frame)}
    hdus = [image_hdu(None, "", cards=frame_cards(frame, cards), primary=True),
            *fibermap_hdus(frame.fibermap or _minimal(frame)),
            *(image_hdu(images[name], f"{band}_{name}", bunit=units.get(name, ""))
              for name in ("WAVELENGTH", "FLUX", "IVAR", "MASK", "RESOLUTION")),
            # without SCORES specutils does not recognise the file; only identities if nothing can be scored
            *(table_hdus("SCORES", scores) or [table_hdu(_minimal(frame).rows, "SCORES")])]
    write_hdus(path, hdus, commit, read_back=True)


def _minimal(frame: Frame) -> FiberMap:
    """A fibermap that identifies the fibres; TARGETID is negative, as for fibres without a target."""
    rows = np.empty(len(frame.fibres), [("TARGETID", np.int64), ("FIBER", np.int32)])
    rows["FIBER"] = frame.fibres - frame.fibres[0] + fibermin(frame)
    rows["TARGETID"] = -1 - rows["FIBER"].astype(np.int64)
    return FiberMap(rows)


def read_frame(path: FileName, *, check: bool = True) -> Frame:
    """Read a frame of this code, of a survey pipeline or of specter.

    MASK, CHI2PIX, FIBERMAP, PIXMASK_FRACTION and STATUS may be absent: the mask is then NODATA where ivar is 0, chi2pix
    is 0, and the others are None. Raises InputError if the file cannot be read or its arrays are inconsistent.
    """
    with open_fits(path, check=check) as hdus:
        refuse_other(hdus, "a frame")
        arrays: dict[str, Any] = {
            name: image_of(find(hdus, output.hdu), 3 if name == "resolution" else 2)
            if name in _NEEDED else optional_image(hdus, output.hdu) for name, output in OUTPUTS.items()}
        # if each fibre has its own wavelengths, these are in WAVELENGTH, and the common coordinate in GRID
        hdu, grid = find(hdus, "WAVELENGTH"), optional_image(hdus, GRID, 1)
        wave = (image_of(hdu, 1) if grid is None else grid).astype(np.float64)
        own_wave = None if grid is None else image_of(hdu).astype(np.float64)
        fibermap = optional_fibermap(hdus)
        cards, unit = cards_of(hdus[0].header), str(find(hdus, "FLUX").header.get("BUNIT", "")).strip()
        for name, array in arrays.items():
            if array is not None and OUTPUTS[name].kind is not None:
                if array.dtype.kind not in "iu":
                    raise InputError(f"{OUTPUTS[name].hdu} is of type {array.dtype}, must be integers; the file is not "
                                     "a consistent frame; make or fetch it again")
                arrays[name] = array.astype(OUTPUTS[name].kind)
        flux, ivar = arrays["flux"], arrays["ivar"]
        if arrays["mask"] is None:
            arrays["mask"] = np.where(ivar == 0, np.uint32(SpecMask.NODATA), np.uint32(0))
        if arrays["chi2pix"] is None:
            arrays["chi2pix"] = np.zeros_like(flux)
        try:
            return Frame(wave=wave, fibres=_fibres(cards, len(flux)), cards=cards, fibermap=fibermap,
                         own_wave=own_wave, unit=unit, **arrays)
        except InputError as error:
            raise InputError(f"{error}; the file is not a consistent frame; make or fetch it again") from error


def _fibres(cards: Sequence[Card], nspec: int) -> np.ndarray:
    """Fibre numbers within the camera: from SPECMIN on, else from FIBERMIN within its spectrograph."""
    values = {c.key: c.value for c in cards}
    first = 0
    with suppress(TypeError, ValueError):
        first = int(values.get("SPECMIN", int(values.get("FIBERMIN", 0)) % FIBRES_PER_SPECTROGRAPH))
    return np.arange(first, first + nspec)
