"""Ranks, devices and their memory: tables of integers."""
import numpy as np
import pytest

from gpu_extract.arrays import read_only
from gpu_extract.cli.device import CONTEXT, KEPT, budget, share_of
from gpu_extract.device.simd_stage import LINE, copy_past

GIB = 1 << 30
# (ranks of the node, devices it shows) -> device of each rank
NODES = {
    (1, 1): [0],
    (4, 1): [0, 0, 0, 0],
    (1, 4): [0],
    (4, 4): [0, 1, 2, 3],
    (3, 2): [0, 1, 0],
    (5, 4): [0, 1, 2, 3, 0],
    (7, 3): [0, 1, 2, 0, 1, 2, 0],
    (22, 4): [0, 1, 2, 3] * 5 + [0, 1],
}


@pytest.mark.parametrize(("ranks", "devices"), NODES)
def test_the_ranks_of_a_node_are_dealt_out_in_turn(ranks: int, devices: int) -> None:
    wanted = NODES[ranks, devices]
    shares = [share_of(rank, ranks, devices) for rank in range(ranks)]
    assert shares == [(d, wanted.count(d)) for d in wanted]


def test_two_nodes_of_four_devices() -> None:
    """Ten ranks, five on each node: the rank's number on its node decides, not its number among all."""
    shares = [share_of(rank % 5, 5, 4) for rank in range(10)]
    assert shares[:5] == shares[5:] == [(0, 2), (1, 1), (2, 1), (3, 1), (0, 2)]


def test_an_uneven_second_node() -> None:
    """Seven ranks on nodes of four devices, four and three of them."""
    first, second = [share_of(rank, 4, 4) for rank in range(4)], [share_of(rank, 3, 4) for rank in range(3)]
    assert first == [(0, 1), (1, 1), (2, 1), (3, 1)] and second == first[:3]


def test_a_subset_of_the_devices() -> None:
    """CUDA_VISIBLE_DEVICES=2,3 on a node of four shows two, numbered 0 and 1; launchers may also show each rank one."""
    assert [share_of(rank, 4, 2)[0] for rank in range(4)] == [0, 1, 0, 1]
    assert [share_of(rank, 4, 1)[0] for rank in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize("lines", [1, 3])
def test_pixels_are_copied_by_cache_lines(lines: int) -> None:
    """Only to their places, from rows that begin anywhere."""
    block = np.zeros(7 * lines * LINE + 2 * LINE, np.uint8)
    first = LINE - block.ctypes.data % LINE
    pixels = np.random.default_rng(1).integers(1, 255, (7, lines * LINE + 9), np.uint8)
    place, last = pixels[:, 5:5 + lines * LINE], first + 7 * lines * LINE
    copy_past(block[first:last].reshape(7, -1), read_only(place))
    assert (block[first:last].reshape(7, -1) == place).all()
    assert not block[:first].any() and not block[last:].any()


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("total", [16 * GIB, 80 * GIB, 139 * GIB])
def test_all_ranks_together_fit(ranks: int, total: int) -> None:
    whole = budget(total, total, ranks)
    assert whole > 0
    assert ranks * (whole + CONTEXT) + KEPT <= total
    assert budget(total, total - ranks * CONTEXT, ranks) == whole, "contexts count once, there already or to come"


def test_memory_of_others_is_not_given_away() -> None:
    assert budget(80 * GIB, 20 * GIB, 4) * 4 <= 20 * GIB - KEPT
    assert budget(80 * GIB, KEPT // 2, 2) == 0
