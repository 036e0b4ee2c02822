"""Reads an image while the program loads its other modules: reading, unpacking and checksums do not hold Python's lock,
which imports need."""
import argparse
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from gpu_extract.cli.job import Inputs, identity, image_options

if TYPE_CHECKING:
    from gpu_extract.data import Image

_SWITCH = 1e-4         # seconds until an importing thread lets the reading one run, which seldom needs long
Found = tuple[Inputs, tuple[int, ...] | None, "Image"]


class Early:
    """An image that may have been read ahead. Errors are raised when the image is requested.

    args: of the command; None: nothing is read ahead
    """

    def __init__(self, args: argparse.Namespace | None = None):
        self._interval = sys.getswitchinterval()
        self._pool: ThreadPoolExecutor | None = None
        self._reading: Future[Found | None] | None = None
        if args is not None:
            sys.setswitchinterval(_SWITCH)
            self._pool = ThreadPoolExecutor(1, "reads ahead")
            self._reading = self._pool.submit(_read, args)

    def inputs(self) -> Inputs | None:
        """The files that are read ahead, if they were found."""
        found = self._found()
        return found and found[0]

    def image(self, path: str, **options: bool) -> "Image":
        """The result of `read_image`: from reading ahead if the file has not changed since, else read now."""
        from gpu_extract.io.image import read_image

        found = self._found()
        self.close()
        if found is not None and found[0].image == path and found[1] == identity(path):
            return found[2]
        return read_image(path, **options)

    def close(self) -> None:
        """Stop reading ahead."""
        self._reading = None
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
            sys.setswitchinterval(self._interval)

    def _found(self) -> Found | None:
        return None if self._reading is None or self._reading.exception() else self._reading.result()


def _read(args: argparse.Namespace) -> Found | None:
    """In the thread: the files, the identity of the image file, and the image; None if there are no such files."""
    from gpu_extract.io.image import read_image

    inputs: Inputs | None = Inputs(args.input, args.psf)
    if not (args.input or args.psf):
        from gpu_extract.simulate.embedded import embedded_there

        files = embedded_there(args.specmin, args.nspec)
        inputs = files and Inputs(*(str(path) for path in files))
    if inputs is None:
        return None
    return inputs, identity(inputs.image), read_image(inputs.image, **image_options(args))
