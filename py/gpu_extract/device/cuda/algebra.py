"""Dense algebra on many matrices of one size: what the dense core asks of a device's libraries.

Matrices are C-contiguous (count, n, n). Each verb leaves a code for every matrix, 0 where it is done, and looks at none
of them: whoever uses the results must. Nothing is taken on trust either: batched eigensolvers have returned wrong
vectors without a word, so that residuals are checked by the caller (device.device_dense).
"""
from typing import Any, Protocol

import numpy as np

from gpu_extract.errors import InputError
from gpu_extract.lapack import lapack

SWEEPS = 30      # of Jacobi's method at most
SMALL = 1e-15    # what it may leave beside the diagonal, relative to the matrix
UPPER = 1        # CUBLAS_FILL_MODE_UPPER


class Algebra(Protocol):
    """What a device can do; arrays are the `data` of device arrays."""

    def cholesky(self, matrices: Any, codes: Any) -> None:
        """The lower triangles become those of the Cholesky factors; the upper ones mean nothing afterwards."""

    def eigh(self, matrices: Any, values: Any, codes: Any) -> None:
        """Symmetric matrices become their eigenvectors, one in a row; values: (count, n), in the order of the rows."""


class HostAlgebra:
    """LAPACK, one matrix after the other: for the simulated device."""

    def cholesky(self, matrices: np.ndarray, codes: np.ndarray) -> None:
        """See Algebra."""
        for n, matrix in enumerate(matrices):
            factor, codes[n] = lapack.dpotrf(matrix, lower=1, clean=0)
            matrix[:] = factor

    def eigh(self, matrices: np.ndarray, values: np.ndarray, codes: np.ndarray) -> None:
        """See Algebra."""
        for n, matrix in enumerate(matrices):
            values[n], vectors, codes[n] = lapack.dsyevd(matrix, lower=1)
            matrix[:] = vectors.T


class CupyAlgebra:
    """cuSOLVER's batched routines, on the current stream of cupy.

    Products of matrices are not among them: cuBLAS chooses another way to add them up where several streams are at
    work, and bits would depend on who else is.

    Raises InputError where cuSOLVER cannot be loaded: cupy's wheels do not bring it.
    """

    def __init__(self, cupy: Any):
        try:
            from cupy_backends.cuda.libs import cusolver
        except ImportError as error:
            said = " ".join(str(error).split())
            raise InputError(f"the dense core needs cuSOLVER on a GPU, which cannot be loaded ({said}): install "
                             "gpu_extract[cuda12] or [cuda13], or leave --core dense or --gpu out") from error
        self._cupy, self._cusolver = cupy, cusolver

    def cholesky(self, matrices: Any, codes: Any) -> None:
        """See Algebra; cuSOLVER's columns are our rows, its upper triangle our lower one."""
        count, n, _ = matrices.shape
        places = self._cupy.arange(count, dtype=self._cupy.uint64) * np.uint64(n * n * 8) + np.uint64(matrices.data.ptr)
        self._cusolver.dpotrfBatched(self._handle(), UPPER, n, places.data.ptr, n, codes.data.ptr, count)

    def eigh(self, matrices: Any, values: Any, codes: Any) -> None:
        """See Algebra; Jacobi's method, whose eigenvectors are columns there, so rows here."""
        solver, handle = self._cusolver, self._handle()
        count, n, _ = matrices.shape
        shape = solver.CUSOLVER_EIG_MODE_VECTOR, UPPER, n, matrices.data.ptr, n, values.data.ptr
        settings = solver.createSyevjInfo()
        try:
            solver.xsyevjSetTolerance(settings, SMALL)
            solver.xsyevjSetMaxSweeps(settings, SWEEPS)
            size = solver.dsyevjBatched_bufferSize(handle, *shape, settings, count)
            work = self._cupy.empty(size)
            solver.dsyevjBatched(handle, *shape, work.data.ptr, size, codes.data.ptr, settings, count)
        finally:
            solver.destroySyevjInfo(settings)

    def _handle(self) -> int:
        """cuSOLVER's handle of this device; cupy sets it to the current stream in every call."""
        return int(self._cupy.cuda.device.get_cusolver_handle())
