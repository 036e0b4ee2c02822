"""Cases of damaged input: made from a seed and a number, run, and judged."""
import argparse
import io
import json
import os
import random
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_files import CONFIG, GRID, READERS, Base, make_bases
from mutations import change_bytes, change_text, damaged

from gpu_extract.cli.exposure_list import find_entries
from gpu_extract.cli.extract import main
from gpu_extract.errors import ExitCode, GpuExtractError, InputError
from gpu_extract.io.frame import read_frame, write_frame
from gpu_extract.packing import same
from gpu_extract.run import extract
from gpu_extract.simulate.kept import kept_folder

REFUSED, RIGHT, BAD = "refused", "right", "BAD"
KINDS = ("image",) * 9 + ("psf",) * 7 + ("fibermap",) * 2 + ("frame",) + ("list",) + ("manifest",)
COMMAND = ("image", "psf", "fibermap")  # of these, whole commands are made


@dataclass(frozen=True)
class Verdict:
    """What came of a case: REFUSED, RIGHT or BAD; what was done to which kind of file, and what was said."""

    verdict: str
    kind: str
    done: str
    words: str = ""


class Cases:
    """All cases that can be made of some good files in `folder`; damaged files are written there, too."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.extracts: Callable[[], None] = lambda: None  # called where reading is over, and kernels may be compiled
        self.last = ""  # what was done to which file in the case in work

    @cached_property
    def _made(self) -> tuple[dict[str, Base], Any]:
        return make_bases(self.folder)

    def prepare(self) -> "Cases":
        """Make the good files now, so that no case is charged with their time."""
        assert self._made
        return self

    @property
    def bases(self) -> dict[str, Base]:
        """Good files by their kind, made at first use: what only judges needs none."""
        return self._made[0]

    @property
    def frame(self) -> Any:
        """What comes of them."""
        return self._made[1]

    def kind(self, seed: int, number: int) -> str:
        """What a case is about."""
        return random.Random(f"{seed} {number}").choice(KINDS)

    def run(self, seed: int, number: int, *, whole: bool = False) -> Verdict:
        """One case, in this process; whole: by the command, else by the readers, and sometimes an extraction."""
        chance = random.Random(f"{seed} {number}")
        kind = chance.choice(KINDS)
        if whole and kind not in COMMAND:
            kind = chance.choice(COMMAND)
        if kind in ("list", "manifest"):
            return (self._list if kind == "list" else self._manifest)(chance)
        base = self.bases[kind]
        check = chance.random() < 0.15
        if check:
            content, done, harmless = change_bytes(base.checked, chance)
            value, zipped = base.value, False
        else:
            parts, value = chance.choice(base.files)
            content, done, harmless, zipped = damaged(parts, chance)
        path = self.folder / f"bad.fits{'.gz' * zipped}"
        path.write_bytes(content)
        self.last = f"{kind}: {done}"
        if whole:
            return self._whole(kind, path, done, harmless)
        return self.judge(kind, path, done, value if harmless else None, further=chance.random() < 0.1)

    def judge(self, kind: str, path: Path, done: str, base: Any, *, further: bool = False) -> Verdict:
        """Read it, and extract from it where the readers take it; base: what must come of it, if that is known."""
        try:
            value = READERS[kind](path)
            if base is not None and not data_same(kind, value, base):
                return Verdict(BAD, kind, done, "silently other data")
        except GpuExtractError as error:
            return refusal(error, kind, done, path)
        if further and kind != "frame":
            try:
                return self._extracted(kind, value, done, base is not None)
            except GpuExtractError as error:
                return refusal(error, kind, done, path, named=False)
        return Verdict(RIGHT, kind, done)

    def _extracted(self, kind: str, value: Any, done: str, known: bool) -> Verdict:
        """The frame of it, written and read again: finite, of its shape, the same where data were left alone."""
        self.extracts()
        given = {name: base.value for name, base in self.bases.items()} | {kind: value}
        frame = extract(given["image"], given["psf"], CONFIG, dtype="float32")
        if frame is None or frame.flux.shape != self.frame.flux.shape:
            return Verdict(BAD, kind, done, "a frame of another shape")
        write_frame(self.folder / "out.fits", frame)
        written = read_frame(self.folder / "out.fits")
        if known and not np.array_equal(written.flux, self.frame.flux):
            return Verdict(BAD, kind, done, "silently other spectra")
        return Verdict(RIGHT, kind, done, "extracted")

    def _whole(self, kind: str, path: Path, done: str, harmless: bool) -> Verdict:
        """The command on it."""
        self.extracts()
        output = self.folder / "out.fits"
        output.unlink(missing_ok=True)
        files = {"image": self.folder / "image.fits", "psf": self.folder / "psf.fits"} | {kind: path}
        words = ["-i", files["image"], "-p", files["psf"], "-o", output, "-w", ",".join(map(str, GRID)), "-n", "2",
                 "--loglevel", "error", *(["-f", path] if kind == "fibermap" else [])]
        said = io.StringIO()
        with redirect_stderr(said), redirect_stdout(said):
            code = main([str(word) for word in words])
        lines = said.getvalue().splitlines()
        refused = code == ExitCode.INPUT and len(lines) == 1 and lines[0].startswith("gpu_extract: error: ")
        if refused and not output.exists():
            return Verdict(REFUSED, kind, done, lines[0])
        if code or lines:
            return Verdict(BAD, kind, done, f"exit code {code}: {said.getvalue()}")
        frame = read_frame(output)
        if frame.flux.shape != self.frame.flux.shape or not np.isfinite(frame.flux).all():
            return Verdict(BAD, kind, done, "a frame of another shape, or not finite")
        if harmless and not np.array_equal(frame.flux, self.frame.flux):
            return Verdict(BAD, kind, done, "silently other spectra")
        return Verdict(RIGHT, kind, done)

    def _list(self, chance: random.Random) -> Verdict:
        """A list of frames: understood, or refused."""
        text = "# list\n" + "".join(f"preproc-r{n}-0000{n}.fits psf-r{n}.fits 'out dir/frame-{n}.fits'\n"
                                    for n in range(4))
        done = []
        for _ in range(chance.randint(1, 3)):
            text, what = change_text(text, chance)
            done.append(what)
        path = self.folder / "list.txt"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        options = argparse.Namespace(list=str(path), input=None, psf=chance.choice((None, "psf-{camera}.fits")),
                                     output=str(self.folder))
        try:
            for entry in find_entries(options):
                os.path.exists(entry.image), os.path.realpath(entry.output)
                entry.output.encode("utf-8", "surrogateescape")
        except InputError as error:
            return refusal(error, "list", "; ".join(done), path, named=False)
        return Verdict(RIGHT, "list", "; ".join(done))

    def _manifest(self, chance: random.Random) -> Verdict:
        """The manifest of the simulated frames that are kept: made again where it is not what it was."""

        def make(folder: Path) -> None:
            (folder / "a.fits").write_bytes(b"good")

        manifest = next(kept_folder(self.folder / "kept", "one", make).glob("*.json"))
        text, done = change_text(manifest.read_text(), chance)
        manifest.write_bytes(text.encode("utf-8", "surrogatepass"))
        (manifest.parent / "a.fits").write_bytes(chance.choice((b"good", b"evil", b"")))
        made = kept_folder(self.folder / "kept", "one", make)
        good = (made / "a.fits").read_bytes() == b"good" and "a.fits" in json.loads(manifest.read_text())["files"]
        return Verdict(RIGHT if good else BAD, "manifest", done)


def data_same(kind: str, value: Any, base: Any) -> bool:
    """Whether the numbers are the same to the last bit; headers and names may differ."""
    if kind == "image":
        return bool(np.array_equal(value.pix, base.pix) and np.array_equal(value.ivar, base.ivar))
    if kind == "psf":
        return all(same(getattr(value, name), getattr(base, name))
                   for name in ("x", "y", "cores", "tail", "stamp", "shape"))
    if kind == "fibermap":
        return bool(value.rows.dtype == base.rows.dtype and (value.rows == base.rows).all())
    return bool(np.array_equal(value.flux, base.flux) and np.array_equal(value.mask, base.mask))


def refusal(error: GpuExtractError, kind: str, done: str, path: Path, *, named: bool = True) -> Verdict:
    """An error is a refusal where it is one of the input, one line, and names the file."""
    words = str(error)
    good = error.code == ExitCode.INPUT and "\n" not in words and (path.name in words or not named)
    return Verdict(REFUSED if good else BAD, kind, done, words)
