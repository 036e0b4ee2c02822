"""Bundles whose spots overlap are reported: the overlap, the pairs of fibres, and the effect on a frame."""
from dataclasses import replace

import numpy as np
import pytest

import oracle
from extraction import extracted
from gpu_extract.checks.bundle_edges import TOGETHER, too_close
from gpu_extract.config import ExtractConfig
from gpu_extract.data import PsfModel
from gpu_extract.plan import Plan
from gpu_extract.run import prepare
from gpu_extract.spots import make_spots

CONFIG = ExtractConfig(wavelength=(6050.0, 6081.0, 0.8))
NFIBRE = 7


def in_two(psf: PsfModel, first: int) -> PsfModel:
    """The same traces, with the fibres from `first` on in their own bundle."""
    return replace(psf, bundle=(np.arange(psf.nfibre) >= first).astype(int))


def apart(psf: PsfModel, first: int, distance: float) -> PsfModel:
    """The fibres from `first` on moved away from the others."""
    coeff = psf.x.coeff.copy()
    coeff[first:, 0] += distance
    return replace(psf, x=replace(psf.x, coeff=coeff), shape=(psf.shape[0], psf.shape[1] + 100))


def planned(psf: PsfModel, config: ExtractConfig = CONFIG) -> tuple[PsfModel, Plan]:
    job = prepare(psf, config)
    return job.psf, job.plan


def overlap(psf: PsfModel, fibre: int, wave: np.ndarray) -> float:
    """The same from images: what a continuum of the next fibre has in common with the spot in the middle."""
    spots = make_spots(psf, (fibre, fibre + 2), wave)
    y0, x0 = spots.y0 - spots.y0.min(), spots.x0 - spots.x0.min()
    images = np.zeros((2, y0.max() + psf.stamp[0], x0.max() + psf.stamp[1]))
    for image, stamps, ys, xs in zip(images, spots.stamps, y0, x0, strict=True):
        for stamp, y, x in zip(stamps, ys, xs, strict=True):
            image[y:y + psf.stamp[0], x:x + psf.stamp[1]] += stamp
    n = len(wave) // 2

    def seen(spot: int, continuum: int) -> float:
        y, x = y0[spot, n], x0[spot, n]
        there = images[continuum, y:y + psf.stamp[0], x:x + psf.stamp[1]]
        return float((spots.stamps[spot, n] * there).sum())

    return seen(0, 1) / min(seen(0, 0), seen(1, 1))


@pytest.mark.parametrize("family", ["v3", "gh2"])
def test_the_overlap_is_that_of_the_spots(family):
    psf, plan = planned(in_two(oracle.make_psf(family, NFIBRE, (360, 70), first_row=20), 3))
    middle = (len(plan.extended) - 64) // 2
    stretches = plan.extended[:64], plan.extended[middle:middle + 64], plan.extended[-64:]
    found = max(overlap(psf, 2, wave) for wave in stretches)
    assert found > TOGETHER
    assert too_close(psf, plan)[0].startswith(
        f"fibres 2 and 3 belong to different bundles, but their spots overlap by {found:.0e}. ")


def test_bundles_apart_and_whole_ones_are_not_told_of():
    psf = oracle.make_psf("v3", NFIBRE, (360, 70), first_row=20)
    assert too_close(*planned(psf)) == []
    assert too_close(*planned(apart(in_two(psf, 3), 3, 10.0))) == []
    assert too_close(*planned(apart(in_two(psf, 3), 3, 0.0)))


def test_every_edge_of_the_bundles_that_are_extracted_counts():
    """Also that to a bundle that is not; the closest is reported, in the PSF's numbers if a fibre is dropped."""
    psf = apart(apart(oracle.make_psf("v3", NFIBRE, (360, 70), first_row=20), 2, 0.1), 6, 0.05)
    assert "fibres 3 and 4 " in too_close(*planned(psf, replace(CONFIG, bundlesize=2)))[0]
    assert "fibres 5 and 6 " in too_close(*planned(psf, replace(CONFIG, bundlesize=6)))[0]
    assert "fibres 1 and 2 " in too_close(*planned(psf, replace(CONFIG, bundlesize=2, nspec=2)))[0]
    assert "Check --bundlesize" in too_close(*planned(psf, replace(CONFIG, bundlesize=2)))[0]
    coeff = psf.x.coeff.copy()
    coeff[1] = np.nan
    bad = in_two(replace(psf, x=replace(psf.x, coeff=coeff)), 4)
    assert "fibres 3 and 4 " in too_close(*planned(bad))[0]
    assert "Check BUNDLE of the PSF" in too_close(*planned(bad))[0]


def test_a_frame_is_off_by_the_overlap_and_says_so():
    """By that much of the other fibre's light: the warning states the effect, and further passes remove it."""
    psf, config = oracle.make_psf("v3", NFIBRE, (360, 70), first_row=20), replace(CONFIG, core="dense")
    case = oracle.make_case(psf, config, pad=60, noise=False)
    image = replace(case.image, ivar=np.full(case.image.shape, 0.1))
    whole, split = extracted(image, psf, config), extracted(image, in_two(psf, 3), config)
    (sentence,) = (text for text in split.notes["warnings"] if "overlap" in text)
    assert not any("overlap" in text for text in whole.notes["warnings"])
    overlap = float(sentence.split("overlap by ")[1].split(". ")[0])
    off = np.abs(split.flux - whole.flux)[2:4].max() / whole.flux[2:4].max()
    assert overlap / 4 < off < 4 * overlap
    assert sentence not in extracted(case.image, in_two(psf, 3), replace(config, passes=2)).notes["warnings"]
