"""The barycentric factor, against a calculation that shares no code with it, and against astropy set up here."""

import math
import warnings

import numpy as np
import pytest
from astropy import units
from astropy.coordinates import EarthLocation, SkyCoord
from astropy.time import Time
from astropy.utils import iers

from gpu_extract.data import Card, FiberMap
from gpu_extract.errors import InputError
from gpu_extract.io.barycentre import barycentric_factor, with_factors

LIGHT = 299792.458


def header(**values):
    return [Card(key.replace("_", "-"), value) for key, value in values.items()]


def earth_velocity(jd):
    """Velocity of the Earth about the Sun in km/s, equatorial, from its mean elements.

    Low-precision solar formulae of the Astronomical Almanac: longitude and distance of the Sun to 0.01 degree, their
    derivative by central differences of a two-term equation of the centre.
    """

    def position(t):
        n = t - 2451545.0
        mean = math.radians(357.528 + 0.9856003 * n)
        longitude = (
            math.radians(280.460 + 0.9856474 * n)
            + math.radians(1.915) * math.sin(mean)
            + math.radians(0.020) * math.sin(2 * mean)
        )
        longitude -= math.radians(1.3969713 * n / 36525.0)  # equinox of date -> J2000
        distance = 1.00014 - 0.01671 * math.cos(mean) - 0.00014 * math.cos(2 * mean)
        tilt = math.radians(23.4393)
        sun = (math.cos(longitude), math.sin(longitude) * math.cos(tilt), math.sin(longitude) * math.sin(tilt))
        return [-distance * 149597870.7 * s for s in sun]

    step = 0.05
    return [(b - a) / (2 * step * 86400.0) for a, b in zip(position(jd - step), position(jd + step), strict=True)]


def rotation_velocity(jd):
    """Velocity of Kitt Peak about the Earth's axis in km/s, from the sidereal time."""
    sidereal = math.radians(280.46061837 + 360.98564736629 * (jd - 2451545.0) - 111.59989)
    latitude = math.radians(31.96403)
    radius = (6378.137 / math.sqrt(1 - 0.00669438 * math.sin(latitude) ** 2) + 2.097) * math.cos(latitude)
    speed = radius * 2 * math.pi / 86164.0905
    return [-speed * math.sin(sidereal), speed * math.cos(sidereal), 0.0]


@pytest.mark.parametrize("mjd", [58900.3, 59050.45, 59200.2, 60000.15])
@pytest.mark.parametrize(("ra", "dec"), [(150.0, 2.2), (10.0, -15.0), (270.0, 66.0), (350.0, 30.0)])
def test_velocities_agree_with_the_mean_elements_of_the_orbit(mjd, ra, dec):
    """Earth's orbit and rotation by hand. Left out: the Sun's own motion (0.016 km/s), the Moon's pull (0.013),
    perturbations and terms of the elements (0.01)."""
    toward = [
        math.cos(math.radians(dec)) * math.cos(math.radians(ra)),
        math.cos(math.radians(dec)) * math.sin(math.radians(ra)),
        math.sin(math.radians(dec)),
    ]
    jd = mjd + 450.0 / 86400.0 + 2400000.5
    velocity = sum(n * (a + b) for n, a, b in zip(toward, earth_velocity(jd), rotation_velocity(jd), strict=True))
    factor = barycentric_factor(header(TARGTRA=ra, TARGTDEC=dec, MJD_OBS=mjd, EXPTIME=900.0))
    assert (factor - 1) * LIGHT == pytest.approx(velocity, abs=0.05)


def test_against_astropy_to_a_millimetre_per_second():
    site = EarthLocation.from_geodetic(lon=-111.59989 * units.deg, lat=31.96403 * units.deg, height=2097 * units.m)
    middle = Time(59200.25 + 600.0 / 86400.0, format="mjd")
    with iers.conf.set_temp("auto_download", False):
        velocity = SkyCoord(123.4 * units.deg, 21.0 * units.deg).radial_velocity_correction(
            obstime=middle, location=site
        )
    expected = 1 + velocity.to_value(units.km / units.s) / LIGHT
    factor = barycentric_factor(header(TARGTRA=123.4, TARGTDEC=21.0, MJD_OBS=59200.25, EXPTIME=1200.0))
    assert factor == pytest.approx(expected, abs=1e-6 / LIGHT)


def test_the_target_is_taken_in_the_stated_order():
    base = {"MJD_OBS": 59200.25, "EXPTIME": 0.0}
    at = {ra: barycentric_factor(header(RA=ra, DEC=20.0, **base)) for ra in (10.0, 100.0, 190.0, 280.0)}
    keys = {"RA": 10.0, "DEC": 20.0, "TELRA": 100.0, "TELDEC": 20.0}
    assert barycentric_factor(header(**keys, **base)) == at[100.0]
    keys |= {"SKYRA": 190.0, "SKYDEC": 20.0}
    assert barycentric_factor(header(**keys, **base)) == at[190.0]
    keys |= {"TARGTRA": 280.0, "TARGTDEC": 20.0}
    assert barycentric_factor(header(**keys, **base)) == at[280.0]
    del keys["TARGTDEC"]  # half a target is none
    assert barycentric_factor(header(**keys, **base)) == at[190.0]
    assert len(set(at.values())) == 4


def test_mjd_and_a_second_header():
    one = barycentric_factor(header(RA=10.0, DEC=20.0, MJD_OBS=59200.25))
    assert barycentric_factor(header(RA=10.0, DEC=20.0, MJD=59200.25)) == one
    assert barycentric_factor(header(MJD=59200.25), header(RA=10.0, DEC=20.0)) == one
    assert barycentric_factor(header(RA=10.0, DEC=20.0, MJD=59200.25, EXPTIME=1800.0)) != one


@pytest.mark.parametrize("mjd", [15020.0, 79000.0])
def test_dates_beyond_all_tables_work_without_network_or_warning(mjd, monkeypatch):
    asked = []

    def refuse(*words, **_):
        asked.append(words)
        raise OSError("no network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("astropy.utils.iers.IERS_Auto.iers_table", None)  # as in a fresh process
    # astropy allows no shorter age than ten days: older tables would be downloaded again
    with warnings.catch_warnings(), iers.conf.set_temp("auto_max_age", 10.0):
        warnings.simplefilter("error")
        factor = barycentric_factor(header(RA=10.0, DEC=20.0, MJD=mjd))
    assert 0 < abs(factor - 1) < 31 / LIGHT
    assert asked == []


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ({"MJD": 59200.0}, "needs a target"),
        ({"RA": 1.0, "DEC": 2.0}, "needs a date"),
        ({"RA": 400.0, "DEC": 2.0, "MJD": 59200.0}, "RA is 400.0"),
        ({"RA": "x", "DEC": 2.0, "MJD": 59200.0}, "RA is 'x'"),
        ({"RA": 1.0, "DEC": 2.0, "MJD": 59200.0, "EXPTIME": -5.0}, "EXPTIME is -5.0"),
        ({"RA": 1.0, "DEC": None, "MJD": 59200.0}, "DEC is None"),
    ],
)
def test_headers_that_do_not_do(cards, words):
    with pytest.raises(InputError, match=words) as caught:
        barycentric_factor(header(**cards))
    assert "--barycentric-correction" in str(caught.value) and "\n" not in str(caught.value)


def test_each_fibre_has_the_factor_of_its_own_target() -> None:
    """Columns are found by name; a fibre without a target has the exposure's factor; other tables do not change."""
    cards = header(RA=150.0, DEC=2.0, MJD_OBS=59200.25, EXPTIME=600.0)
    rows = np.zeros(4, [("FIBER", "i4"), ("TARGET_RA", "f8"), ("TARGET_DEC", "f8"), ("HELIOCOR", "f4")])
    rows["TARGET_RA"], rows["TARGET_DEC"] = [148.5, 151.5, np.nan, 150.0], [2.0, 3.0, 2.0, 99.0]
    table = with_factors(FiberMap(rows, {"TARGET_RA": "deg"}), cards)
    wanted = [barycentric_factor(header(RA=ra, DEC=dec, MJD_OBS=59200.25, EXPTIME=600.0))
              for ra, dec in ((148.5, 2.0), (151.5, 3.0), (150.0, 2.0), (150.0, 2.0))]
    np.testing.assert_allclose(table.rows["HELIOCOR"], wanted, rtol=0, atol=1e-14)
    assert 1e-7 < np.ptp(table.rows["HELIOCOR"]) < 1e-5
    assert table.rows.dtype.names == ("FIBER", "TARGET_RA", "TARGET_DEC", "HELIOCOR")
    np.testing.assert_array_equal(table.rows["TARGET_RA"], rows["TARGET_RA"])
    plain = FiberMap(rows[["FIBER", "TARGET_RA"]])
    assert with_factors(plain, cards) is plain
