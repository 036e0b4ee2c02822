"""Presets, against the production settings of the survey."""

import pytest

from gpu_extract.errors import InputError
from gpu_extract.io.presets import camera_preset, find_preset, presets


@pytest.mark.parametrize(
    ("camera", "wavelength", "psferr"),
    [("b", (3600, 5800, 0.8), 0.04), ("r", (5760, 7620, 0.8), 0.01), ("z", (7520, 9824, 0.8), 0.01)],
)
def test_production_settings(camera, wavelength, psferr):
    for name in (f"{camera}0", f"{camera.upper()}9", f" {camera}5 "):
        assert camera_preset(name) is find_preset(f"desi-{camera}")
    preset = find_preset(f"desi-{camera}")
    assert (preset.wavelength, preset.psferr) == (wavelength, psferr)


def test_cameras_without_a_preset_and_unknown_names():
    assert [camera_preset(c) for c in (None, "", "x1", "tiny")] == [None] * 4
    with pytest.raises(InputError, match="no preset 'desi-x'; there are desi-b, desi-r, desi-z, tiny"):
        find_preset("desi-x")
    assert len(presets()) == 4
