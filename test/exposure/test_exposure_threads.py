"""The reader beside the computation, by itself."""
import threading
import time

import numpy as np
import pytest

from gpu_extract.data import Image
from gpu_extract.errors import InternalError
from gpu_extract.exposure.flow import _header_only
from gpu_extract.exposure.threads import Group, Reader
from gpu_extract.ranks.comm import SERIAL
from gpu_extract.ranks.hand_out import Numbers
from gpu_extract.seams import NULL


class Looks:
    """Work that records which frames were read."""

    def __init__(self) -> None:
        self.read_so_far: list[int] = []

    def is_done(self, number: int) -> bool:
        return False

    def claim(self, number: int) -> None:
        return None

    def read(self, number: int) -> int:
        self.read_so_far.append(number)
        return number


def test_a_reader_that_is_closed_takes_no_more() -> None:
    """As if another rank of the group was asked to stop: this one does not know yet, and numbers are left."""
    work = Looks()
    reader = Reader(work, Group(0, SERIAL, Numbers(range(10)), threading.Event(), NULL))
    assert reader.next() == (0, 0)
    end = time.monotonic() + 10
    while len(work.read_so_far) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    closing = threading.Thread(target=reader.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    assert work.read_so_far == [0, 1]


def test_what_is_no_frames_failure_stops_the_run() -> None:
    """It is raised once the reader is closed: an error that belongs to no frame must not be lost with a thread."""
    class Broken(Numbers):
        def hold(self, rank: int = 0) -> int | None:
            raise OSError("no numbers")

    stop = threading.Event()
    reader = Reader(Looks(), Group(0, SERIAL, Broken(range(10)), stop, NULL))
    assert reader.next() is None and stop.is_set()
    with pytest.raises(InternalError, match="no numbers"):
        reader.close()


def test_what_waits_to_be_written_holds_no_pixels() -> None:
    """A view keeps its whole array in memory, however small it is."""
    kept = _header_only(Image(np.ones((3, 4)), np.ones((3, 4)), noise=np.ones((3, 4))))
    assert kept.shape == (0, 4) and kept.pix.base is None and kept.ivar.base is None and kept.noise is None
