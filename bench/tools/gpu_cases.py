"""The frames of bench/gpu_frame.py: simulated, and extracted by the CPU, in processes of their own beside the rest.

A case is named "r-dark-usual": camera, program, defects ("usual" ones, or "many": those of bench/cameras.py). What is
made is kept in a folder, as pickles: no FITS file is written or read, so that astropy is not needed.

usage: gpu_cases.py FOLDER NSPEC THREADS WORKERS both|frames NAME ...      (NAME embedded: the frame of gpu_extract)
"""
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from threading import Timer
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "py"))

import numpy as np

from gpu_extract.config import ExtractConfig
from gpu_extract.data import OUTPUTS, Frame, Image, PsfModel
from gpu_extract.perf import clock

Given = tuple[Image, PsfModel, ExtractConfig]
SHORT = {"tiny": (6012.0, 6052.0, 0.85)}
EMBEDDED = "embedded"
STOPPED = 120.0      # seconds after which a stopped process goes on, whatever happens: others may wait for it


def names(cameras: Sequence[str] = ("r", "z", "b")) -> list[str]:
    """All cases, in the order of their weight."""
    return ["-".join((camera, program, defects))
            for defects, program, camera in product(("usual", "many"), ("dark", "bright"), cameras)]


def make(name: str, nspec: int, threads: int) -> Given:
    """The simulated frame, without its header."""
    from cameras import WORSE

    from gpu_extract.io.presets import presets
    from gpu_extract.simulate import Defects, SimConfig, simulate

    camera, program, defects = name.split("-")
    made = simulate(SimConfig(camera=camera, nspec=nspec, program=program,
                              defects=WORSE if defects == "many" else Defects()), threads=threads)
    wavelength = SHORT.get(camera) or presets()[f"desi-{camera}"].wavelength
    return Image(made.image.pix, made.image.ivar), made.psf, ExtractConfig(wavelength, nspec=nspec)


class Cases:
    """The cases of a folder: `start` has them made, the rest waits for what is asked for.

    until: by clock.now, when nobody waits any longer
    """

    def __init__(self, folder: Path, nspec: int, until: float):
        self._folder, self._nspec, self._until = folder, nspec, until
        self._processes: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, wanted: Sequence[str], *, what: str, most: int = 1, threads: int = 1) -> None:
        """Have them made, by so many processes that yield to all others; what: "both", or "frames" alone; threads: of
        each of them that simulate."""
        if not wanted:
            return
        with (self._folder / f"{len(self._processes)}.log").open("wb") as log:
            command = [sys.executable, __file__, self._folder, self._nspec, threads, most, what, *wanted]
            self._processes.append(subprocess.Popen(["nice", "-n", "19", *map(str, command)], stdout=log,
                                                    stderr=subprocess.STDOUT, start_new_session=True))

    def given(self, name: str) -> Given:
        """Image, PSF and settings."""
        return self._read(_file(self._folder, name, self._nspec))

    def cpu(self, name: str) -> tuple[Frame, float]:
        """The CPU's frame, and the CPU seconds it took."""
        return self._read(_file(self._folder, name, self._nspec, "cpu"))

    def next_of(self, waiting: Sequence[str]) -> str:
        """That of the cases whose CPU frame is there first."""
        files = {_file(self._folder, name, self._nspec, "cpu"): name for name in waiting}
        return files[self._wait(list(files))]

    def _read(self, file: Path) -> Any:
        with self._wait([file]).open("rb") as stream:
            return pickle.load(stream)

    def _wait(self, files: Sequence[Path]) -> Path:
        """The first that is there. Raises RuntimeError where none will be, TimeoutError where time is over."""
        while True:
            working = any(process.poll() is None for process in self._processes)
            for file in files:
                if file.exists():
                    return file
            if not working:
                logs = [log.read_text().strip().splitlines() for log in sorted(self._folder.glob("*.log"))]
                raise RuntimeError(f"{files[0].name} was not made: {'; '.join(log[-1] for log in logs if log)}")
            if clock.now() > self._until:
                raise TimeoutError(f"{files[0].name} was not there in time")
            clock.sleep(0.05)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Nothing of this runs meanwhile."""
        self._signal(signal.SIGSTOP)
        alarm = Timer(STOPPED, self._signal, [signal.SIGCONT])
        alarm.daemon = True
        alarm.start()
        try:
            yield
        finally:
            alarm.cancel()
            self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End what still works."""
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _signal(self, number: int) -> None:
        """To the processes, and to those that they have started."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)


def _file(folder: Path, name: str, nspec: int, what: str = "frame") -> Path:
    return folder / f"{name}-{nspec}.{what}"


def _write(file: Path, what: Any) -> None:
    """Whoever finds the file finds all of it."""
    part = file.with_suffix(f".part{os.getpid()}")
    with part.open("wb") as stream:
        pickle.dump(what, stream, protocol=5)
    part.replace(file)


def _made(folder: Path, name: str, nspec: int, threads: int) -> None:
    """A frame, where it is not there yet."""
    frame = _file(folder, name, nspec)
    if name == EMBEDDED:
        from gpu_extract.simulate import embedded_default

        embedded_default(0, None, print)
    elif not frame.exists():
        _write(frame, make(name, nspec, threads))


@lru_cache(1)
def _given(file: Path) -> Given:
    """A frame that is there; of the last one that a process has worked on it need not be read again."""
    return pickle.loads(file.read_bytes())


def _bundle(folder: Path, name: str, nspec: int, first: int) -> tuple[Frame, float]:
    """The CPU's frame of the bundle that begins with a fibre, and its CPU seconds."""
    from gpu_extract.run import extract

    image, psf, config = _given(_file(folder, name, nspec))
    start = clock.cpu()
    frame = extract(image, psf, replace(config, specmin=first, nspec=min(config.bundlesize, nspec - first)))
    assert frame is not None
    return frame, clock.cpu() - start


def _joined(parts: Sequence[tuple[Frame, float]]) -> tuple[Frame, float]:
    """The frame of all bundles; its notes are those of the first."""
    frames = sorted((frame for frame, _ in parts), key=lambda frame: int(frame.fibres[0]))
    arrays = {name: np.concatenate([getattr(frame, name) for frame in frames]) for name in (*OUTPUTS, "fibres")}
    return replace(frames[0], **arrays, fibermap=None), sum(seconds for _, seconds in parts)


def main(folder: Path, numbers: tuple[int, int, int], what: str, wanted: Sequence[str]) -> None:
    """Make what is not there yet: frames, then their bundles on the CPU, side by side."""
    nspec, threads, workers = numbers
    with ProcessPoolExecutor(workers) as pool:
        frames = {pool.submit(_made, folder, name, nspec, threads): name for name in wanted}
        parts, found = {}, dict[str, list[tuple[Frame, float]]]()
        for made in as_completed(frames):
            made.result()
            name = frames[made]
            if what == "both" and name != EMBEDDED and not _file(folder, name, nspec, "cpu").exists():
                firsts = range(0, nspec, _given(_file(folder, name, nspec))[2].bundlesize)
                parts |= {pool.submit(_bundle, folder, name, nspec, first): (name, len(firsts)) for first in firsts}
        for part in as_completed(parts):
            name, count = parts[part]
            found.setdefault(name, []).append(part.result())
            if len(found[name]) == count:
                _write(_file(folder, name, nspec, "cpu"), _joined(found.pop(name)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])), sys.argv[5], sys.argv[6:])
