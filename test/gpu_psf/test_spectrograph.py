"""A user's spectrograph, described by a short file: read as a whole, then flat and arc to a starting PSF."""
from pathlib import Path

import numpy as np
import pytest
from toy import Toy, arc, flat, lamp

from gpu_extract.errors import InputError
from gpu_extract.io.image import write_image
from gpu_extract.io.psf import read_psf
from gpu_extract.spots import centres
from gpu_psf.cli.psf import main
from gpu_psf.series import at_rows
from gpu_psf.spectrograph import Spectrograph, read_spectrograph
from gpu_psf.start.count import Slit, match_fibres
from gpu_psf.start.identify import refine
from gpu_psf.start.lines import seen_lines
from gpu_psf.start.profiles import fit_profiles, fit_traces
from gpu_psf.start.search import Range, describe
from gpu_psf.start.traces import find_traces

SIZES = 4, 6, 8                                  # of unequal bundles
TOY = Toy(place=tuple(20.0 + 7.3 * n + 9.0 * gap for n, gap in enumerate(np.repeat((0, 1, 2), SIZES))))
LINES, LIGHT = lamp(TOY)
DESCRIPTION = """\
# two of them
[toy]
range = 5003, 5415          # Angstrom
middle = 5222
dispersion = 0.7
fibres = 18
bundles = 4, 6, 8
gain = 1.5

[other]
axis = -x
overscan = 10, 20
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.ini"
    path.write_text(DESCRIPTION)
    return path


def test_a_description_is_read(file: Path) -> None:
    found = read_spectrograph(f"{file}:toy")
    assert found == Spectrograph(f"{file}:toy", range=(5003.0, 5415.0), middle=5222.0, dispersion=0.7, fibres=18,
                                 bundles=SIZES, gain=1.5)
    assert found.slit == Slit(18, SIZES)
    assert found.wavelengths(600).middle == 5222.0
    assert read_spectrograph(f"{file}:other").overscan == (10, 20)
    file.write_text("[only]\nmiddle = 5000\ndispersion = 2\n")
    only = read_spectrograph(file)
    known = only.wavelengths(101)
    assert (known.first, known.middle, known.last) == (4900, 5000, 5100)
    assert only.slit is None


def test_the_one_that_comes_with_the_package_is_that_of_the_simulator() -> None:
    from gpu_extract.simulate.instrument import DETECTORS

    side, made = read_spectrograph("side"), DETECTORS["side"]
    assert (side.range, side.axis, side.read_noise, side.fibres) == (made.wave, made.dispersion, made.read_noise, 60)
    assert side.bundles == (made.bundlesize,)


@pytest.mark.parametrize(("text", "messages"), [
    ("[a]\naxis = z\nrange = 9000, 8000\nfibres = 10\nbundles = 4, 5\ngain = -1\nread_noise = low\nfibers = 3\n",
     ["axis is 'z', must be one of y, -y, x, -x", "range is 9000, 8000, must be two ascending wavelengths",
      "which are 9 fibres, but fibres is 10", "gain is -1, must be above 0", "read_noise is 'low', must be a number",
      "fibers is not known; did you mean fibres?"]),
    ("[a]\nrange = 8000, 9000\nmiddle = 8100\nbundles = 15\nbias = 3\noverscan = 20, 10\norder = up\n",
     ["middle is 8100, must lie in the middle half of the range, 8250 to 8750", "also give fibres",
      "bias and overscan are both given", "overscan is 20, 10", "order is 'up', must be one of ascending, descending"]),
    ("[a]\nmiddle = 8100\nfibres = 61\nbundles = 15\nrange = 8100\nskip = 1.5\n",
     ["range is '8100', must be two wavelengths", "skip is '1.5', must be a whole number",
      "bundles is 15, which does not divide 61 fibres"]),
    ("[a]\ndispersion = nan\nbundles = 0\nfibres = 0\n",
     ["dispersion is 'nan', must be a number", "bundles is 0, must be numbers of", "fibres is 0, must be above 0"]),
    ("[a]\n[b]\n", ["2 spectrographs; choose one: ", "mine.ini:a", "mine.ini:b"]),
    ("", ["holds no description; a line [NAME] begins one"]),
    ("range = 1, 2\n", ["is not a description of a spectrograph"]),
])
def test_all_problems_are_told_at_once(file: Path, text: str, messages: list[str]) -> None:
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_spectrograph(file)
    assert [message for message in messages if message not in str(error.value)] == []
    assert "\n" not in str(error.value)


def test_no_such_description(file: Path) -> None:
    for name, message in (("sied", "no spectrograph 'sied'; known: side; or give a file (FILE.ini); did you mean"),
                          (f"{file}:toi", "no spectrograph 'toi'; choose one: "),
                          (file.with_name("none.ini"), "none.ini: cannot be read: No such file")):
        with pytest.raises(InputError) as error:
            read_spectrograph(name)
        assert message in str(error.value)


def test_range_and_dispersion_must_fit_the_image() -> None:
    with pytest.raises(InputError, match=r"on the 300 rows of the image is 1.37\d A per pixel, dispersion is 0.7"):
        Spectrograph("a", range=(5003.0, 5415.0), dispersion=0.7).wavelengths(300)
    with pytest.raises(InputError, match="has no wavelengths"):
        Spectrograph("a").wavelengths(300)
    with pytest.raises(InputError, match="in Angstrom per pixel"):
        Spectrograph("a", middle=500.0, dispersion=5.0).wavelengths(300)


def test_bundles_of_several_sizes_tell_which_fibres_are_missing() -> None:
    light = np.full(18, 4000.0)
    light[[4, 11]] = 0.0                        # the first of a bundle, and one within
    image = flat(TOY, light)
    found = find_traces(image)
    traces = match_fibres(fit_traces(found, fit_profiles(image, found), image.shape), Slit(18, SIZES))
    assert np.flatnonzero(traces.interpolated).tolist() == [4, 11]
    rows = np.arange(TOY.ny, dtype=float)
    assert np.abs(at_rows(traces.x, rows) - TOY.x(rows)).max() < 0.3


def test_from_description_flat_and_arc(file: Path) -> None:
    folder = file.parent
    file.write_text(DESCRIPTION.replace("range = 5003, 5415          # Angstrom\n", ""))
    write_image(folder / "flat.fits", flat(TOY))
    write_image(folder / "arc.fits", arc(TOY, LINES, LIGHT))
    (folder / "lines.txt").write_text("\n".join(f"{wave:.4f}" for wave in LINES))
    words = ["start", "--flat", "flat.fits", "--arc", "arc.fits", "--lines", "lines.txt", "-o", "start.fits"]
    words = [str(folder / word) if "." in word else word for word in words]
    assert main([*words, "--spectrograph", f"{file}:toy"]) == 0
    psf = read_psf(folder / "start.fits")
    assert psf.bundle is not None and psf.bundle.tolist() == np.repeat((0, 1, 2), SIZES).tolist()
    wave = np.linspace(5050.0, 5390.0, 60)              # between the outer lines
    y, x = centres(psf, (0, 18), wave)
    rows = np.arange(TOY.ny, dtype=float)
    truth = np.stack([np.interp(wave, w, rows) for w in TOY.wave(rows)])
    assert np.abs(y - truth).max() < 0.1
    lines = np.stack([np.interp(row, rows, line) for row, line in zip(truth, TOY.x(rows), strict=True)])
    assert np.abs(x - lines).max() < 0.1


def test_a_description_need_be_right_to_3_per_cent_only() -> None:
    """The wavelengths at both ends are off by up to 3 % of the range each, that in the middle is not given."""
    image = flat(TOY)
    found = find_traces(image)
    traces = fit_traces(found, fit_profiles(image, found), image.shape)
    seen = seen_lines(arc(TOY, LINES, LIGHT), traces, 1.2)
    rows = np.arange(50.0, 540.0, 10)
    first, last = TOY.wave(np.array([0.0, 599.0]))[9]
    for off in 0.03 * (last - first) * np.array([(1, 1), (-1, -1), (-1, 1), (1, -1), (0.3, 0.9), (-0.6, 0.1)]):
        solution = describe(Range(first + off[0], last + off[1]), seen, LINES, 18, 600)
        solution, _ = refine(seen, LINES, solution, ny=600)
        assert np.abs(solution.at(rows) - TOY.wave(rows)).max() < 0.15


@pytest.mark.parametrize(("change", "options", "message"), [
    ("fibres = 26", [], "found 18 traces in the flat, expected 26"),
    ("", ["--range", "5003,5415", "--psf", "a.fits"], "--psf and --range is given for the wavelengths"),
    ("", ["--echelle"], "are for fibres with the same wavelengths"),
    ("dispersion = 0.3", [], "dispersion is 0.3; they must agree to 10%"),
])
def test_descriptions_that_cannot_be_used_are_refused(file: Path, capsys: pytest.CaptureFixture[str], change: str,
                                                      options: list[str], message: str) -> None:
    text = "[toy]\nrange = 5003, 5415\nmiddle = 5222\n" + (change or "fibres = 18") + "\n"
    file.write_text(text)
    for name, image in (("flat", flat(TOY)), ("arc", arc(TOY, LINES, LIGHT))):
        write_image(file.with_name(f"{name}.fits"), image)
    words = ["start", "--flat", str(file.with_name("flat.fits")), "--arc", str(file.with_name("arc.fits")),
             "--spectrograph", str(file), "-o", str(file.with_name("x.fits"))]
    assert main([*words, *options]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert len(lines) == 1 and message in lines[0]
    assert not file.with_name("x.fits").exists()
