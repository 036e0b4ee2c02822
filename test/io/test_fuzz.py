"""A slice of bench/fuzz.py: damaged files of every kind are refused in one line, or read correctly."""

import signal
from collections import Counter
from dataclasses import replace

import pytest
from fuzz_cases import BAD, RIGHT, Cases, Verdict
from fuzz_files import READERS, make_image
from mutations import parts_of

from gpu_extract.errors import InputError, InternalError
from gpu_extract.perf.clock import now

SECONDS = 8  # for all cases together, as many as fit; a single one may take longer on a busy machine
FEWEST, CASES = 40, 250


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return Cases(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(autouse=True)
def hangs_end():
    def over(*_):
        pytest.fail("a case hangs")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
def test_a_slice_of_the_bench(cases):
    """Always the same cases, so that failures are the same for everybody. (As many of them as the time allows.)

    Every run of .ci/run does the same with the bench at its smallest.
    """
    found: Counter[tuple[str, str]] = Counter()
    start = now()
    for number in range(CASES):
        verdict = cases.run(3, number)
        assert verdict.verdict != BAD, (number, verdict)
        found[verdict.kind, verdict.verdict] += 1
        if number >= FEWEST and now() - start > SECONDS:      # the first ones may compile kernels
            break
    assert found["image", RIGHT] and found["psf", RIGHT]  # not everything is refused


@pytest.mark.parametrize("kind", ["image", "psf"])
def test_whole_commands_stand_damaged_files(cases, kind):
    """The first cases of a kind that run the whole command: one refused, one done."""
    seen: set[str] = set()
    for number in range(200):
        if len(seen) < 2 and cases.kind(3, number) == kind:
            verdict = cases.run(3, number, whole=True)
            assert verdict.verdict != BAD, (number, verdict)
            seen.add(verdict.verdict)
    assert len(seen) == 2


@pytest.mark.parametrize("kind", ["image", "psf", "fibermap", "frame"])
def test_files_without_damage_are_read_right(cases, kind):
    """All files, taken apart and reassembled: what the bench calls damage is the damage."""
    for parts, value in cases.bases[kind].files:
        path = cases.folder / "good.fits"
        path.write_bytes(parts.bytes())
        assert cases.judge(kind, path, "", value) == Verdict(RIGHT, kind, "")
        assert parts_of(str(path)).hdus == parts.hdus


def test_the_bench_sees_what_is_wrong(tmp_path, monkeypatch):
    """Other data, an error that is not an input error, and a message without the file's name are BAD."""
    cases, (path, _) = Cases(tmp_path), make_image(tmp_path)
    value = READERS["image"](path)
    other = value.pix.copy()
    other[3, 3] += 1
    assert cases.judge("image", path, "", value).verdict == RIGHT
    assert cases.judge("image", path, "", replace(value, pix=other)).words == "silently other data"
    for error in (InternalError(f"{path}: ours"), InputError("no name"), InputError(f"{path}: two\nlines")):

        def fail(_, error=error):
            raise error

        monkeypatch.setitem(READERS, "image", fail)
        assert cases.judge("image", path, "", value).verdict == BAD
