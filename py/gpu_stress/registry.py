"""Which class runs which test."""
from typing import TYPE_CHECKING

from gpu_extract.errors import InternalError
from gpu_stress.backend import Module
from gpu_stress.spec import Spec
from gpu_stress.work import Work

if TYPE_CHECKING:
    from gpu_stress.extract import Kernels


def make_work(spec: Spec, module: Module, kernels: "Kernels | None" = None) -> Work:
    """The test of a spec, ready to run; `kernels` are what the extract test drives.

    Raises OutOfMemory where it does not fit.
    """
    if spec.test == "extract":
        from gpu_stress.extract import Extract
        if kernels is None:
            raise InternalError("the extract test was given nothing to drive")
        return Extract(spec, module, kernels)
    from gpu_stress import arrays, linear
    kinds: dict[str, type[Work]] = {
        "fft": arrays.Fft, "copy": arrays.Copy, "rand": arrays.Rand,
        "gemm": linear.Gemm, "cholesky": linear.Cholesky, "eigh": linear.Eigh}
    return kinds[spec.test](spec, module)
