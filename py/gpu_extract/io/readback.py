"""Reads a written file back before it gets its name, as a last check."""
import os
from pathlib import Path
from typing import BinaryIO, cast

from gpu_extract.errors import FileName, InputError, OutputError
from gpu_extract.io.content import Content
from gpu_extract.io.fits import layouts
from gpu_extract.io.pack import Packed, check_packed, check_plain


def keep_promise(written: Path, path: FileName, content: Content, packed: Packed | None) -> None:
    """Read `written`, which will become `path`. Raises OutputError if it does not hold `content`, byte for byte, or is
    not a FITS file with correct checksums.

    packed: how it is packed, if it is, see io.pack
    """
    try:
        if packed is None:
            check_plain(written, content)
        else:
            check_packed(written, content, packed)
        with layouts(os.fspath(written), content=None if packed is None else cast(BinaryIO, content)):
            pass
    except InputError as error:
        raise OutputError(f"{path}: not written: the file read back from the disk differs from the data ({error}); "
                          "check the disk, then start again; please report it if it happens again") from error
