"""The specification of one stress test: frozen, validated as a whole."""
import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_extract.errors import InputError, Ranges, not_allowed, out_of_range, refuse
from gpu_extract.perf.recorder import usable_cores

MODULES = ("numpy", "cupy")
BITS = {"float16": 16, "float32": 32, "float64": 64, "complex64": 64, "complex128": 128,
        "int32": 32, "int64": 64}
DTYPES = tuple(BITS)
SUPPORTED = {
    "fft": ("float16", "float32", "float64", "complex64", "complex128"),
    "copy": DTYPES,
    "rand": ("float16", "float32", "float64"),
    "gemm": ("float16", "float32", "float64", "complex64", "complex128"),
    "eigh": ("float32", "float64", "complex64", "complex128"),
    "cholesky": ("float32", "float64", "complex64", "complex128"),
    "extract": ("float64",),
}
TESTS = tuple(SUPPORTED)
COPIES_BY_DEFAULT = ("fft", "copy")
SHAPES = {"eigh": (100, 74, 74), "cholesky": (100, 74, 74), "extract": (25, 200)}
PROCS_PER_CORE = 16         # largest number of processes at once
EXTRACT_CORES = ("banded", "dense")
_RANGES: Ranges = {name: (least, math.inf, f"be {least} or more") for name, least in (
    ("count", 1), ("warmup", 0), ("check_every", 1), ("device", 0), ("sharing", 1), ("seed", 0))}


class Unsupported(InputError):
    """The test does not exist for this dtype or shape; a campaign records it and continues."""

    status = "unsupported"


class OutOfMemory(InputError):
    """The test does not fit into memory; a campaign records it and continues."""

    status = "out of memory"


@dataclass(frozen=True)
class Spec:
    """One test, as run by one process.

    test, module, dtype: names out of TESTS, MODULES, DTYPES
    shape: of the array; eigh and cholesky: (n, n) or (batch, n, n); gemm: (m, k) times (k, k),
        or a batch of it; extract: (fibres, wavelengths)
    count: timed cycles, or None: as many as fit into `seconds` of wall time
    copy: the input goes to the device and the result comes back in every cycle
    pinned: host buffers in page-locked memory, if the module supports it
    warmup: cycles before the clock runs; check_every: 1 checks every result
    device: number of the device; sharing: processes that run this at the same time
    seed: of the random content
    core: of the extract test
    fault: number of a timed cycle whose result is spoilt on purpose, to show that the check sees it
    """

    test: str
    module: str = "numpy"
    shape: tuple[int, ...] = (1000, 1000)
    dtype: str = "float32"
    count: int | None = 100
    seconds: float | None = None
    copy: bool = True
    pinned: bool = True
    warmup: int = 3
    check_every: int = 1
    device: int = 0
    sharing: int = 1
    seed: int = 1
    core: str = "banded"
    fault: int | None = None

    def __post_init__(self) -> None:
        refuse(self._problems())

    def _problems(self) -> Iterator[str]:
        yield from not_allowed(self, {"test": TESTS, "module": MODULES, "dtype": DTYPES, "core": EXTRACT_CORES})
        if not self.shape or min(self.shape) < 1:
            yield f"shape is {show(self.shape)}, must be whole numbers of 1 or more, e.g. 1000,1000"
        elif math.prod(self.shape) >= 2**48:
            yield f"shape is {show(self.shape)}: no machine holds that many elements; choose a smaller one"
        if (self.count is None) == (self.seconds is None):
            yield "give either a number of cycles or seconds"
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            yield f"seconds is {self.seconds:g}, must be more than 0"
        yield from out_of_range(self, _RANGES)

    def supported(self) -> None:
        """Raise Unsupported if the test has no meaning for this dtype or shape."""
        if self.dtype not in SUPPORTED[self.test]:
            raise Unsupported(f"{self.test} does not support {self.dtype}: use {', '.join(SUPPORTED[self.test])}")
        n = len(self.shape)
        if self.test in ("eigh", "cholesky") and not (n in (2, 3) and self.shape[-1] == self.shape[-2]):
            raise Unsupported(f"shape is {show(self.shape)}, must be square matrices for {self.test}: give n,n or "
                              "batch,n,n")
        if self.test == "gemm" and n not in (2, 3):
            raise Unsupported(f"shape is {show(self.shape)}, must be matrices for gemm: give m,k or batch,m,k")
        if self.test == "extract" and n != 2:
            raise Unsupported(f"shape is {show(self.shape)}, must be fibres,wavelengths for extract, e.g. 25,500")
        if self.test == "extract" and not (self.shape[0] <= 500 and 40 <= self.shape[1] <= 2400):
            raise Unsupported(f"shape is {show(self.shape)}, must be 1 to 500 fibres and 40 to 2400 wavelengths for "
                              "extract, e.g. 25,500")
        if self.test == "extract" and self.module != "numpy":
            raise Unsupported(f"extract does not run with {self.module} here: use -m numpy")

    @property
    def nbytes(self) -> int:
        """Bytes of one array of this shape and dtype."""
        return math.prod(self.shape) * BITS[self.dtype] // 8


def check_procs(procs: int) -> None:
    """Raise InputError if the number of processes is below 1, or would overload the machine."""
    cores = usable_cores()
    if not 1 <= procs <= PROCS_PER_CORE * cores:
        raise InputError(f"--procs is {procs}, must be 1 to {PROCS_PER_CORE * cores} here ({PROCS_PER_CORE} for each "
                         f"of {cores} cores)")


def check_timeout(seconds: float | None) -> None:
    """Raise InputError if a time limit is not positive."""
    if seconds is not None and not seconds > 0:
        raise InputError(f"--timeout is {seconds:g} s, must be above 0")


def show(shape: tuple[int, ...]) -> str:
    """A shape as typed by a user."""
    return ",".join(map(str, shape))


def parse_shape(text: str) -> tuple[int, ...]:
    """A shape from text such as "1000,1000" or "100x74x74"; raises InputError."""
    try:
        return tuple(int(word) for word in text.replace("x", ",").split(","))
    except ValueError as error:
        raise InputError(f"shape is {text!r}, must be whole numbers separated by commas, e.g. 1000,1000") from error
