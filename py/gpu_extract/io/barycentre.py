"""The barycentric Doppler factor of an exposure, from its header. The one place for such header maths.

Wavelengths seen at the telescope, times the factor 1 + v/c, are those at the barycentre of the solar
system. v is the velocity of the observatory towards the field (Wright & Eastman 2014, PASP 126, 838,
as astropy computes it), at the middle of the exposure.
"""
import math
import warnings
from collections.abc import Iterable
from typing import Any

from gpu_extract.data import Card
from gpu_extract.errors import InputError

# Kitt Peak, Mayall telescope: degrees north, degrees east, metres
LATITUDE, LONGITUDE, HEIGHT = 31.96403, -111.59989, 2097.0
_LIGHT = 299792.458          # km/s
_TARGETS = (("TARGTRA", "TARGTDEC"), ("SKYRA", "SKYDEC"), ("TELRA", "TELDEC"), ("RA", "DEC"))
_DATES = ("MJD-OBS", "MJD")
_SECONDS_PER_DAY = 86400.0


def barycentric_factor(*headers: Iterable[Card]) -> float:
    """1 + v/c for the exposure described by the first of `headers` that has a target.

    Needed: TARGTRA and TARGTDEC (else SKYRA/SKYDEC, TELRA/TELDEC, RA/DEC) in degrees, and MJD-OBS (else
    MJD), the start; EXPTIME in seconds moves to the middle. Date and EXPTIME are looked for in all headers.

    Raises InputError where they are missing or no numbers.
    """
    tables = [{c.key: c.value for c in cards} for cards in headers]
    target = next(((t[ra], t[dec]) for t in tables for ra, dec in _TARGETS if ra in t and dec in t), None)
    everything: dict[str, Any] = {}
    for table in reversed(tables):
        everything |= table
    start = next((everything[k] for k in _DATES if everything.get(k) is not None), None)
    if target is None or start is None:
        what = "target" if target is None else "date"
        raise InputError(f"the barycentric correction needs a {what}, but the header has none; needed are "
                         "TARGTRA and TARGTDEC (or SKYRA/SKYDEC, TELRA/TELDEC, RA/DEC) and MJD-OBS (or MJD); "
                         "leave --barycentric-correction out, or add them")
    ra, dec = _number(target[0], "RA", 0, 360), _number(target[1], "DEC", -90, 90)
    exposure = _number(everything.get("EXPTIME", 0.0), "EXPTIME", 0, 1e7)
    mjd = _number(start, "MJD", 0, 1e5) + 0.5 * exposure / _SECONDS_PER_DAY
    return 1.0 + _velocity(ra, dec, mjd) / _LIGHT


def _number(value: Any, name: str, low: float, high: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not low <= number <= high:
        raise InputError(f"the header's {name} is {value!r}, the barycentric correction needs a number from "
                         f"{low:g} to {high:g}; correct the header, or leave --barycentric-correction out")
    return number


def _velocity(ra: float, dec: float, mjd: float) -> float:
    """km/s towards ra, dec (degrees, ICRS) at Kitt Peak. Nothing is fetched from the network."""
    from astropy import units
    from astropy.coordinates import EarthLocation, SkyCoord, solar_system_ephemeris
    from astropy.time import Time
    from astropy.utils import iers

    kitt_peak = EarthLocation.from_geodetic(LONGITUDE * units.deg, LATITUDE * units.deg, HEIGHT * units.m)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")      # dates beyond the Earth-rotation table: mm/s
        with iers.conf.set_temp("auto_download", False), iers.conf.set_temp("auto_max_age", None), \
                iers.conf.set_temp("iers_degraded_accuracy", "ignore"), solar_system_ephemeris.set("builtin"):
            velocity = SkyCoord(ra, dec, unit="deg", frame="icrs").radial_velocity_correction(
                "barycentric", obstime=Time(mjd, format="mjd"), location=kitt_peak)
    return float(velocity.to_value(units.km / units.s))
