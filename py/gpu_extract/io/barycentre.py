"""The barycentric Doppler factor of an exposure, from its header. All such header maths is here.

Wavelengths seen at the telescope, times the factor 1 + v/c, are those at the barycentre of the solar
system. v is the velocity of the observatory towards the field (Wright & Eastman 2014, PASP 126, 838,
as astropy computes it), at the middle of the exposure.
"""
import warnings
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from gpu_extract.data import Array, Card, FiberMap
from gpu_extract.errors import InputError
from gpu_extract.io.headers import number_of

# Kitt Peak, Mayall telescope: degrees north, degrees east, metres
LATITUDE, LONGITUDE, HEIGHT = 31.96403, -111.59989, 2097.0
_LIGHT = 299792.458          # km/s
_TARGETS = (("TARGTRA", "TARGTDEC"), ("SKYRA", "SKYDEC"), ("TELRA", "TELDEC"), ("RA", "DEC"))
_COLUMNS = (("TARGET_RA", "TARGET_DEC"), ("FIBER_RA", "FIBER_DEC"))
COLUMN = "HELIOCOR"          # of the fibermap
_DATES = ("MJD-OBS", "MJD")
_SECONDS_PER_DAY = 86400.0


def barycentric_factor(*headers: Iterable[Card]) -> float:
    """1 + v/c for the exposure described by the first of `headers` that has a target.

    Needed: TARGTRA and TARGTDEC (else SKYRA/SKYDEC, TELRA/TELDEC, RA/DEC) in degrees, and MJD-OBS (else
    MJD), the start; EXPTIME in seconds moves to the middle. Date and EXPTIME are looked for in all headers.

    Raises InputError if they are missing or not numbers.
    """
    (ra, dec), mjd = _exposure(*headers)
    return 1.0 + float(_velocity(np.array([ra]), np.array([dec]), mjd)[0]) / _LIGHT


def with_factors(fibermap: FiberMap, *headers: Iterable[Card]) -> FiberMap:
    """The table with a column HELIOCOR: the factor of each fibre's own target, if known.

    It differs by up to 3e-6 (0.8 km/s) across a field. Targets are TARGET_RA and TARGET_DEC, else FIBER_RA and
    FIBER_DEC; a fibre without a target in degrees has the factor of the exposure. Without such columns the table is
    returned unchanged.

    headers: as for `barycentric_factor`, and with the same errors
    """
    names = fibermap.rows.dtype.names or ()
    columns = next((pair for pair in _COLUMNS if all(_plain(fibermap.rows, name) for name in pair)), None)
    if columns is None:
        return fibermap
    (ra, dec), mjd = _exposure(*headers)
    own = [fibermap.rows[name].astype(np.float64) for name in columns]
    with np.errstate(invalid="ignore"):
        known = (own[0] >= 0) & (own[0] <= 360) & (np.abs(own[1]) <= 90)
    factors = 1.0 + _velocity(np.where(known, own[0], ra), np.where(known, own[1], dec), mjd) / _LIGHT
    kept = [name for name in names if name != COLUMN]
    rows = np.empty(len(factors), [*((name, fibermap.rows.dtype[name]) for name in kept), (COLUMN, np.float64)])
    for name in kept:
        rows[name] = fibermap.rows[name]
    rows[COLUMN] = factors
    units = {name: unit for name, unit in fibermap.units.items() if name != COLUMN}
    return replace(fibermap, rows=rows, units=units,
                   comments={**fibermap.comments, COLUMN: "barycentric factor of the target"})


def _plain(rows: np.ndarray, name: str) -> bool:
    """Whether there is such a column, with one number per row."""
    return name in (rows.dtype.names or ()) and rows.dtype[name].kind in "iuf" and rows.dtype[name].shape == ()


def _exposure(*headers: Iterable[Card]) -> tuple[tuple[float, float], float]:
    """Target (ra, dec), degrees, and the middle of the exposure, MJD; see `barycentric_factor`."""
    tables = [{c.key: c.value for c in cards} for cards in headers]
    target = next(((t[ra], t[dec]) for t in tables for ra, dec in _TARGETS if ra in t and dec in t), None)
    everything = ChainMap(*tables)
    start = next((everything[k] for k in _DATES if everything.get(k) is not None), None)
    if target is None or start is None:
        what = "target" if target is None else "date"
        raise InputError(f"the barycentric correction needs a {what}, but the header has none; it must have TARGTRA "
                         "and TARGTDEC (or SKYRA/SKYDEC, TELRA/TELDEC, RA/DEC) and MJD-OBS (or MJD); add them, or "
                         "leave --barycentric-correction out")
    ra, dec = _number(target[0], "RA", 0, 360), _number(target[1], "DEC", -90, 90)
    exposure = _number(everything.get("EXPTIME", 0.0), "EXPTIME", 0, 1e7)
    mjd = _number(start, "MJD", 0, 1e5) + 0.5 * exposure / _SECONDS_PER_DAY
    return (ra, dec), mjd


def _number(value: Any, name: str, low: float, high: float) -> float:
    number = number_of(value)
    if not low <= number <= high:
        raise InputError(f"the header's {name} is {value!r}, must be a number from {low:g} to {high:g} for the "
                         "barycentric correction; correct the header, or leave --barycentric-correction out")
    return number


def _velocity(ra: Array, dec: Array, mjd: float) -> Array:
    """km/s towards each ra, dec (degrees, ICRS) at Kitt Peak. Nothing is loaded from the network."""
    from astropy import units
    from astropy.coordinates import EarthLocation, SkyCoord, solar_system_ephemeris
    from astropy.time import Time
    from astropy.utils import iers

    kitt_peak = EarthLocation.from_geodetic(LONGITUDE * units.deg, LATITUDE * units.deg, HEIGHT * units.m)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")      # dates beyond the Earth-rotation table: an error of mm/s
        with iers.conf.set_temp("auto_download", False), iers.conf.set_temp("auto_max_age", None), \
                iers.conf.set_temp("iers_degraded_accuracy", "ignore"), solar_system_ephemeris.set("builtin"):
            velocity = SkyCoord(ra, dec, unit="deg", frame="icrs").radial_velocity_correction(
                "barycentric", obstime=Time(mjd, format="mjd"), location=kitt_peak)
    return velocity.to_value(units.km / units.s)
