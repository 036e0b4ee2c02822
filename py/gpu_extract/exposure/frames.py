"""What the flow of many frames hands around: work, and what came of it."""
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from gpu_extract.config import ExtractConfig
from gpu_extract.errors import ExitCode, GpuExtractError, InternalError

if TYPE_CHECKING:
    from gpu_extract.data import Frame, Image, PsfModel


@dataclass(frozen=True)
class Loaded:
    """A frame's input, read and settled.

    extra: what only the writer needs (header cards, fibre map): stays on the rank that read it, as does
    why: why the output that is there is made again; empty where there is none
    """

    image: "Image"
    psf: "PsfModel"
    config: ExtractConfig
    extra: Any = None
    why: str = ""


class State(IntEnum):
    """What came of a frame."""

    NOT_BEGUN = 0
    DONE = 1
    SKIPPED = 2       # its output is there already
    DROPPED = 3       # in work when the run was asked to stop
    FAILED = 4
    ELSEWHERE = 5     # another run is at work on it


class Work(Protocol):
    """The frames of an exposure, by number; called by the threads of a group's first rank."""

    def is_done(self, number: int) -> bool:
        """Whether the output is there, whole, and made of the same input with the same settings."""

    def read(self, number: int) -> Loaded:
        """Read the input. Raises GpuExtractError."""

    def claim(self, number: int) -> State | None:
        """Before the work: make the output this run's own. SKIPPED where another run has made it meanwhile, ELSEWHERE
        where one is at work on it, None where it is to be made here; `release` is called then, whatever becomes of it.
        """

    def release(self, number: int) -> None:
        """Leave an output to others."""

    def write(self, number: int, loaded: Loaded, frame: "Frame") -> None:
        """Write the output, whole or not at all. Raises GpuExtractError."""


Extract = Callable[..., "Frame | None"]      # run.extract, but for comm and recorder


@dataclass(frozen=True)
class Outcome:
    """What came of one frame: how, in which group, seconds of computing, words and exit code.

    words: of a failure its reason; of a frame that is done why it was made again
    """

    number: int
    state: int
    group: int = 0
    seconds: float = 0.0
    words: str = ""
    code: int = 0


def as_error(error: Exception) -> GpuExtractError:
    """What a frame fails with: one of our errors, or one that says what happened."""
    if isinstance(error, GpuExtractError):
        return error
    if isinstance(error, MemoryError):
        return InternalError("out of memory; use fewer groups (--groups), or a machine with more memory")
    return InternalError(f"internal error: {type(error).__name__}: {error}")


def exit_code(outcomes: list[Outcome], stopped: bool) -> int:
    """The exit code of a run: 75 where it is to be started again, else that of the worst failure, else 0."""
    if stopped or any(outcome.state == State.ELSEWHERE for outcome in outcomes):
        return int(ExitCode.START_AGAIN)
    return max((outcome.code for outcome in outcomes), default=0)
