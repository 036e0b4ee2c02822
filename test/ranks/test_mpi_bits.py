"""The number of ranks changes no bit of the output."""
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from gpu_extract.cli.simulate import main as simulate_main
from mpi_launch import PROGRAM, Frames, launch

DATED = ("DATE", "CHECKSUM")


def differences(path: Path, reference: Path) -> list[str]:
    """HDUs and cards in which two files differ, except cards that contain a date."""
    found = []
    with fits.open(path) as ours, fits.open(reference) as theirs:
        if [hdu.name for hdu in ours] != [hdu.name for hdu in theirs]:
            return [f"HDUs {[hdu.name for hdu in ours]}"]
        for one, other in zip(ours, theirs, strict=True):
            assert one.header["DATASUM"] == str(one._calculate_datasum())
            if one.header["DATASUM"] != other.header["DATASUM"]:
                found.append(f"{one.name} DATASUM")
            cards = [[str(card) for card in hdu.header.cards if card.keyword not in DATED] for hdu in (one, other)]
            found += [f"{one.name} {a} / {b}" for a, b in zip(*cards, strict=False) if a != b]
            found += ["number of cards"] if len(cards[0]) != len(cards[1]) else []
    return found


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_change_no_bit(frames: Frames, tmp_path: Path, ranks: int) -> None:
    """With three ranks, one of two bundles is shared."""
    ended = launch(ranks, PROGRAM, *frames.options, "-o", tmp_path / "frame.fits")
    assert (ended.code, ended.err) == (0, "")
    assert differences(tmp_path / "frame.fits", frames.frame) == []


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 33])
def test_ranks_change_no_bit_of_fine_bins(fine: Frames, tmp_path: Path, ranks: int) -> None:
    """In two tiles."""
    ended = launch(ranks, PROGRAM, *fine.options, "-o", tmp_path / "frame.fits", limit=300)
    assert (ended.code, ended.err) == (0, "")
    assert differences(tmp_path / "frame.fits", fine.frame) == []


def test_three_ranks_and_the_model_image(fine: Frames, tmp_path: Path) -> None:
    ended = launch(3, PROGRAM, *fine.options, "-o", tmp_path / "frame.fits", "-m", tmp_path / "model.fits")
    assert (ended.code, ended.err) == (0, "")
    assert differences(tmp_path / "frame.fits", fine.frame_with_model) == []
    assert differences(tmp_path / "model.fits", fine.model) == []


def test_all_ranks_know_the_same_pixels_for_odd(frames: Frames, tmp_path: Path) -> None:
    """A huge pixel, and, in the bundle that rank 0 does not work on, an ivar that is odd only by the read noise: all
    ranks know the read noise that rank 0 has read."""
    words = list(frames.options)
    with fits.open(words[words.index("-i") + 1]) as hdus:
        (y, x), (v, u) = ((96, first + int(np.argmax(hdus["IVAR"].data[96, first:first + 20]))) for first in (20, 68))
        hdus[0].data[y, x] = 1e30
        hdus["IVAR"].data[v, u] *= 40
        hdus.writeto(tmp_path / "odd.fits", checksum=True)
    words[words.index("-i") + 1] = str(tmp_path / "odd.fits")
    for ranks in (1, 3):
        ended = launch(ranks, PROGRAM, *words, "-o", tmp_path / f"{ranks}.fits")
        assert (ended.code, ended.err) == (0, "")
    assert fits.getheader(tmp_path / "1.fits")["NODDPIX"] >= 2
    assert differences(tmp_path / "3.fits", tmp_path / "1.fits") == []


@pytest.mark.parametrize("ranks", [2, pytest.param(7, marks=pytest.mark.slow)])
def test_ranks_on_one_bundle(fine: Frames, tmp_path: Path, ranks: int) -> None:
    """Each has a tile, or a part of one."""
    ended = launch(ranks, PROGRAM, *fine.one_bundle, "-o", tmp_path / "frame.fits")
    assert (ended.code, ended.err) == (0, "")
    assert differences(tmp_path / "frame.fits", fine.frame_of_one) == []


def test_all_ranks_judge_together(frames: Frames, tmp_path: Path) -> None:
    """--test without a value makes all ranks extract the cut-out; with one rank 0 compares; all end with its result."""
    ended = launch(3, PROGRAM, *frames.options, "-o", tmp_path / "frame.fits", "--test")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count("all within their limits") == 1
    with fits.open(frames.frame) as hdus:
        hdus["FLUX"].data[3] *= 1.5
        hdus.writeto(tmp_path / "other.fits", checksum=True)
    ended = launch(2, PROGRAM, *frames.options, "-o", tmp_path / "frame.fits", "--test", tmp_path / "other.fits")
    assert ended.code == 1
    assert ended.out.count("NOT within the limits") == 1
    assert len(ended.errors) == 1 and "differs from" in ended.errors[0]


def test_the_comparison_sees_a_bit_and_a_card(tmp_path: Path) -> None:
    flux = np.linspace(1, 2, 40, dtype=np.float32).reshape(4, 10)
    other = flux.copy()
    other[3, 7] = np.nextafter(other[3, 7], np.float32(np.inf))
    for name, data, card in (("one", flux, 1), ("same", flux, 1), ("bit", other, 1), ("card", flux, 2)):
        made = fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(data, name="FLUX")])
        made[1].header["CARD"] = card
        made.writeto(tmp_path / name, checksum=True)
    found = [differences(tmp_path / name, tmp_path / "one") for name in ("same", "bit", "card")]
    assert found[0] == [] and "FLUX DATASUM" in found[1] and "FLUX DATASUM" not in found[2] != []


@pytest.mark.parametrize("ranks", [2, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 33))])
def test_ranks_change_no_bit_of_two_passes(fine: Frames, tmp_path: Path, ranks: int) -> None:
    """With two bundles, three ranks share one of them; models and outliers are still exchanged."""
    for count in (1, ranks):
        ended = launch(count, PROGRAM, *fine.options, "--passes", "2", "--background", "-o",
                       tmp_path / f"{count}.fits", limit=300)
        assert ended.code == 0 and ended.err.count("\n") == 1 and "are not searched for" in ended.err
    assert len(fits.getdata(tmp_path / "1.fits", "BACKGROUND")) == 2
    assert differences(tmp_path / f"{ranks}.fits", tmp_path / "1.fits") == []
    assert fits.getheader(tmp_path / "1.fits")["PASSES"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_change_no_bit_of_tails(tmp_path: Path, ranks: int) -> None:
    """A PSF with tails, which reach the other bundle's pixels."""
    image, psf = tmp_path / "t.fits", tmp_path / "t-psf.fits"
    assert simulate_main(["--camera", "tiny", "--tails", "0.004", "--truth-out", "none", "-o", str(image), "--loglevel",
                          "error"]) == 0
    for count in (1, ranks):
        ended = launch(count, PROGRAM, "-i", image, "-p", psf, "-w", "6020,6060,0.85", "--no-gpu", "--passes", "3",
                       "--tail-radius", "60", "--loglevel", "error", "-o", tmp_path / f"{count}.fits", limit=300)
        assert (ended.code, ended.err) == (0, "")
    assert differences(tmp_path / f"{ranks}.fits", tmp_path / "1.fits") == []
