"""The results of the ranks' verbs, on every rank: run under mpiexec by test_mpi_verbs.py; prints a line if right."""
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpu_extract.data import OUTPUTS, Card, FiberMap, Image, Rows
from gpu_extract.errors import ConfigError, GpuExtractError, InputError, InternalError, OutputError
from gpu_extract.plan import share as share_of
from gpu_extract.ranks import transport
from gpu_extract.ranks.comm import Comm, get_comm


def check_complete(comm: Comm) -> None:
    """Parts along every axis, also if a rank has none, in several types."""
    for axis in range(3):
        for pieces in (1, comm.size - 1, 3 * comm.size + 1):
            shape = [2, 3, 4]
            shape[axis] = pieces
            for dtype in (np.float64, np.float32, np.int8):
                whole = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
                own = share_of(pieces, comm.rank, comm.size)
                array = np.full(shape, -1, dtype=dtype)
                part = (slice(None),) * axis + (slice(own.start, own.stop),)
                array[part] = whole[part]
                comm.complete(array, axis, [pieces * r // comm.size for r in range(comm.size + 1)])
                assert (array == whole).all()


def result(number: int) -> Rows:
    """A result that depends on its number, with a part of a larger array in it."""
    shape = 2, 5 + number
    wide = np.full((3, *shape), number + 0.5)
    arrays: dict[str, Any] = {name: np.full(shape, number, output.kind or np.float64)
                              for name, output in OUTPUTS.items()}
    arrays |= {"flux": wide[1], "ivar": wide[2], "resolution": np.full((2, 3, shape[1]), -number),
               "chi2pix": wide[0, :, ::-1], "pixmask_fraction": wide[0]}
    return Rows((number, number + 2), **arrays,
                notes={number: {"iterations": number, "error": 1e-300 * number, "also": np.float64(0.1)}})


def check_gather(comm: Comm) -> None:
    """Numbered results arrive in order, with their bits and types; the last rank has none."""
    numbers = [n for n in range(11) if n % (comm.size - 1) == comm.rank]
    found = comm.gather([(n, result(n)) for n in reversed(numbers)])
    assert (found is None) == (comm.rank != 0)
    for number, one in enumerate(found or []):
        other = result(number)
        assert one.fibres == other.fibres and dict(one.notes) == dict(other.notes) and one.models == ()
        assert [type(v) for v in one.notes[number].values()] == [int, float, float]
        for name in OUTPUTS:
            ours, theirs = getattr(one, name), getattr(other, name)
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()
    assert comm.gather([]) == ([] if comm.rank == 0 else None)


def image() -> Image:
    """An image with header and fibermap; only rank 0 may be asked for it."""
    pix = np.arange(35, dtype=np.float32).reshape(5, 7)
    rows = np.array([(1, b"ab", [1.0, 2.0]), (2, b"c", [3.0, 4.0])], [("FIBER", "i4"), ("NAME", "S3"), ("XY", "f8", 2)])
    cards = Card("CAMERA", "r0"), Card("N", 2, "two")
    return Image(pix, pix.astype(np.float64) / 3, cards, FiberMap(rows, {"XY": "mm"}))


def check_share(comm: Comm) -> None:
    """One maker; the same, read-only value everywhere."""
    calls = []
    shared = comm.share(lambda: (calls.append(1), image(), {3: "x"}, None)[1:])
    assert len(calls) == (comm.rank == 0)
    got, names, nothing = shared
    assert names == {3: "x"} and nothing is None
    wanted = image()
    assert got.pix.tobytes() == wanted.pix.tobytes() and got.ivar.dtype == np.float64
    assert got.cards == wanted.cards and isinstance(got.cards[0], Card)
    assert (got.fibermap.rows == wanted.fibermap.rows).all() and got.fibermap.rows.dtype == wanted.fibermap.rows.dtype
    for array in (got.pix, got.ivar, got.fibermap.rows):
        assert not array.flags.writeable
    assert comm.share(lambda: 7) == 7


def check_without_shared_memory(comm: Comm) -> None:
    """If a node has too little of it, every rank has a copy."""
    original = transport.enough_room
    transport.enough_room = lambda size: comm.rank != 1
    check_share(comm)
    assert not comm.one_copy
    transport.enough_room = original
    check_share(comm)
    assert comm.one_copy


@contextmanager
def expected(kind: type[GpuExtractError], message: str, quiet: bool) -> Iterator[None]:
    """The block raises this error, on every rank."""
    try:
        yield
    except GpuExtractError as error:
        assert type(error) is kind and str(error) == message and error.quiet == quiet, repr(error)
        return
    raise AssertionError(f"no {kind.__name__}")


def check_errors(comm: Comm) -> None:
    """An error reaches the ranks wherever they are: in another verb, at the end of the block, in a group."""
    quiet = comm.rank != 0
    verbs = comm.barrier, lambda: check_complete(comm), lambda: comm.gather([]), lambda: comm.split(0), lambda: None
    for verb in verbs:
        with expected(ConfigError, "of rank 1", quiet), comm.together():
            if comm.rank == 1:
                raise ConfigError("of rank 1")
            verb()
    with expected(InputError, "of rank 2", quiet), comm.together():
        if comm.rank >= 2:
            raise InputError(f"of rank {comm.rank}")
    with expected(OutputError, "made nothing", quiet), comm.together(), comm.together():
        comm.share(lambda: fail(OutputError("made nothing")))
    with expected(InputError, "in the group of rank 3", quiet), comm.together():
        group = comm.split(comm.rank % 2)
        assert (group.rank, group.size) == (comm.rank // 2, (comm.size + 1 - comm.rank % 2) // 2)
        with group.together():
            if comm.rank == 3:
                raise InputError("in the group of rank 3")
            group.barrier()
            group.barrier()
        comm.barrier()
    comm.barrier()


def fail(error: Exception) -> None:
    """Raise it."""
    raise error


def check_disagreement(comm: Comm) -> None:
    """Ranks that reach different verbs, or the ends of different blocks, report that and do not wait for ever."""
    for verbs in ((comm.barrier, lambda: comm.gather([])), (lambda: None, lambda: nested(comm))):
        try:
            verbs[comm.rank == 2]()
            if verbs[0] is not comm.barrier and comm.rank != 2:
                comm.barrier()
        except InternalError as error:
            assert "different steps" in str(error)
            continue
        raise AssertionError("no InternalError")


def nested(comm: Comm) -> None:
    """An inner block."""
    with comm.together():
        pass


def check_asked(comm: Comm) -> None:
    """On one node: asked on one rank, answered on all; done by all, with one rank's error raised on all."""
    for answer in (True, False):
        asked = []
        assert comm.asked(lambda asked=asked, answer=answer: asked.append(1) or answer) is answer
        assert len(asked) == (comm.rank == 0)
    done = []
    comm.by_node(lambda: done.append(1))
    assert done == [1]
    with expected(InputError, "asked", comm.rank != 0), comm.together():
        comm.asked(lambda: fail(InputError("asked")))
    with expected(InputError, "by node", comm.rank != 0), comm.together():
        comm.by_node(lambda: fail(InputError("by node")) if comm.rank == comm.size - 1 else None)


if __name__ == "__main__":
    world = get_comm(True)
    with world.together():
        for check in (check_complete, check_gather, check_share, check_without_shared_memory, check_errors,
                      check_asked):
            check(world)
            world.barrier()
        check_disagreement(world)
    if world.rank == 0:
        print(f"all right on {world.size} ranks", file=sys.stdout)
