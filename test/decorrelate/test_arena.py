"""Work arrays that are reused."""
import threading

import numpy as np

from gpu_extract.kernels.arena import BLOCK, Arena, borrowed, forget


def test_arrays_start_on_a_cache_line_and_do_not_overlap():
    arena = Arena()
    arrays = [arena.take(*shape) for shape in ((3,), (5, 7), (0,), (2, 3, 4), (BLOCK + 1,), (9,))]
    for n, array in enumerate(arrays):
        assert array.ctypes.data % 64 == 0
        array[:] = n
    for n, array in enumerate(arrays):
        np.testing.assert_array_equal(array, n)


def test_memory_is_used_again():
    arena = Arena()
    first = [arena.take(100, 3), arena.take(BLOCK)]
    arena.clear()
    second = [arena.take(100, 3), arena.take(BLOCK)]
    for a, b in zip(first, second, strict=True):
        assert np.shares_memory(a, b)


def test_a_slightly_larger_array_finds_room_where_the_other_was():
    arena = Arena()
    first = [arena.take(2 * BLOCK), arena.take(3 * BLOCK)]
    arena.clear()
    second = [arena.take(9 * BLOCK // 4), arena.take(3 * BLOCK)]
    for a, b in zip(first, second, strict=True):
        assert np.shares_memory(a, b)


def test_who_borrows_within_a_loan_gets_another():
    with borrowed() as outer:
        kept = outer.take(10)
        kept[:] = 1.0
        with borrowed() as inner:
            assert inner is not outer
            inner.take(10)[:] = 2.0
        np.testing.assert_array_equal(kept, 1.0)


def test_threads_have_their_own():
    mine = []
    with borrowed() as here:
        mine.append(here)
    thread = threading.Thread(target=lambda: mine.append(borrowed().__enter__()))
    thread.start()
    thread.join()
    assert mine[0] is not mine[1]
    with borrowed() as again:
        assert again is here


def test_idle_arenas_can_be_given_back():
    with borrowed() as here:
        pass
    forget()
    with borrowed() as other:
        assert other is not here
