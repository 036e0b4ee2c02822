"""Bins that are too broad: the warning states what they lose."""
import re

import numpy as np
import pytest

import oracle
from extraction import extracted
from gpu_extract.checks import coarse
from gpu_extract.checks.coarse import too_coarse
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Array, Image, PsfModel, Spots
from gpu_extract.io.presets import find_preset
from gpu_extract.seams import Recorder
from gpu_extract.simulate.instrument import psf_model
from gpu_extract.spots import make_spots


class Listening(Recorder):
    """Records warnings."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def warn(self, sentence: str) -> None:
        self.told.append(sentence)


@pytest.mark.parametrize("step", [1.5, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("family", ["v3", "table"])
def test_the_flux_of_a_smooth_spectrum_is_as_small_as_is_said(family: str, step: float) -> None:
    """Spots of 1.8 rows; a spectrum of 100 electrons in each fifth of an Angstrom. To 0.01, for rounded percentages."""
    psf = oracle.make_psf(family, 2, (210, 30))
    wave = np.arange(6010.0, 6150.0, 0.2)
    light = oracle.expected_image(psf, range(2), wave, np.full((2, len(wave)), 100.0), psf.shape)
    config, listening = ExtractConfig(wavelength=(6040.0, 6112.0, step), core="dense", any_psf=True), Listening()
    frame = extracted(Image(light, np.full(light.shape, 0.1)), psf, config, recorder=listening)
    share = float(np.median(frame.flux[:, 2:-2])) / 500
    said = too_coarse(psf, config.wavelength)
    assert listening.told == ([said] if said else [])
    if not said:
        assert share > 0.98
        return
    assert share < 1.0
    assert int(re.search(r"is (\d+)% of its", said)[1]) / 100 == pytest.approx(share, abs=0.015)
    enough = float(re.search(r"use a step of ([\d.]+) or less", said)[1])
    assert too_coarse(psf, (6040.0, 6112.0, 0.95 * enough)) == "" != too_coarse(psf, (6040.0, 6112.0, 1.25 * enough))


@pytest.mark.parametrize("camera", ["b", "r", "z", "tiny", "side"])
def test_bins_of_presets_are_not_too_broad(camera: str) -> None:
    name = f"desi-{camera}" if len(camera) == 1 else camera
    assert too_coarse(psf_model(camera), find_preset(name).wavelength) == ""


def test_two_bins_at_an_end_of_the_psf_are_judged_as_many_are() -> None:
    psf = oracle.make_psf("v3")
    low, high = psf.wavelength_range
    for step in (0.8, 1.5):
        assert too_coarse(psf, (low, low + step, step)) == too_coarse(psf, (high - step, high, step)) == ""
    assert "is 4" in too_coarse(psf, (low, low + 5.0, 5.0))


def test_no_spot_beyond_the_psf_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    psf, asked = oracle.make_psf("v3"), []

    def listening(psf: PsfModel, fibres: tuple[int, int], wave: Array) -> Spots:
        asked.append(wave)
        return make_spots(psf, fibres, wave)

    monkeypatch.setattr(coarse, "make_spots", listening)
    low, high = psf.wavelength_range
    for first, last in ((low, low + 5.0), (high - 5.0, high)):
        too_coarse(psf, (first, last, 5.0))
    assert low - 1e-9 < np.min(asked[0]) and np.max(asked[-1]) < high + 1e-9
