"""How long a process took to start, step by step: wall and CPU seconds."""
from collections.abc import Iterator
from contextlib import contextmanager

from gpu_extract.perf.clock import cpu, now, process_age

INTERPRETER = "interpreter"


class StartUp:
    """The steps of a start. Made as early as can be: what came before is the interpreter's.

    steps: name -> (wall seconds, CPU seconds), in the order in which they came
    """

    def __init__(self) -> None:
        self.steps: dict[str, tuple[float, float]] = {INTERPRETER: (process_age(), cpu())}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what runs under it."""
        wall, used = now(), cpu()
        try:
            yield
        finally:
            before = self.steps.get(name, (0.0, 0.0))
            self.steps[name] = before[0] + now() - wall, before[1] + cpu() - used
