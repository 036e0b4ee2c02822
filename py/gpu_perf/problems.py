"""The problems that the history is measured with (etc/track.ini)."""
import configparser
import hashlib
import shlex
from dataclasses import dataclass
from functools import cache
from importlib import resources

from gpu_extract.errors import InputError, one_of


@dataclass(frozen=True)
class Problem:
    """simulate: options of gpu_simulate that make the input; extract: options of gpu_extract; ranks; limit: seconds"""

    name: str
    simulate: tuple[str, ...]
    extract: tuple[str, ...]
    ranks: int
    limit: float

    @property
    def input_digest(self) -> str:
        """Digest of the input."""
        return hashlib.sha256(shlex.join(self.simulate).encode()).hexdigest()[:12]


@cache
def problems() -> dict[str, Problem]:
    """All problems by name, the default first."""
    parser = configparser.ConfigParser()
    file = resources.files("gpu_extract").joinpath("etc", "track.ini")
    parser.read_string(file.read_text(encoding="ascii"))
    return {name: Problem(name, tuple(shlex.split(s["simulate"])), tuple(shlex.split(s["extract"])), int(s["ranks"]),
                          float(s["limit"])) for name, s in parser.items() if name != "DEFAULT"}


def find_problem(name: str) -> Problem:
    """The problem of that name. Raises InputError if there is none."""
    found = problems()
    if name not in found:
        raise InputError(one_of("the problem", name, found))
    return found[name]
