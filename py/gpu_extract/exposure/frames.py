"""The data of the flow of many frames: work, and its outcomes."""
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
    """A frame's complete input.

    extra: data for the writer only (header cards, fibermap); stays on the rank that read it, as does
    why: why an existing output is made again; empty if there is none
    """

    image: "Image"
    psf: "PsfModel"
    config: ExtractConfig
    extra: Any = None
    why: str = ""


class State(IntEnum):
    """The state of a frame at the end."""

    NOT_BEGUN = 0
    DONE = 1
    SKIPPED = 2       # its output exists already
    DROPPED = 3       # unfinished when the run was stopped
    FAILED = 4
    ELSEWHERE = 5     # another run is working on it


class Work(Protocol):
    """The frames of an exposure, by number; called by the threads of a group's first rank."""

    def is_done(self, number: int) -> bool:
        """Whether the output exists, complete and made from the same input with the same settings."""

    def read(self, number: int) -> Loaded:
        """Read the input. Raises GpuExtractError."""

    def claim(self, number: int) -> State | None:
        """Claim the output before the work. Returns SKIPPED if another run has made it meanwhile, ELSEWHERE if one is
        working on it, None if it has to be made here; `release` is then called in any case.
        """

    def release(self, number: int) -> None:
        """Release the claim on an output."""

    def write(self, number: int, loaded: Loaded, frame: "Frame") -> None:
        """Write the output, completely or not at all. Raises GpuExtractError."""


Extract = Callable[..., "Frame | None"]      # run.extract, but for comm and recorder


@dataclass(frozen=True)
class Outcome:
    """The outcome of one frame: state, group, seconds of computing, words and exit code.

    words: the reason of a failure; for a finished frame, why it was made again
    """

    number: int
    state: int
    group: int = 0
    seconds: float = 0.0
    words: str = ""
    code: int = 0


def as_error(error: Exception) -> GpuExtractError:
    """The error of a failed frame: an error of this package, or one that describes what happened."""
    if isinstance(error, GpuExtractError):
        return error
    if isinstance(error, MemoryError):
        return InternalError("out of memory; use fewer groups (--groups), or a machine with more memory")
    return InternalError(f"internal error: {type(error).__name__}: {error}")


def exit_code(outcomes: list[Outcome], stopped: bool) -> int:
    """The exit code of a run: 75 if it has to be started again, else that of the worst failure, else 0."""
    if stopped or any(outcome.state == State.ELSEWHERE for outcome in outcomes):
        return int(ExitCode.START_AGAIN)
    return max((outcome.code for outcome in outcomes), default=0)
