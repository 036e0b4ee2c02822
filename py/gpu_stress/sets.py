"""The sets of a stress campaign: the outer product of its settings."""
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from gpu_extract.errors import InputError, one_of
from gpu_perf.campaign import Command
from gpu_stress.spec import MODULES, TESTS, Spec, check_procs, show
from gpu_stress.workers import worker_argv

SPARE = 60.0          # seconds for start-up and warm-up, in addition to a run by seconds


@dataclass(frozen=True)
class Product:
    """The factors: names, shapes, process counts; `base` holds all else.

    devices: used by the processes in turn; threads: of the libraries in each process, or None
    timeout: seconds for a set; None: from its seconds, or unlimited if cycles are counted
    fault: (process, cycle) whose result is corrupted on purpose
    """

    modules: Sequence[str]
    tests: Sequence[str]
    shapes: Sequence[tuple[int, ...]]
    dtypes: Sequence[str]
    procs: Sequence[int]
    base: Spec
    devices: Sequence[int] = (0,)
    threads: int | None = None
    timeout: float | None = None
    fault: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for what, given, allowed in (("module", self.modules, MODULES), ("test", self.tests, TESTS)):
            for name in given:
                if name not in allowed:
                    raise InputError(one_of(what, name, allowed))
        for procs in self.procs:
            check_procs(procs)


def commands(of: Product) -> list[Command]:
    """One command per set, sets of few processes first; raises InputError for impossible sets."""
    made = []
    for procs, dtype, shape, test, module in product(of.procs, of.dtypes, of.shapes, of.tests, of.modules):
        spec = replace(of.base, test=test, module=module, shape=shape, dtype=dtype,
                       copy=of.base.copy or test == "copy")
        # only a set that hangs exceeds this time
        usual = None if spec.seconds is None else SPARE * procs + 20 * spec.seconds
        made.append(Command(
            f"{module}-{test}-{show(shape).replace(',', 'x')}-{dtype}-{procs}p",
            worker_argv(spec, of.devices, of.threads, of.fault), procs, gate=True,
            timeout=usual if of.timeout is None else of.timeout,
            facts={"module": module, "test": test, "shape": list(shape), "elements": math.prod(shape),
                   "dtype": dtype, "procs": procs, "copy": spec.copy, "pinned": spec.pinned,
                   "devices": list(of.devices), "threads": of.threads}))
    return made
