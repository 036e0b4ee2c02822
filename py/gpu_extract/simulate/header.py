"""Header and fibermap of a simulated frame, with the keywords that users and pipelines need."""
from datetime import date

import numpy as np

from gpu_extract.data import Card, FiberMap, PsfModel
from gpu_extract.simulate.config import AMPLIFIERS, SimConfig
from gpu_extract.simulate.instrument import Detector
from gpu_extract.simulate.targets import Target, target_of

VERSION = 2                     # raised with every change that alters a pixel, so that cached frames are made again
BROKEN_FIBRE = 4                # bit 2 of desispec.maskbits.fibermask
_FIELD_RA, _FIELD_DEC = 150.1, 2.2
_PLATE_SCALE = 0.0706           # approximate mm on the focal plane per arcsecond at the centre of the field
_TILES = 80000                  # numbers of tiles begin here
_FIBERMAP = np.dtype([("TARGETID", "i8"), ("PETAL_LOC", "i2"), ("FIBER", "i4"), ("OBJTYPE", "S3"),
                      ("TARGET_RA", "f8"), ("TARGET_DEC", "f8"), ("FIBERSTATUS", "i4"), ("FLUX_R", "f4"),
                      ("LOCATION", "i8"), ("DEVICE_LOC", "i4"), ("FIBER_RA", "f8"), ("FIBER_DEC", "f8"),
                      ("FIBER_X", "f8"), ("FIBER_Y", "f8"), ("FIBERASSIGN_X", "f4"), ("FIBERASSIGN_Y", "f4"),
                      ("DELTA_X", "f8"), ("DELTA_Y", "f8"), ("EXPTIME", "f8"), ("DESI_TARGET", "i8"),
                      *((f"GAIA_PHOT_{band}_MEAN_MAG", "f4") for band in ("G", "BP", "RP"))])    # 0: unknown
_SKY_TARGET = 1 << 32           # bit SKY of desitarget's desi_mask
_UNITS = {"TARGET_RA": "deg", "TARGET_DEC": "deg", "FIBER_RA": "deg", "FIBER_DEC": "deg", "FIBER_X": "mm",
          "FIBER_Y": "mm", "FIBERASSIGN_X": "mm", "FIBERASSIGN_Y": "mm", "DELTA_X": "mm", "DELTA_Y": "mm",
          "EXPTIME": "s"}


def modified_julian_date(night: int) -> float:
    """MJD of a moment in the night YYYYMMDD at Kitt Peak (07:12 UT of the next day)."""
    return date(night // 10000, night // 100 % 100, night % 100).toordinal() - date(1858, 11, 17).toordinal() + 1.3


def cards_of(config: SimConfig, detector: Detector, psf: PsfModel) -> tuple[Card, ...]:
    """The image's header."""
    letter = {"tiny": "r"}.get(config.band, config.band)
    return (
        Card("BUNIT", "electron", "unit of the pixels"),
        Card("CAMERA", f"{letter}{config.spectrograph}", "camera"),
        Card("FLAVOR", config.flavor, "kind of exposure"),
        Card("OBSTYPE", config.flavor.upper(), "kind of exposure"),
        Card("PROGRAM", config.program, "observing programme"),
        Card("EXPID", config.expid, "exposure number"),
        Card("NIGHT", config.night, "night, YYYYMMDD"),
        Card("TILEID", tile_id(config), "tile: the set of targets"),
        Card("EXPTIME", config.seconds, "[s] exposure time"),
        Card("MJD-OBS", modified_julian_date(config.night), "[d] MJD of the exposure's start"),
        Card("SPECID", config.spectrograph, "spectrograph"),
        Card("TARGTRA", _FIELD_RA, "[deg] target right ascension"),
        Card("TARGTDEC", _FIELD_DEC, "[deg] target declination"),
        Card("SKYRA", _FIELD_RA, "[deg] right ascension of the field"),
        Card("SKYDEC", _FIELD_DEC, "[deg] declination of the field"),
        Card("GAIN", 1.0, "[electron/electron] pixels are in electrons"),
        *(Card(f"OBSRDN{name}", share * detector.read_noise, f"[electron] read noise of amplifier {name}")
          for name, share in AMPLIFIERS.items()),
        Card("NPIX_X", psf.shape[1], "columns of the CCD"),
        Card("NPIX_Y", psf.shape[0], "rows of the CCD"),
        Card("SIMCAM", config.band, "simulated camera"),
        Card("SIMSEED", config.seed, "seed of the simulation"),
        Card("SIMVER", VERSION, "version of the simulator"),
        Card("SIMDIG", config.digest(), "digest of the simulation's settings"),
    )


def fibermap_of(config: SimConfig, psf: PsfModel) -> FiberMap:
    """The fibermap with a row for every fibre of the camera, made or not, so that row and fibre number agree."""
    rows = np.zeros(psf.nfibre, _FIBERMAP)
    for fibre, row in enumerate(rows):
        _fill(row, config, fibre, target_of(config, fibre))
    return FiberMap(rows, _UNITS,
                    (Card("SIMSEED", config.seed, "seed of the simulation"),
                     Card("TILEID", tile_id(config), "tile: the set of targets"),
                     Card("SURVEY", "main", "survey, as desispec's grouping asks for it"),
                     Card("FAPRGRM", config.program, "programme of the fibre assignment")),
                    {"FLUX_R": "nanomaggies"})       # not a FITS unit: as one, astropy would warn


def tile_id(config: SimConfig) -> int:
    """Number of the tile, the same for exposures of the same targets."""
    return _TILES + config.field % 10000


def target_id(config: SimConfig, fibre: int) -> int:
    """Number of a fibre's target: differs between seeds, spectrographs and fibres."""
    return 39000000000000000 + config.field % 10**7 * 10**6 + config.spectrograph * 10**5 + fibre


def _fill(row: np.void, config: SimConfig, fibre: int, target: Target) -> None:
    sky = target.kind == "SKY"
    row["TARGETID"] = target_id(config, fibre)
    row["PETAL_LOC"] = config.spectrograph
    row["FIBER"] = 500 * config.spectrograph + fibre
    row["OBJTYPE"] = b"SKY" if sky else b"TGT"
    row["TARGET_RA"], row["TARGET_DEC"] = target.ra, target.dec
    row["FIBERSTATUS"] = BROKEN_FIBRE if fibre in (*config.defects.dead_fibres, *config.defects.broken_fibres) else 0
    row["DEVICE_LOC"], row["LOCATION"] = fibre, 1000 * config.spectrograph + fibre
    row["FIBER_RA"], row["FIBER_DEC"] = target.ra, target.dec
    place = focal_plane(target)
    row["FIBER_X"], row["FIBER_Y"] = row["FIBERASSIGN_X"], row["FIBERASSIGN_Y"] = place
    row["EXPTIME"], row["DESI_TARGET"] = config.seconds, _SKY_TARGET if sky else 0
    row["FLUX_R"] = 0.0 if sky else 10 ** (0.4 * (22.5 - target.magnitude))


def focal_plane(target: Target) -> tuple[float, float]:
    """Place of a target's light on the focal plane, mm: a plane projection, without the corrector's distortion."""
    east = (target.ra - _FIELD_RA) * np.cos(np.radians(target.dec))
    return -3600 * _PLATE_SCALE * float(east), 3600 * _PLATE_SCALE * (target.dec - _FIELD_DEC)
