"""The model of the run time, for cases with a known answer."""
from dataclasses import replace

import numpy as np
import pytest
from forecast_model import Cost, Costs, Machine, exposure, extraction, interval, start_up

NOTHING = Cost(0.0)
PLAIN = Costs(start=Cost(2.0), plan=NOTHING, bundle=Cost(0.5), alone=0.2, pieces=10, exchanged=0.0, gather=NOTHING,
              assemble=NOTHING, share=NOTHING, read=NOTHING, write=NOTHING, files=NOTHING, read_bytes=0.0,
              write_bytes=0.0, modules=1000)
IDEAL = Machine(cores=64, latency=0.0)


def seconds(costs: Costs, machine: Machine, ranks: int, bundles: int = 20) -> float:
    """The median time of a frame."""
    rng = np.random.default_rng(1)
    return float(np.median(extraction(costs, machine, ranks, bundles, busy=ranks, draws=200, rng=rng)))


@pytest.mark.parametrize(("ranks", "expected"), [
    (1, 10.0), (2, 5.0), (20, 0.5),
    (16, 0.5 + 0.5 * (0.2 + 0.8 / 4)),          # one each, then four groups of four
    (40, 0.5 * (0.2 + 0.8 / 2)),
    (400, 0.5 * (0.2 + 0.8 / 10))])             # twenty on each, ten of which find something to do
def test_without_spread_it_counts_bundles(ranks: int, expected: float) -> None:
    assert seconds(PLAIN, IDEAL, ranks) == pytest.approx(expected)


def test_spread_makes_ranks_wait_for_the_slowest() -> None:
    wide = replace(PLAIN, bundle=Cost(0.5, 0.2))
    assert seconds(wide, IDEAL, 1) == pytest.approx(10.0, rel=0.02)
    assert seconds(wide, IDEAL, 20) > 0.8
    draws = Cost(0.5, 0.2).draw(np.random.default_rng(3), (200000,))
    assert (draws.mean(), draws.std()) == pytest.approx((0.5, 0.2), rel=0.01)


def test_a_crowded_node_is_slower() -> None:
    crowded = replace(IDEAL, crowding=1.5)
    assert seconds(PLAIN, crowded, 1) == pytest.approx(10.0)
    assert crowded.slow(64) == crowded.slow(1000) == pytest.approx(1.5)
    assert replace(IDEAL, speed=2.0).slow(1) == 0.5


def test_frames_are_dealt_to_whoever_is_free() -> None:
    """Eight frames on two ranks that each work on frames of their own: four turns."""
    found = exposure(PLAIN, IDEAL, 8, 2, started=True, draws=5)
    assert found["all"] == pytest.approx(np.full(5, 40.0))
    files = replace(PLAIN, files=Cost(1.5), read=Cost(1.0), write=Cost(0.25))
    both = exposure(files, IDEAL, 8, 2, draws=5)
    assert both["start"] == pytest.approx(np.full(5, 2.0 + 1000 * 2 / IDEAL.opens))
    assert both["compute"] == pytest.approx(np.full(5, 4 * 10.0))      # on free cores
    assert both["ends"] == pytest.approx(np.full(5, 1.25))
    full = replace(IDEAL, cores=2, crowding=1.5)
    on_the_cores_that_compute = exposure(files, full, 8, 2, draws=5)["compute"]
    assert on_the_cores_that_compute == pytest.approx(np.full(5, (4 * 10.0 + 3 * 1.5) * 1.5))
    for bound, of_a_frame in ((True, 1.5), (False, 0.75)):                   # two ranks share each frame
        shared = exposure(files, replace(full, bound=bound), 8, 2, draws=5, groups=1)["compute"]
        assert shared == pytest.approx(np.full(5, (8 * 5.0 + 7 * of_a_frame) * 1.5))
    one_group = exposure(replace(PLAIN, share=Cost(1.0)), IDEAL, 8, 2, started=True, draws=5, groups=1)
    assert one_group["all"] == pytest.approx(np.full(5, 8 * 6.0))
    slow = exposure(replace(PLAIN, read_bytes=1e9), replace(IDEAL, files=1e8), 8, 2, started=True, draws=5)
    assert slow["all"] == pytest.approx(np.full(5, 80.0))


def test_opening_files_takes_over() -> None:
    rng = np.random.default_rng(1)
    few, many = (float(start_up(PLAIN, IDEAL, ranks, 5, rng)[0]) for ranks in (2, 4000))
    assert few == pytest.approx(2.02) and many == pytest.approx(42.0)
    assert interval(np.arange(101.0)) == (50.0, 16.0, 84.0)
