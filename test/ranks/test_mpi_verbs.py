"""The verbs of the ranks, on real ranks; and the flow of one process, which must not import them."""
import sys
from pathlib import Path

import numpy as np
import pytest

from gpu_extract.data import Card
from gpu_extract.errors import InternalError
from gpu_extract.packing import layout, pack, unpack
from gpu_extract.plan import turns
from gpu_extract.ranks.comm import SERIAL
from mpi_launch import PROGRAM, Frames, finish, launch


@pytest.mark.parametrize("ranks", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_verbs_on_real_ranks(ranks: int) -> None:
    ended = launch(ranks, Path(__file__).with_name("verbs.py"), OMPI_MCA_osc="^ucx")
    assert (ended.code, ended.out, ended.err) == (0, f"all right on {ranks} ranks\n", ""), ended.err


def test_one_process_has_the_same_verbs() -> None:
    array = np.arange(6.0).reshape(2, 3)
    with SERIAL.together():
        SERIAL.complete(array, 1, [0, 3])
        SERIAL.split(4).barrier()
    assert (array == np.arange(6.0).reshape(2, 3)).all()
    assert SERIAL.gather([(2, "c"), (0, "a"), (1, "b")]) == ["a", "b", "c"]
    assert SERIAL.share(lambda: 5) == 5
    assert SERIAL.asked(lambda: True) and not SERIAL.asked(lambda: False)
    done: list[int] = []
    SERIAL.by_node(lambda: done.append(1))
    assert done == [1]


@pytest.mark.parametrize(("bundles", "size"), [(20, 1), (20, 3), (20, 16), (20, 20), (2, 33), (1, 7), (5, 4), (3, 5)])
def test_turns_give_every_bundle_to_one_rank_or_group(bundles: int, size: int) -> None:
    plan = [turns(bundles, size, rank) for rank in range(size)]
    assert {len(own) for own in plan} == {-(-bundles // size)}        # nobody has two bundles more than another
    for bundle in range(bundles):
        holders = [(rank, turn.group) for rank, own in enumerate(plan) for turn in own if turn.bundle == bundle]
        ranks = [rank for rank, _ in holders]
        assert ranks == list(range(ranks[0], ranks[0] + len(ranks)))
        assert len({group for _, group in holders}) == 1
        assert len(ranks) == 1 or holders[0][1] is not None
    last = [own[-1] for own in plan]
    left = bundles % size
    if left:
        sizes = np.unique([turn.group for turn in last], return_counts=True)[1]
        assert len(sizes) == left and sizes.max() - sizes.min() <= 1


def test_values_keep_their_bits_on_the_way() -> None:
    value = (Card("A", 0.1), [1, None, "ü"], {"x": np.float32(0.5), 4: (np.inf, -0.0)},
             np.zeros((0, 3), dtype=np.int16), np.array(1.5))
    text, arrays = pack(value)
    assert layout(text) == [(np.dtype(np.int16), (0, 3)), (np.dtype(np.float64), ())]
    back = unpack(text, arrays)
    assert back[:2] == value[:2] and isinstance(back[0], Card)
    assert back[2] == {"x": 0.5, 4: (np.inf, 0.0)} and np.signbit(back[2][4][1])
    assert back[3] is arrays[0] and back[4].shape == ()


@pytest.mark.parametrize("value", [{1, 2}, Path("x"), np.array([None]), object])
def test_what_cannot_travel_is_refused(value: object) -> None:
    with pytest.raises(InternalError, match="cannot travel between ranks"):
        pack((1, value))


def test_without_a_launcher_mpi_is_not_even_imported(frames: Frames, tmp_path: Path) -> None:
    command = ["-o", str(tmp_path / "frame.fits"), *frames.options]
    code = ("import sys; from gpu_extract.cli.extract import main; "
            f"code = main({command!r}); print(code, [name for name in sys.modules if 'mpi4py' in name])")
    assert finish([sys.executable, "-c", code]).out == "0 []\n"


def test_mpi_on_demand_is_a_world_of_one(frames: Frames, tmp_path: Path) -> None:
    ended = finish([sys.executable, str(PROGRAM), "--mpi", *frames.options, "-o", str(tmp_path / "frame.fits")])
    assert (ended.code, ended.err) == (0, "")
    assert (tmp_path / "frame.fits").stat().st_size == frames.frame.stat().st_size
