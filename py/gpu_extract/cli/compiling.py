"""What programs say of kernels that are compiled, and `gpu_extract --compile`."""
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from gpu_extract.cli.common import LEVELS, log, on_terminal, printable, say, show_progress, start_logging
from gpu_extract.errors import ExitCode, InputError, OutputError
from gpu_extract.perf.clock import now

if TYPE_CHECKING:
    from gpu_extract.config import ExtractConfig
    from gpu_extract.first_use.kernel_list import Kernel
    from gpu_extract.seams import Comm, Recorder

_EVERY = 5.0      # seconds between two lines in a log
_STEP = 0.8       # Angstrom, of the grid that is taken for a PSF that is given


class CompileProgress:
    """Says how many kernels are compiled, and how long it will take: one line on a terminal, a few in a log."""

    def __init__(self) -> None:
        self._said = -_EVERY

    def __call__(self, done: int, count: int, left: float) -> None:
        if done == 0:
            log.info(f"first use: {count} kernels are compiled and kept, about {_seconds(left)}")
            return
        text = f"kernel {done} of {count}" + (f", about {_seconds(left)} left" if done < count else "")
        if on_terminal() or done == count or now() - self._said > _EVERY:
            self._said = now()
            show_progress(text, last=done == count)


def _seconds(value: float) -> str:
    """Two figures, at least a second."""
    rounded = max(round(value), 1) if value < 60 else round(value / 10) * 10
    return f"{rounded} s"


def counted_compiling(rank: int, level: str, recorder: "Recorder") -> AbstractContextManager[None]:
    """Under this each kernel that this process compiles is counted as such by the recorder, and said."""
    from gpu_extract.perf.compiling import compiling

    def tell(name: str) -> None:
        from gpu_extract.kernels.kernel_cache import store

        module, function = name.split(".")[:2]
        kept = store()
        line = f"kernel {module}.{function.split('-')[0]} is not in the cache: it is compiled" + (
            ", and kept" if kept is not None and kept.folder is not None else "")
        if rank == 0:
            log.info(line)
        elif LEVELS[level] <= LEVELS["info"]:          # the log of other ranks than the first is silent
            say(printable(f"rank {rank}: {line}"), error=True)

    return compiling(recorder, tell)


def get_simulation_ready(camera: str, what: "ExtractConfig | None", comm: "Comm", recorder: "Recorder") -> None:
    """Compile the kernels that simulated frames of a camera take and their extraction.

    what: its settings, where they are known: else the kernels for half-bands are left to the frames
    """
    from gpu_extract.first_use import get_ready

    def kernels() -> "list[Kernel]":
        from gpu_extract.cpu_frame import kernels_for
        from gpu_extract.first_use.kernel_list import EXTRACT, SIMULATE, listed
        from gpu_extract.simulate.instrument import psf_model

        with suppress(InputError):              # what is wrong with the settings is said where the frame is made
            if what is not None:
                return listed(SIMULATE) + kernels_for(psf_model(camera), what)
        return listed(SIMULATE, EXTRACT)

    mark = f"ready-{sha256(repr((camera, what)).encode()).hexdigest()[:16]}"
    get_ready(kernels, mark, comm, recorder, CompileProgress())


def all_kernels(files: Sequence[str] = ()) -> "list[Kernel]":
    """What any camera and any option takes, and the PSFs in some files on all of their wavelengths.

    Raises InputError where a file cannot be read.
    """
    from gpu_extract.compare.selftest import load_cutout
    from gpu_extract.config import ExtractConfig
    from gpu_extract.cpu_frame import kernels_for
    from gpu_extract.io.presets import presets
    from gpu_extract.io.psf import read_psf
    from gpu_extract.simulate.instrument import DETECTORS, psf_model

    cutout = load_cutout()
    problems = [(cutout.psf, cutout.config),
                *((psf_model(preset.camera), ExtractConfig(preset.wavelength)) for preset in presets().values()
                  if preset.camera in DETECTORS)]
    for file in files:
        psf = read_psf(file)
        low, high = psf.wavelength_range
        problems.append((psf, ExtractConfig((low + _STEP, high - _STEP, _STEP))))
    return list({kernel.file: kernel for psf, config in problems
                 for kernel in kernels_for(psf, config, every=True)}.values())


def fill_cache(_: object, files: Sequence[str]) -> ExitCode:
    """Compile all of them that are not yet compiled, and say how many that were, and where they are.

    Raises InputError where a file cannot be read, OutputError where kernels cannot be kept.
    """
    from gpu_extract.first_use import compile_all
    from gpu_extract.kernels.kernel_cache import store

    start_logging("info")
    kept = store()
    if kept is None or kept.folder is None:
        raise OutputError("compiled kernels cannot be kept: no folder of yours that can be written to was found; set "
                          "NUMBA_CACHE_DIR or XDG_CACHE_HOME to one")
    kernels = all_kernels(files)
    count = compile_all(lambda: kernels, tell=CompileProgress(), few=0.0)
    log.info(f"{len(kernels)} kernels in {kept.folder}, {count} of them new")
    return ExitCode.DONE
