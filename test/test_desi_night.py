"""A night through desispec: simulated exposures become frames, and desispec's own steps make coadded spectra from them.

fiberflat, sky, grouping and coaddition are desispec's, called as in its pipeline, and so are the steps that apply them.
The calibration itself is known from the simulator: desispec's fits templates of stars, which no package contains. The
result is the light that was put in, within the noise.
"""
from pathlib import Path

import numpy as np
import pytest

from gpu_extract import ExtractConfig, extract, write_frame
from gpu_extract.resolution import times_resolution
from gpu_extract.simulate import SimConfig, Simulation, simulate
from gpu_extract.simulate.spectra import common_light, electrons_per_unit, transmission
from gpu_extract.simulate.targets import flux_density

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]      # theirs, not ours
GRID = (6500.0, 6760.0, 0.8)
FIBRES = 75
FIELD = 5
EXPOSURES = (11, 12, 13)


def expose(folder: Path, expid: int, **settings: object) -> Simulation:
    """Simulate and extract one exposure into `folder`."""
    made = simulate(SimConfig(camera="r0", nspec=FIBRES, crop=True, truth_grid=GRID, seed=expid, expid=expid,
                              **settings))
    config = ExtractConfig(wavelength=GRID, nspec=FIBRES, psferr=0.01)
    write_frame(folder / f"frame-r0-{expid:08d}.fits", extract(made.image, made.psf, config, dtype="float32"))
    return made


def calibrated(folder: Path, made: Simulation, fiberflat: object, level: float) -> str:
    """desispec's sky and calibration of one exposure; the name of its cframe. level: throughput of the mean fibre."""
    from desispec.fiberflat import apply_fiberflat
    from desispec.fluxcalibration import FluxCalib, apply_flux_calibration
    from desispec.io import read_frame, read_sky, write_frame
    from desispec.scripts import sky
    from desispec.sky import subtract_sky

    expid = made.config.expid
    name, of_sky, calibrated = (str(folder / f"{kind}-r0-{expid:08d}.fits") for kind in ("frame", "sky", "cframe"))
    sky.main(sky.parse(["-i", name, "--fiberflat", str(folder / "fiberflat.fits"), "-o", of_sky]))
    frame = read_frame(name)
    apply_fiberflat(frame, fiberflat)
    subtract_sky(frame, read_sky(of_sky), apply_throughput_correction=False)
    per_unit = level * electrons_per_unit(made.config, frame.wave) * transmission(frame.wave)
    calib = np.array([times_resolution(frame.resolution_data[k], per_unit) for k in range(FIBRES)])
    apply_flux_calibration(frame, FluxCalib(frame.wave, calib, np.full(calib.shape, 1e12), np.zeros(calib.shape, int)))
    write_frame(calibrated, frame, units="1e-17 erg/(s cm2 Angstrom)")
    return calibrated


@pytest.fixture(scope="module")
def coadded(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, object, Simulation]:
    """(spectra of all exposures, the coadd, the simulation of an exposure)"""
    pytest.importorskip("desispec", reason="desispec is not installed")
    from desispec.io import read_fiberflat, read_spectra
    from desispec.scripts import coadd_spectra, fiberflat, group_spectra

    folder = tmp_path_factory.mktemp("desi")
    lamp = expose(folder, 10, flavor="flat")
    flat = str(folder / "fiberflat.fits")
    fiberflat.main(fiberflat.parse(["-i", str(folder / "frame-r0-00000010.fits"), "-o", flat]))
    found = read_fiberflat(flat)
    level = float(np.median(found.meanspec / common_light(lamp.config, found.wave)))
    made = [expose(folder, expid, field_seed=FIELD) for expid in EXPOSURES]
    frames = [calibrated(folder, each, found, level) for each in made]
    spectra, coadd = str(folder / "spectra.fits"), str(folder / "coadd.fits")
    assert group_spectra.main(group_spectra.parse(["--inframes", *frames, "-o", spectra])) == 0
    coadd_spectra.main(coadd_spectra.parse(["-i", spectra, "-o", coadd, "--onetile"]))
    return read_spectra(spectra), read_spectra(coadd), made[0]


def test_every_exposure_of_every_target_is_grouped(coadded: tuple) -> None:
    spectra, coadd, made = coadded
    assert len(spectra.fibermap) == FIBRES * len(EXPOSURES) and len(coadd.fibermap) == FIBRES
    assert set(spectra.fibermap["EXPID"]) == set(EXPOSURES)
    assert list(coadd.fibermap["TARGETID"]) == list(made.image.fibermap.rows["TARGETID"][:FIBRES])
    assert set(coadd.fibermap["COADD_NUMEXP"]) == {len(EXPOSURES)}


def test_coadded_fluxes_are_the_truth_within_noise(coadded: tuple) -> None:
    """Pulls against R times the truth: width 1 within the 5 % that the noise of the sky model adds (some 8 sky fibres
    in each exposure), median near 0; and ivar of three exposures is three times that of one."""
    spectra, coadd, made = coadded
    wave, pulls = coadd.wave["r"], []
    for k in range(FIBRES):
        if made.truth.throughput[k] == 0:
            continue
        truth = times_resolution(coadd.resolution_data["r"][k], flux_density(made.truth.targets[k], wave))
        good = (coadd.mask["r"][k] == 0) & (coadd.ivar["r"][k] > 0)
        good[:8] = good[-8:] = False
        pulls.append(((coadd.flux["r"][k] - truth) * np.sqrt(coadd.ivar["r"][k]))[good])
    every = np.concatenate(pulls)
    low, middle, high = np.quantile(every, (0.16, 0.5, 0.84))
    print(f"pulls {middle:+.3f} +- {(high - low) / 2:.3f}; by fibre {np.std([np.median(p) for p in pulls]):.3f}")
    assert abs(middle) < 0.15 and 0.9 < (high - low) / 2 < 1.15
    one = np.median(spectra.ivar["r"][:FIBRES], axis=1)
    assert 2.6 < np.median(np.median(coadd.ivar["r"], axis=1) / one) < 3.4
