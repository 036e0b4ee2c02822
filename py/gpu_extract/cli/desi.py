"""The step "extract" of desi_proc: main_gpu_specter of desispec.scripts.extract, with the same arguments and outputs.

desi_proc starts MPI itself and gives each extraction a communicator. Instead of

    desispec.scripts.extract.main_gpu_specter(extract_args, comm=comm_extract)

it may call the function of the same name here (homes.md has the patch).
"""
import argparse
from collections.abc import MutableMapping
from typing import Any

from gpu_extract.cli.common import set_threads, start_logging
from gpu_extract.cli.extract import extract_with
from gpu_extract.cli.options import build_parser
from gpu_extract.errors import InputError
from gpu_extract.perf.clock import epoch
from gpu_extract.seams import Comm

# attribute set by desispec's parser of desi_extract_spectra -> option of gpu_extract
_VALUES = {"input": "-i", "psf": "-p", "output": "-o", "fibermap": "-f", "model": "-m", "wavelength": "-w",
           "specmin": "-s", "nspec": "-n", "regularize": "-r", "bundlesize": "--bundlesize", "psferr": "--psferr"}
_FLAGS = {"no_scores": "--no-scores", "barycentric_correction": "--barycentric-correction", "no_gpu": "--no-gpu"}


def main_gpu_specter(args: argparse.Namespace, comm: Any = None, timing: MutableMapping[str, float] | None = None,
                     coordinator: Any = None) -> None:
    """Extract one image to one frame, on the ranks of an existing communicator.

    args: of desispec.scripts.extract.parse; comm: an mpi4py communicator, all of whose ranks call this; coordinator: of
    gpu_specter.mpi, whose ranks then share the work, its reader and writer among them
    timing: receives seconds since 1970 of frame-start, frame-setup, frame-extract and frame-write

    Returns when args.output (and args.model) exists. Raises InputError or OutputError on all ranks; any other exception
    ends all ranks of MPI. Patches are not cut, so that nsubbundles, nwavestep and the padding have no effect.
    """
    if args.decorrelate_fibers:
        raise InputError("decorrelate_fibers is set: errors are decorrelated along each fibre, not between fibres")
    began = epoch()
    ours = build_parser().parse_args(words_of(args))
    set_threads(None)
    ranks = ranks_of(comm if coordinator is None else coordinator.comm, mpi=bool(args.mpi))
    start_logging("info" if ranks.rank == 0 else "error")
    recorder = extract_with(ours, ranks)
    ranks.release()
    if timing is not None:
        timing["frame-start"] = began
        timing["frame-write"] = epoch()
        timing["frame-extract"] = timing["frame-write"] - recorder.seconds("write")
        timing["frame-setup"] = timing["frame-extract"] - recorder.seconds("extract")


def words_of(args: argparse.Namespace) -> list[str]:
    """The options of gpu_extract that correspond to those of desispec."""
    words = [word for name, option in _VALUES.items() if getattr(args, name, None) is not None
             for word in (option, str(getattr(args, name)))]
    return words + [option for name, option in _FLAGS.items() if getattr(args, name, False)]


def ranks_of(comm: Any, *, mpi: bool) -> Comm:
    """The ranks of a communicator. Without one: those of MPI's world if `mpi` is true, else this process."""
    from gpu_extract.ranks.comm import get_comm, wrap

    return get_comm(mpi) if comm is None else wrap(comm)
