"""The arguments of the Python API: whether they are what they must be, before anything is made of them."""
from typing import Any

import numpy as np

from gpu_extract.config import MOST_THREADS, ExtractConfig
from gpu_extract.data import Draft, Image, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.seams import Comm

_WANTED = (("image", Image, "an Image: read_image(path) makes one of a file"),
           ("psf", PsfModel, "a PsfModel: read_psf(path) makes one of a file"),
           ("config", ExtractConfig, "an ExtractConfig"),
           ("start", Draft | None, "a Draft: draft(image, psf, config) makes one"))


def rank_verbs(comm: Comm) -> Comm:
    """The ranks, if they are of ranks.comm. Raises InputError for a communicator of mpi4py itself."""
    if not hasattr(comm, "together"):
        raise InputError(f"comm is of type {type(comm).__name__}, must be of gpu_extract.ranks.comm: wrap(comm) makes "
                         "one of a communicator of mpi4py")
    return comm


def check_arguments(what: tuple[Any, Any, Any, Any], threads: Any, dtype: Any = np.float64) -> None:
    """Raise InputError where an argument is of another kind; what: (image, psf, config, the draft to start from or
    None); others as in run.extract."""
    for given, (name, kind, wanted) in zip(what, _WANTED, strict=True):
        if not isinstance(given, kind):
            raise InputError(f"{name} is of type {type(given).__name__}, must be {wanted}")
    psf = what[1]
    if 0 in what[0].shape:
        raise InputError(f"the image has shape {what[0].shape}, must have a pixel at least")
    if psf.bundle is not None and len(psf.bundle) != psf.nfibre:
        raise InputError(f"{psf.name}: bundle has {len(psf.bundle)} numbers, must have one for each of {psf.nfibre} "
                         "fibres")
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads is {threads!r}, must be a whole number, 1 to {MOST_THREADS}")
    try:
        fine = np.dtype(dtype).newbyteorder("=") in (np.float32, np.float64)
    except TypeError:
        fine = False
    if not fine:
        raise InputError(f"dtype is {dtype!r}, must be float64 or float32")
