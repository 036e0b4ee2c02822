"""Remembers results about a PSF while its content is unchanged.

A night's exposures have one PSF per camera, and some results depend only on the PSF: its reach, its usable fibres. They
are kept in the memory of the process. A PSF is identified by its content, of which a copy is kept: one that was read
again is the same, and one that was changed in place is another.
"""
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from gpu_extract.data import PsfModel
from gpu_extract.packing import copied, same

T = TypeVar("T")
FEW = 4        # PSFs that are remembered
MOST = 32      # answers about each

_known: tuple[tuple[PsfModel, dict[Hashable, Any]], ...] = ()      # copies, and the answers about each


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
    """The answers about PSFs of this content. Threads that ask about a new one at the same time may each compute
    them."""
    global _known
    for kept, answers in _known:
        if same(kept, psf):
            return answers
    _known = ((copied(psf), {}), *_known[:FEW - 1])
    return _known[0][1]
