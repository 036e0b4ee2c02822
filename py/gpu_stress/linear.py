"""Tests of dense linear algebra: gemm, cholesky, eigh, one matrix or a batch.

Each is checked by its product with vectors of +1 and -1, for which the right
answer was computed on the host in double precision: as sensitive to one wrong
element as the full residual, at the cost of a matrix-vector product.
Errors behave like sums of independent roundings (Higham & Mary 2019, SIAM J.
Sci. Comput. 41, A2815), so they are judged against u times 2-norms of rows,
not against the much larger worst case.
"""
import math
from typing import Any

import numpy as np

from gpu_stress.backend import Module
from gpu_stress.spec import Spec
from gpu_stress.work import Work, check_memory, signs, uniform, unit_roundoff


class _Linear(Work):
    """Input matrix up, a computation, result down.

    flop: of a cycle, for real numbers; complex ones take 4 times as many
    """

    bound = 30.0

    def __init__(self, spec: Spec, module: Module, arrays: float, flop: float):
        super().__init__(spec, module, arrays)
        xp = module.xp
        self.flop = flop * (4 if spec.dtype.startswith("complex") else 1)
        self._real = np.finfo(spec.dtype).dtype if spec.dtype != "float16" else np.dtype(np.float32)
        self._z = signs(spec, spec.shape[-1])
        self._z_device = xp.asarray(self._z[:, None], dtype=self._real)
        sources = [self._matrix(salt) for salt in (0, 1)]
        hosts = [self._on_host(source) for source in sources]
        self._input = xp.empty(spec.shape, spec.dtype)
        module.upload(hosts[0], self._input)
        self._expected = [xp.asarray(self._answer(s), dtype=np.result_type(self._real, spec.dtype)) for s in sources]
        self._scale = [float(self._scale_of(s)) for s in sources]
        self._compute()
        self._arrange(self._compute, spec.dtype, hosts)

    def _matrix(self, salt: int) -> np.ndarray:
        raise NotImplementedError

    def _answer(self, source: np.ndarray) -> np.ndarray:
        """The product of a right result with the test vector: that of A, unless overridden."""
        return _wide(source) @ self._z[:, None]

    def _scale_of(self, source: np.ndarray) -> float:
        raise NotImplementedError

    def _compute(self) -> None:
        raise NotImplementedError

    def _apply(self, result: Any) -> Any:
        """The product of the result with the test vector."""
        raise NotImplementedError

    def measure(self) -> Any:
        """Largest deviation of the product with the test vector, in units of the expected rounding."""
        return self._deviation(self.module.xp.asarray(self._latest()))

    def _deviation(self, result: Any) -> Any:
        which = 0 if self._back is None else self.turn
        return abs(self._apply(result) - self._expected[which]).max() / self._scale[which]


class Gemm(_Linear):
    """C = A B with A of the given shape (m, k) and B (k, k): C r = A (B r), a checksum identity.

    An element of C is off by about u |A_i| |B_j| (2-norms), C r by sqrt(k) times that: the unit is
    u max_i |A_i|_2 |B|_F. Half precision is accumulated in single. 2 m k^2 operations, complex 8.
    """

    def __init__(self, spec: Spec, module: Module):
        k = spec.shape[-1]
        arrays = 10 + 8 * k / spec.shape[-2]
        check_memory(spec, arrays)
        self._other = uniform(spec, (*spec.shape[:-2], k, k), 7)
        self._b = module.xp.asarray(self._other)
        super().__init__(spec, module, arrays, 2.0 * math.prod(spec.shape) * k)

    def _matrix(self, salt: int) -> np.ndarray:
        return uniform(self.spec, self.spec.shape, salt)

    def _answer(self, source: np.ndarray) -> np.ndarray:
        return _wide(source) @ (_wide(self._other) @ self._z)[..., None]

    def _scale_of(self, source: np.ndarray) -> float:
        rows = np.linalg.norm(_wide(source), axis=-1).max()
        whole = np.linalg.norm(_wide(self._other), axis=(-2, -1)).max()
        return unit_roundoff(self.spec.dtype) * rows * whole

    def _compute(self) -> None:
        self._result = self.module.xp.matmul(self._input, self._b)

    def _apply(self, result: Any) -> Any:
        wide = result.astype(np.float32) if result.dtype == np.float16 else result
        return wide @ self._z_device


class Cholesky(_Linear):
    """A = L L^H of well-conditioned positive definite matrices: L (L^H z) = A z.

    A is a random symmetric matrix plus 1.5 sqrt(n) on the diagonal (condition about 2). Rows of
    L have the 2-norm sqrt(A_ii), so L L^H is judged as a product: the unit is
    u sqrt(max A_ii trace A). n^3 / 3 operations, complex 4 times that.
    """

    def __init__(self, spec: Spec, module: Module):
        super().__init__(spec, module, 16, math.prod(spec.shape) * spec.shape[-1] / 3.0)

    def _matrix(self, salt: int) -> np.ndarray:
        n = self.spec.shape[-1]
        shift = np.asarray(1.5 * math.sqrt(n), self._real) * np.eye(n, dtype=self._real)
        return (_symmetric(self.spec, salt) + shift).astype(self.spec.dtype)

    def _scale_of(self, source: np.ndarray) -> float:
        diagonal = np.diagonal(_wide(source), axis1=-2, axis2=-1).real
        return unit_roundoff(self.spec.dtype) * float(np.sqrt(diagonal.max(-1) * diagonal.sum(-1)).max())

    def _compute(self) -> None:
        self._result = self.module.xp.linalg.cholesky(self._input)

    def _apply(self, result: Any) -> Any:
        return result @ (_adjoint(result) @ self._z_device)


class Eigh(_Linear):
    """A = V w V^H of random symmetric matrices: V w V^H z = A z, V V^H z = z, w ascending.

    The units are u |A|_F for the first (the backward error of a stable method is a small multiple
    of u |A|_2, and |A|_F is sqrt(n)/2 times that) and u sqrt(n) for the second; 100 leaves room for
    Jacobi's method, which cuSOLVER uses for batches. 9 n^3 operations (the nominal count with
    vectors, Golub & Van Loan, sect. 8.3), complex 4 times that.
    """

    bound = 100.0

    def __init__(self, spec: Spec, module: Module):
        super().__init__(spec, module, 16, 9.0 * math.prod(spec.shape) * spec.shape[-1])
        self._orthogonal_scale = unit_roundoff(spec.dtype) * math.sqrt(spec.shape[-1])

    def _matrix(self, salt: int) -> np.ndarray:
        return _symmetric(self.spec, salt)

    def _scale_of(self, source: np.ndarray) -> float:
        norm = float(np.linalg.norm(_wide(source), axis=(-2, -1)).max())
        return unit_roundoff(self.spec.dtype) * max(norm, 1e-30)

    def _compute(self) -> None:
        self._w, self._result = self.module.xp.linalg.eigh(self._input)

    def _apply(self, result: Any) -> Any:
        return result @ (self._w[..., None] * (_adjoint(result) @ self._z_device))

    def measure(self) -> Any:
        """The worse of residual and loss of orthogonality; infinite if the values do not ascend."""
        xp = self.module.xp
        v = xp.asarray(self._latest())
        loss = abs(v @ (_adjoint(v) @ self._z_device) - self._z_device).max() / self._orthogonal_scale
        ascending = (self._w[..., 1:] >= self._w[..., :-1]).all()
        return xp.where(ascending, xp.maximum(self._deviation(v), loss), xp.inf)


def _symmetric(spec: Spec, salt: int) -> np.ndarray:
    square = uniform(spec, spec.shape, salt)
    half = np.asarray(0.5, square.real.dtype)
    return half * (square + _adjoint(square))


def _adjoint(matrix: Any) -> Any:
    return matrix.swapaxes(-1, -2).conj()


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)
