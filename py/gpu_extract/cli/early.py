"""An image that is read while the program loads the rest of itself: files are read, unpacked and summed up without
Python's lock, which imports hold."""
import argparse
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from gpu_extract.cli.job import Inputs, identity, image_options

if TYPE_CHECKING:
    from gpu_extract.data import Image

_SWITCH = 1e-4         # seconds until a thread that imports lets one that reads go on, which seldom needs long
Found = tuple[Inputs, tuple[int, ...] | None, "Image"]


class Early:
    """An image that may have been read ahead. Nobody has to ask whether it was: errors come when it is asked for.

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
        """The files that are read ahead, where they were found to be there."""
        found = self._found()
        return found and found[0]

    def image(self, path: str, **options: bool) -> "Image":
        """What `read_image` gives: read ahead, where the file is still the one that was there then, else now."""
        from gpu_extract.io.image import read_image

        found = self._found()
        self.close()
        if found is not None and found[0].image == path and found[1] == identity(path):
            return found[2]
        return read_image(path, **options)

    def close(self) -> None:
        """Nothing more is wanted."""
        self._reading = None
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
            sys.setswitchinterval(self._interval)

    def _found(self) -> Found | None:
        return None if self._reading is None or self._reading.exception() else self._reading.result()


def _read(args: argparse.Namespace) -> Found | None:
    """In the thread: the files, what tells the image from others, and the image; None where no such files are there."""
    from gpu_extract.io.image import read_image

    inputs: Inputs | None = Inputs(args.input, args.psf)
    if not (args.input or args.psf):
        from gpu_extract.simulate.embedded import embedded_there

        files = embedded_there(args.specmin, args.nspec)
        inputs = files and Inputs(*(str(path) for path in files))
    if inputs is None:
        return None
    return inputs, identity(inputs.image), read_image(inputs.image, **image_options(args))
