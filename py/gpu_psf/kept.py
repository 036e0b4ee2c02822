"""Finished bundles, kept on disk until all are done, so that a killed fit can resume.

Each is a file in a folder beside the output, written completely or not at all. The file's name contains a digest of
what it was made from. Files made from other images, settings or sources are ignored.
"""
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

import gpu_extract
import gpu_psf
from gpu_extract.errors import OutputError
from gpu_extract.io.atomic import atomic
from gpu_extract.io.sources import stamp
from gpu_extract.packing import pack, unpack

ENDING = ".bundles"
_DIGITS = 12            # bytes of a digest


@dataclass(frozen=True)
class Kept:
    """Where the bundles of a fit are kept.

    folder: made with the first bundle; key: identifies the inputs
    """

    folder: str
    key: str

    def read(self, number: int, more: object) -> dict[str, Any] | None:
        """The bundle that was kept with the same key and `more`, or None."""
        with (suppress(OSError, ValueError, KeyError, BadZipFile, EOFError),
              open(self._path(number, more), "rb") as handle, np.load(handle, allow_pickle=False) as file):
            arrays = [file[f"a{n}"] for n in range(len(file.files) - 1)]
            return unpack(file["text"].tobytes().decode("utf-8"), arrays)
        return None

    def write(self, number: int, more: object, value: dict[str, Any]) -> None:
        """Keep a bundle. Raises OutputError."""
        text, arrays = pack(value)
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{self.folder}: cannot be made: {error.strerror}") from error
        named = {f"a{n}": array for n, array in enumerate(arrays)}
        try:
            with atomic(self._path(number, more)) as temporary, open(temporary, "wb") as handle:
                np.savez(handle, text=np.frombuffer(text.encode("utf-8"), np.uint8), **named)  # type: ignore[arg-type]
        except BaseException:
            with suppress(OSError):              # it holds other bundles
                os.rmdir(self.folder)
            raise

    def remove(self) -> None:
        """Remove the bundles of this and of other fits for the same output, and the folder if it is empty then."""
        with suppress(OSError):
            for path in Path(self.folder).glob("bundle-*.npz"):
                path.unlink(missing_ok=True)
            os.rmdir(self.folder)

    def _path(self, number: int, more: object) -> Path:
        return Path(self.folder) / f"bundle-{number}-{_digest([self.key, repr(more)])}.npz"


def key_of(inputs: Sequence[str], settings: Sequence[object]) -> str:
    """Key of a fit that reads these files with these settings (which their repr describes completely).

    It includes the sources of both packages: spots, traces and lines come from gpu_extract.
    """
    sources = sorted(path for package in (gpu_extract, gpu_psf) for path in Path(package.__path__[0]).rglob("*.py"))
    return _digest([*(repr(each) for each in settings), *(stamp(path) for path in inputs),
                    *(blake2b(path.read_bytes()).hexdigest() for path in sources)])


def _digest(words: Sequence[str]) -> str:
    return blake2b("\n".join(words).encode("utf-8"), digest_size=_DIGITS).hexdigest()
