"""What was found out about a PSF, for as long as it stays what it was.

A night's exposures have one PSF per camera, and some questions are about the PSF alone: how far it reaches, which of
its fibres can be used. Their answers are kept in the memory of the process. A PSF is known by its content, of which a
copy is kept: one that was read again is the same, and one that was changed in place is another.
"""
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gpu_extract.data import PsfModel

T = TypeVar("T")
FEW = 4        # PSFs that are remembered: of one of three arms of some spectrographs, and those just before
MOST = 32      # answers about each
PLAIN = np.ndarray, float, int, str


class _Known(NamedTuple):
    content: list[Any]
    answers: dict[Hashable, Any]


_known: tuple[_Known, ...] = ()
_now = threading.local()


@contextmanager
def looked_up_once() -> Iterator[None]:
    """While the block runs, an extraction, this thread's PSF is compared with those that are known the first time only.

    Nobody may change it in the meantime.
    """
    before, _now.last = getattr(_now, "last", None), (None, {})
    try:
        yield
    finally:
        _now.last = before


def known(psf: PsfModel, question: Hashable, find: Callable[[], T]) -> T:
    """What `find` returns, from its first call for this question about such a PSF.

    question: all that the answer depends on besides the PSF; the answer is not None, and shared: nobody may change it
    """
    answers = _answers(psf)
    answer: T | None = answers.get(question)      # in one step: another thread may clear them at any time
    if answer is None:
        answer = find()
        if len(answers) >= MOST:
            answers.clear()
        answers[question] = answer
    return answer


def _answers(psf: PsfModel) -> dict[Hashable, Any]:
    """Those about PSFs of this content. Threads that ask about a new one at the same time may each find out."""
    last = getattr(_now, "last", None)
    if last is not None and last[0] is psf:
        return last[1]
    answers = _looked_up(psf)
    if last is not None:
        _now.last = psf, answers
    return answers


def _looked_up(psf: PsfModel) -> dict[Hashable, Any]:
    global _known
    for one in _known:
        if is_content(one.content, psf):
            return one.answers
    _known = (_Known(content_of(psf), {}), *_known[:FEW - 1])
    return _known[0].answers


def content_of(psf: PsfModel) -> list[Any]:
    """A copy of all that a PSF says, for `is_content`."""
    return [part.copy() if isinstance(part, np.ndarray) else part for part in _parts(psf)]


def is_content(content: list[Any], psf: PsfModel) -> bool:
    """Whether that is what a PSF says now."""
    parts = list(_parts(psf))
    return len(parts) == len(content) and all(map(_same, content, parts))


def _parts(part: Any) -> Iterator[Any]:
    """Everything that a PSF, or a part of it, consists of."""
    if part is None or isinstance(part, PLAIN):      # nearly all: what follows is slow
        yield part
    elif is_dataclass(part):
        for each in fields(part):
            yield from _parts(getattr(part, each.name))
    elif isinstance(part, tuple):
        yield len(part)
        for each in part:
            yield from _parts(each)
    else:
        yield sorted(part.items()) if isinstance(part, Mapping) else part


def _same(one: Any, other: Any) -> bool:
    """Whether two parts are equal; NaN equals nothing."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and one.shape == other.shape and bool((one == other).all())
    return bool(one == other)
