"""Which frames an exposure has, and how many groups work on them."""
from argparse import Namespace
from pathlib import Path

import pytest

from gpu_extract.cli.exposure_list import Entry, check_folders, find_entries
from gpu_extract.errors import InputError, OutputError
from gpu_extract.exposure.layout import choose_groups, group_of
from gpu_extract.plan import share


def options(**given: object) -> Namespace:
    return Namespace(**{"list": None, "input": None, "psf": None, "output": None, **given})


def test_names_are_filled_in(tmp_path: Path) -> None:
    for name in ("preproc-r5-00012345.fits.gz", "preproc-b0-00012345.fits", "other.fits"):
        (tmp_path / name).touch()
    found = find_entries(options(input=[f"{tmp_path}/preproc-*"], psf="cal/psf-{camera}-{expid}.fits", output="out"))
    assert found == (
        Entry(f"{tmp_path}/preproc-b0-00012345.fits", "cal/psf-b0-00012345.fits", "out/frame-b0-00012345.fits"),
        Entry(f"{tmp_path}/preproc-r5-00012345.fits.gz", "cal/psf-r5-00012345.fits", "out/frame-r5-00012345.fits"))
    (other,) = find_entries(options(input=[f"{tmp_path}/other.fits"], psf="one.fits", output="out"))
    assert (other.psf, other.output) == ("one.fits", "out/frame-other.fits")


def test_a_list_names_what_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# a comment\n\npreproc-r1-1.fits  # PSF and output by rule\n"
                    "'with space.fits' psf.fits\n/abs/a.fits b.fits c/d.fits.gz\n")
    found = find_entries(options(list=str(path), psf="/psf-{camera}.fits", output="o"))
    assert found == (
        Entry(f"{tmp_path}/preproc-r1-1.fits", "/psf-r1.fits", "o/frame-r1-1.fits"),
        Entry(f"{tmp_path}/with space.fits", f"{tmp_path}/psf.fits", "o/frame-with space.fits"),
        Entry("/abs/a.fits", f"{tmp_path}/b.fits", f"{tmp_path}/c/d.fits.gz"))


@pytest.mark.parametrize(("lines", "given", "words"), [
    ("", {}, "lists no frame"),
    ("a b c d", {}, "line 1: 4 words"),
    ("a 'b", {}, "line 1: No closing quotation"),
    ("a.fits b.fits \"\"", {}, "line 1: an empty name; each line is IMAGE"),
    ("a.fits p.fits o.txt", {}, "the name of a frame must end in .fits or .fits.gz"),
    ("a\0.fits p.fits o.fits", {}, "a file name cannot contain a zero byte"),
    ("a.fits", {"output": "o"}, "has no PSF"),
    ("a.fits p.fits", {}, "has no output"),
    ("x/a.fits p.fits\ny/a.fits p.fits", {"output": "o"}, "a.fits is the same file as the frame of .*/x/a.fits"),
    ("odd.fits", {"psf": "psf-{camera}.fits", "output": "o"}, "cannot be filled in"),
    ("odd.fits", {"psf": "psf-{.fits", "output": "o"}, "cannot be filled in"),
    ("odd.fits", {"psf": "psf-{stem.x}.fits", "output": "o"}, "cannot be filled in"),
    (f"{'SIMPLE  =':29}T", {}, "is a FITS file, and no list of them; give images with -i"),
    ("a.fits p.fits a.fits", {}, "the frame of .*a.fits is the same file as an image or a PSF"),
    ("a.fits p.fits x/../p.fits", {}, "is the same file as an image or a PSF"),
    ("a.fits x/../p.fits p.fits", {}, "is the same file as an image or a PSF"),
    ("a.fits p.fits b.fits\nb.fits p.fits c.fits", {}, "b.fits: the frame of .*a.fits is the same file as an image"),
    ("frame-a.fits p.fits\na.fits p.fits", {"output": "."}, "is the same file as an image or a PSF")])
def test_lists_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str,
                                   given: dict[str, str], words: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list").write_text(lines)
    with pytest.raises(InputError, match=words):
        find_entries(options(list=str(tmp_path / "list"), **given))


def test_a_list_of_an_editor_of_windows(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbfa.fits p.fits o.fits\r\n")
    (entry,) = find_entries(options(list=str(tmp_path / "list")))
    assert entry == Entry(f"{tmp_path}/a.fits", f"{tmp_path}/p.fits", f"{tmp_path}/o.fits")


def test_a_list_of_more_than_10_megabytes_is_refused() -> None:
    with pytest.raises(InputError, match="has more than 10000000 bytes"):
        find_entries(options(list="/dev/zero"))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        find_entries(options(list=str(tmp_path / "no")))
    with pytest.raises(InputError, match="matches no file"):
        find_entries(options(input=[f"{tmp_path}/*.fits"], psf="p", output="o"))


@pytest.mark.parametrize(("frames", "ranks", "bundles", "groups"), [
    (12, 2, 20, 2), (30, 20, 20, 10), (1, 33, 20, 1), (30, 30, 20, 30), (1, 1, 20, 1), (3, 2, 20, 1),
    (100, 4, 20, 4), (30, 8, 20, 8), (3, 7, 20, 3)])
def test_groups_have_all_frames_done_first(frames: int, ranks: int, bundles: int, groups: int) -> None:
    assert choose_groups(frames, ranks, bundles) == groups


@pytest.mark.parametrize(("ranks", "groups"), [(7, 3), (33, 1), (5, 5), (20, 6)])
def test_groups_are_neighbours_and_even(ranks: int, groups: int) -> None:
    numbers = [group_of(rank, ranks, groups) for rank in range(ranks)]
    assert numbers == sorted(numbers) and set(numbers) == set(range(groups))
    assert [numbers.count(g) for g in range(groups)] == [len(share(ranks, g, groups)) for g in range(groups)]


def test_missing_folders_are_named_before_any_work(tmp_path: Path) -> None:
    """All at once, with their frames; a folder that will be made, and the current one, are no obstacle."""
    made = str(tmp_path / "new")
    check_folders([Entry("a.fits", "p.fits", f"{made}/a.fits"), Entry("a.fits", "p.fits", "b.fits")], made)
    lost = [Entry("a.fits", "p.fits", f"{tmp_path}/{folder}/{n}.fits") for n, folder in enumerate("xyxzw")]
    with pytest.raises(OutputError, match=r"x \(2 frames\), .*y \(1 frame\), .*z \(1 frame\) and 1 more; make"):
        check_folders(lost, made)
    with pytest.raises(OutputError, match=r"new \(1 frame\)"):
        check_folders([Entry("a.fits", "p.fits", f"{made}/a.fits")], None)
