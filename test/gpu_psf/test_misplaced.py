"""Lines that are not where the list has them, in all fibres alike."""
from pathlib import Path

import numpy as np
import pytest
from psf_errors import make_arc
from psf_random import run, scene_of
from small_arc import FIBRES, Small

from gpu_extract.data import Array
from gpu_psf.cli import fit as program
from gpu_psf.data import FitConfig, Lines
from gpu_psf.fit import Fit, fit_bundle
from gpu_psf.prepare import traces_at
from gpu_psf.status import Status

PITCH = 0.57        # Angstrom in a row


def wrong(lines: Lines, by: dict[int, float]) -> Lines:
    """The list with some lines moved, Angstrom; none passes another."""
    wave = lines.wave.copy()
    wave[list(by)] += list(by.values())
    return Lines(wave, lines.strength)


def fitted(small: Small, by: dict[int, float]) -> Fit:
    return fit_bundle([small.arc], small.start, FIBRES, wrong(small.lines, by), FitConfig())


def off(small: Small, fit: Fit, wave: Array) -> float:
    """The largest error of traces along y, pixels. Root mean squares of what noise leaves are 0.03."""
    right = small.true.y.coeff[slice(*FIBRES)] @ np.polynomial.legendre.legvander(
        2 * (wave - small.true.y.wmin) / (small.true.y.wmax - small.true.y.wmin) - 1, small.true.y.coeff.shape[1] - 1).T
    return float(np.abs(traces_at(fit.frame, fit.state.now, wave)[1] - right).max())


@pytest.mark.parametrize(("line", "by"), [(1, 0.5), (14, 0.2), (15, 0.5), (8, -0.1)])
def test_a_wrong_line_is_left_out(small: Small, line: int, by: float) -> None:
    """The fit followed it by 1.0, 0.7, 0.9 and 0.3 pixels, with chi2 1.2 to 1.5 and no word. Its own place says nothing
    then: compared at the other lines from the first to the last one that the lamp shows, to 6 times 0.02."""
    fit = fitted(small, {line: by})
    assert small.lines.wave[line] + by in fit.misplaced and len(fit.misplaced) <= 2
    assert (fit.status == Status.FITTED).all() and fit.scatter < 0.01
    assert off(small, fit, np.delete(small.lines.wave, [0, line])) < 0.12


def test_two_wrong_lines_are_left_out(small: Small) -> None:
    """Each hides the other: the rest agrees only without both."""
    fit = fitted(small, {5: -0.6, 13: 0.6})
    np.testing.assert_array_equal(fit.misplaced, small.lines.wave[[5, 13]] + [-0.6, 0.6])
    assert off(small, fit, small.lines.wave[1:]) < 0.12


def test_a_right_list_keeps_all_lines(small: Small) -> None:
    """By chance one of 100000 would go; these are 45."""
    fits = [small.fit, *(fit_bundle([make_arc(small.true, FIBRES, (small.lines.wave, small.lines.strength), seed)],
                                    small.start, FIBRES, small.lines, FitConfig()) for seed in (2, 3))]
    assert all(len(fit.misplaced) == 0 and fit.scatter < 0.005 for fit in fits)


def test_lines_that_scatter_are_told_and_kept(small: Small) -> None:
    """No line differs from the others: all are wrong by 0.35 pixel, of which traces of 7 coefficients through 15 lines
    leave half of the variance."""
    scatter = 0.2 * np.random.default_rng(8).standard_normal(16)
    fit = fitted(small, dict(enumerate(scatter)))
    assert len(fit.misplaced) == 0
    assert 0.4 * 0.2 / PITCH < fit.scatter < 0.2 / PITCH


def test_traces_that_are_too_stiff_lose_no_line(small: Small) -> None:
    """The dispersion is a parabola. Lines at both ends are off by most, but the others agree no better without them."""
    fit = fit_bundle([small.arc], small.start, FIBRES, small.lines, FitConfig(degree_trace=1))
    assert len(fit.misplaced) == 0


def test_the_program_names_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    warned: list[str] = []
    monkeypatch.setattr(program.log, "info", said.append)
    monkeypatch.setattr(program.log, "warning", warned.append)
    scene = scene_of(0, "off")
    scene.lines = wrong(scene.lines, {8: 0.3})
    assert run(scene, tmp_path).finds == ()
    assert any("2 of 2 bundles have lines that are not where the list has them, which are left out: 6059.40; correct"
               in text for text in warned)
    assert any("left out: lines that are not in the list (1), lines that are not where the list has them (6059.40)"
               in text for text in said)
    scatter = 0.15 * np.random.default_rng(8).standard_normal(16)
    scene.lines = wrong(scene_of(0, "off").lines, dict(enumerate(scatter)))
    run(scene, tmp_path)
    assert any("the lines of 2 of 2 bundles scatter along the traces by more than 0.05 pixels" in text
               for text in warned)
