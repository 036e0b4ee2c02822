"""Checks of the arguments of the Python API, before they are used."""
from typing import Any, TypeVar

import numpy as np

from gpu_extract.config import MOST_THREADS, ExtractConfig, shown
from gpu_extract.data import Draft, Image, PsfModel
from gpu_extract.errors import InputError, check_kind

T = TypeVar("T")

_WANTED = (("image", Image, "an Image: read_image(path) reads one from a file"),
           ("psf", PsfModel, "a PsfModel: read_psf(path) reads one from a file"),
           ("config", ExtractConfig, "an ExtractConfig"),
           ("start", Draft | None, "a Draft: draft(image, psf, config) makes one"))

# collaborators of an extraction: a method that identifies each, and its description
_SEAMS = {
    "comm": ("together", "of gpu_extract.ranks.comm: wrap(comm) makes one from a communicator of mpi4py"),
    "recorder": ("device_span", "a Recorder of gpu_extract.perf.recorder, or None"),
    "backend": ("get_ready", "GpuFrames(CupyDevice) of gpu_extract.device for a GPU, or None for the CPU"),
    "progress": ("__call__", "a function of (stage, done, total), or None"),
    "commit": ("__call__", "a function without arguments, or None")}


def seam(name: str, given: Any, usual: T) -> T:
    """A collaborator of an extraction, the default one for None. Raises InputError for another object, such as mpi4py's
    own communicators."""
    if given is None:
        return usual
    method, wanted = _SEAMS[name]
    if isinstance(given, type) or not hasattr(given, method):
        what = f"the class {given.__name__}" if isinstance(given, type) else f"of type {type(given).__name__}"
        raise InputError(f"{name} is {what}, must be {wanted}")
    return given


def check_threads(threads: Any) -> None:
    """Raise InputError for an invalid number of threads."""
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads is {shown(threads)}, must be a whole number, 1 to {MOST_THREADS}")


def check_arguments(what: tuple[Any, Any, Any, Any], threads: Any, dtype: Any = np.float64) -> None:
    """Raise InputError if an argument has the wrong type; what: (image, psf, config, the draft to start from or
    None); others as in run.extract."""
    for given, (name, kind, wanted) in zip(what, _WANTED, strict=True):
        check_kind(name, given, kind, wanted)
    psf = what[1]
    if 0 in what[0].shape:
        raise InputError(f"the image has shape {what[0].shape}, must have at least one pixel")
    if psf.bundle is not None and len(psf.bundle) != psf.nfibre:
        raise InputError(f"{psf.name}: bundle has {len(psf.bundle)} numbers, must have one for each of {psf.nfibre} "
                         "fibres")
    check_threads(threads)
    try:
        fine = np.dtype(dtype).newbyteorder("=") in (np.float32, np.float64)
    except TypeError:
        fine = False
    if not fine:
        raise InputError(f"dtype is {shown(dtype)}, must be float64 or float32")
