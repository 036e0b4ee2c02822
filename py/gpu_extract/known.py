"""Remembers results about a PSF while its content is unchanged.

A night's exposures have one PSF per camera, and some results depend only on the PSF: its reach, its usable fibres. They
are kept in the memory of the process. A PSF is identified by its content, of which a copy is kept: one that was read
again is the same, and one that was changed in place is another. Comparing it takes 0.1 to 0.3 ms, hence once for all
questions of an extraction.
"""
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gpu_extract.data import PsfModel
from gpu_extract.packing import copied, same

T = TypeVar("T")
FEW = 4        # PSFs that are remembered
MOST = 32      # answers about each

_known: tuple[tuple[PsfModel, dict[Hashable, Any]], ...] = ()      # copies, and the answers about each
_steady = threading.local()     # of this thread: a PSF that does not change, and the answers about it


@contextmanager
def unchanged(psf: PsfModel) -> Iterator[None]:
    """Context within which this thread's PSF keeps its content, which is compared once."""
    before = getattr(_steady, "of", (None, None))
    _steady.of = psf, None
    try:
        yield
    finally:
        _steady.of = before


def known(psf: PsfModel, question: Hashable, find: Callable[[], T]) -> T:
    """The result of `find`, from its first call for this question about such a PSF.

    question: everything that the answer depends on besides the PSF; the answer is not None, and shared, so it must not
    be changed
    """
    answers = _answers(psf)
    answer: T | None = answers.get(question)      # in one step, as another thread may clear them at any time
    if answer is None:
        answer = find()
        if len(answers) >= MOST:
            answers.clear()
        answers[question] = answer
    return answer


def _answers(psf: PsfModel) -> dict[Hashable, Any]:
    """The answers about PSFs of this content."""
    steady, answers = getattr(_steady, "of", (None, None))
    if psf is not steady:
        return _compared(psf)
    if answers is None:
        answers = _compared(psf)
        _steady.of = psf, answers
    return answers


def _compared(psf: PsfModel) -> dict[Hashable, Any]:
    """The same. Threads that ask about a new PSF at the same time may each compute them."""
    global _known
    for kept, answers in _known:
        if same(kept, psf):
            return answers
    _known = ((copied(psf), {}), *_known[:FEW - 1])
    return _known[0][1]
