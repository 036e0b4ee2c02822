"""Presets, against the production settings of the survey."""

import pytest

from gpu_extract.errors import InputError
from gpu_extract.io.presets import camera_preset, find_preset, presets


@pytest.mark.parametrize(
    ("camera", "wavelength", "psferr"),
    [("b", (3600, 5800, 0.8), 0.04), ("r", (5760, 7620, 0.8), 0.01), ("z", (7520, 9824, 0.8), 0.01)],
)
def test_camera_presets_have_the_settings_of_production(camera, wavelength, psferr):
    for name in (f"{camera}0", f"{camera.upper()}9", f" {camera}5 "):
        assert camera_preset(name) is find_preset(f"desi-{camera}")
    preset = find_preset(f"desi-{camera}")
    assert (preset.wavelength, preset.psferr) == (wavelength, psferr)


def test_cameras_without_a_preset_and_unknown_names():
    assert [camera_preset(c) for c in (None, "", "x1", "tiny")] == [None] * 4
    with pytest.raises(InputError, match="no preset 'desi-x'; known: desi-b, desi-r, desi-z, tiny, side"):
        find_preset("desi-x")
    assert len(presets()) == 5


def write(path, text):
    path.write_text(text)
    return str(path)


def test_presets_of_a_file_of_ones_own(tmp_path):
    """By name, by the image's camera, and a single one for any camera."""
    file = write(tmp_path / "my.ini", "[a]\ncamera = R\nwavelength = 1, 2, 0.5\npsferr=0.02\n[b]\nwavelength=3,4,.5\n")
    assert find_preset(f"{file}:b").wavelength == (3.0, 4.0, 0.5)
    assert find_preset(f"{file}:b").psferr == 0.01
    assert find_preset(file, "r5").name == "a" and find_preset(file, " R ").psferr == 0.02
    alone = write(tmp_path / "alone.ini", "[b]\nwavelength = 3, 4, 0.5\n")
    assert find_preset(alone, "z1").name == "b" and find_preset(alone).name == "b"
    marked = write(tmp_path / "marked.ini", "\ufeff[b]\nwavelength = 3, 4, 0.5\n")      # as Windows editors do
    assert find_preset(marked).name == "b"


@pytest.mark.parametrize(("text", "chosen", "words"), [
    ("[a]\nwavelength = 1, 2, 0.5\n[b]\nwavelength = 3, 4, 0.5\n", "", "0 presets are for camera 'z0'; choose one: "),
    ("[a]\ncamera=z\nwavelength=1,2,1\n[b]\ncamera=z\nwavelength=3,4,1\n", "", "2 presets are for camera 'z0'"),
    ("[coarse]\nwavelength = 1, 2, 0.5\n", ":coarze", "no preset 'coarze'; known: coarse; did you mean coarse?"),
    ("[a]\nwavelength = 1, 2\n", "", "preset a needs wavelength = FIRST, LAST, STEP"),
    ("[a]\npsferr = 0.1\n", "", "preset a needs wavelength"),
    ("[a]\nwavelength = 1, 2, 1\nspeed = 3\n", "", "preset a has speed, must have only"),
    ("", "", "has no preset"),
    ("nonsense\n", "", "is not a file of presets"),
    ("[a]\nwavelength = %(x)s\n", "", "preset a needs wavelength"),
])
def test_a_file_of_presets_that_cannot_be_used(tmp_path, text, chosen, words):
    with pytest.raises(InputError) as caught:
        find_preset(write(tmp_path / "my.ini", text) + chosen, "z0")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_no_such_file_of_presets(tmp_path):
    with pytest.raises(InputError, match=r"none.ini: cannot be read: No such file"):
        find_preset(str(tmp_path / "none.ini"))
    with pytest.raises(InputError, match=r"no preset 'a.initial'"):
        find_preset("a.initial")
