"""Faults of `gpu_psf fit` that random arcs have found, each by its seed: reported as fitted once, but wrong."""
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from psf_random import KINDS, Verdict, run, scene_of

from gpu_extract.io.psf import read_psf
from gpu_extract.simulate.instrument import psf_model
from gpu_psf import run as fitting
from gpu_psf.cli import fit

# what was wrong -> the seed and what is drawn from it; if it draws another problem, the find must be made again
FINDS = {
    "an arc upside down, whose lines nearly mirror each other: 13 pixels off, chi2 1.9, half of the pixels left out":
        "seed 6: faint fibres, off, upside down",
    "two arcs that are shifted by 1.6 pixels: the fit lies between them":
        "seed 14: hot rows, uneven, second arc",
    "a start that is off by more than a fibre: each taken for its neighbour, chi2 0.45":
        "seed 97: far, wrong noise",
    "a dark amplifier and lines that leave no pixel for the continuum: polynomials went astray, 0.3 pixel":
        "seed 105: silent amplifier, continuum",
    "two faint arcs that are shifted: no pixel is odd":
        "seed 157: faint fibres, weak, second arc",
    "stray light taken for the lines of a faint arc: where nothing is bright, all of that was explained":
        "seed 178: stray light, weak, uneven",
    "two uneven arcs that are shifted by a pixel":
        "seed 183: uneven, second arc",
    "a faint arc upside down, fitted 14 pixels off":
        "seed 234: wrong gain, weak, upside down",
    "another arc upside down, whose traces moved by more than they were to be looked for":
        "seed 319: cosmics, uneven, upside down",
    "half of an upside-down arc's bright spots are not where the list has them: y off by 12 pixels, chi2 1.6":
        "seed 300038: faint fibres, upside down",
    "a long gap in the list itself, in which traces bend by 0.2 pixel":
        "seed 377: uneven, unlisted",
    "an amplifier that is partly dark: a gap that is just short enough, 0.3 pixel":
        "seed 457: silent amplifier, stray light",
    "a hot column beside a trace, seen between lines, less than the noise on them: x off by 0.19":
        "seed 94221: wide light, hot columns, stray light",
    "the same at the first fibre, 0.11":
        "seed 94287: off, hot columns, masked columns",
    "lines that are not listed, 5 rows from others whose shapes grew to have them: y off by 0.35 at the end":
        "seed 91040: wide light, off, unlisted",
    "the same: shapes off by 5 % of the peak":
        "seed 93163: cosmics, bias, unlisted",
    "two arcs that are shifted, of which many pixels are masked":
        "seed 240: masked pixels, second arc",
    "spots on the edge of an amplifier of another gain: not firm, they kept traces where they were":
        "seed 300043: wrong gain, cosmics, uneven",
}


@pytest.mark.parametrize("find", FINDS)
def test_what_was_found_is_mended(find: str, tmp_path: Path) -> None:
    seed, _, words = FINDS[find].removeprefix("seed ").partition(": ")
    scene = scene_of(int(seed))
    assert ", ".join(scene.words) == words, "another problem is drawn from this seed"
    assert run(scene, tmp_path).finds == ()


def test_faint_lines_on_a_wavy_continuum_are_refused(tmp_path: Path) -> None:
    """No polynomial follows it. The fit was told of with chi2 1.8 and PSFERR 0.14; its lines are pixels apart."""
    verdict = run(scene_of(95537), tmp_path)
    assert verdict.code == 2 and "14 of 16 lines of the list are seen" in verdict.said and verdict.finds == ()


def test_a_model_that_is_wrong_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PSFERR is 0.001 at least."""
    said: list[str] = []
    monkeypatch.setattr(fit.log, "warning", said.append)
    monkeypatch.setattr(fit, "WRONG", 0.0009)
    assert run(scene_of(0, "off"), tmp_path).finds == ()
    assert any("a PSFERR above 0.0009, the first, fibres 0-4, 1.0, 0 % and 0.00" in words for words in said)


@pytest.mark.parametrize(("only", "lines", "columns", "words"), [
    ("unlisted", 6, 0, "left out: lines that are not in the list ({}6)"),
    ("hot columns", 0, 1, "left out: hot columns (1)"),
    ("off", 0, 0, "")])
def test_what_is_left_out_is_told(only: str, lines: int, columns: int, words: str, tmp_path: Path,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of lines that the list lacks, and the hot columns: in the table, for a bundle, in the summary."""
    said: list[str] = []
    warned: list[str] = []
    monkeypatch.setattr(fit.log, "info", said.append)
    monkeypatch.setattr(fit.log, "warning", warned.append)
    scene = scene_of(2, only)
    assert len(scene.lamp.wave) - len(scene.lines.wave) == lines and (scene.add > 0).all(axis=0).sum() == columns
    assert run(scene, tmp_path).finds == ()
    with fits.open(tmp_path / "psf.fits") as hdus:
        rows = np.array(hdus["BUNDLES"].data)
    assert list(rows["UNLISTED"]) == [lines, lines] and rows["HOT"].sum() == columns
    *bundles, summary = [text for text in said if "left out" in text] or ["", ""]
    assert any(words.format("") in text for text in bundles) and words.format("up to ") in summary
    assert any("left out" in text for text in said) == bool(words)
    told = "many lines that are not in the list, most of all fibres 0-4 (6 beside 10 that are)"
    assert any(told in text for text in warned) == bool(lines)
    monkeypatch.setattr(fit, "HOT", 0)
    fit._tell_left_out(rows)
    assert any("more than 0 hot columns" in text for text in warned) == bool(columns)


def test_a_problem_without_damage_is_fitted_and_right(tmp_path: Path) -> None:
    verdict = run(scene_of(0, "off"), tmp_path)
    assert verdict == Verdict(0, "", (0,) * 10, ())


def test_the_judge_sees_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the fit, traces are moved by a tenth of a pixel, and shapes are made wider."""
    import psf_random
    from psf_errors import moved

    monkeypatch.setattr(psf_random, "read_psf", lambda path: moved(read_psf(path), 0.2, 0.0))
    assert any("x off by 0.2" in find for find in run(scene_of(0, "off"), tmp_path).finds)


def test_every_kind_of_damage_is_drawn_first_by_some_seed() -> None:
    assert [scene_of(seed).words.count(name) for seed, name in enumerate(KINDS)] == [1] * len(KINDS)


def test_a_reason_has_no_space_at_its_end() -> None:
    """FITS drops such a space, and the checksum was once that of the text with it."""
    reason = "x" * 159 + " y"
    row, = fitting._bundle_rows(psf_model("tiny"), [(0, 5)], [{"reason": reason}])
    assert row["REASON"] == b"x" * 159
    assert np.all(row["FITTED"] == 0)
