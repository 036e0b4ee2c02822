"""The statistical test of the history: it reports changes, and nothing else."""
import numpy as np
import pytest

from gpu_perf.changes import FEWEST, centres, find_changes, noise_of

COMMITS, REPEATS, NOISE, SLOWER, HISTORIES = 60, 5, 0.03, 1.10, 1000


def history(seed: int, place: int | None) -> list[list[float]]:
    """Times of a noisy history; slower from commit `place` on."""
    random = np.random.default_rng(seed)
    times = 2.0 * np.exp(NOISE * random.standard_normal((COMMITS, REPEATS)))
    if place is not None:
        times[place:] *= SLOWER
    return times.tolist()


def test_planted_slowdowns_are_found_within_one_commit() -> None:
    places = np.random.default_rng(1).integers(2, COMMITS - 1, HISTORIES)
    found = 0
    for seed, place in enumerate(places):
        found += any(c.ratio > 1 and abs(c.place - place) <= 1 for c in find_changes(history(seed, int(place))))
    assert found >= 0.99 * HISTORIES


def test_flat_histories_are_not_flagged() -> None:
    flagged = sum(bool(find_changes(history(10_000 + seed, None))) for seed in range(HISTORIES))
    assert flagged <= 0.01 * HISTORIES


def test_a_slowdown_is_seen_one_commit_later() -> None:
    """The daily check has only the past: 30 commits, and two at the new level."""
    found = sum(any(abs(c.place - 30) <= 1 for c in find_changes(history(seed, 30)[:32])) for seed in range(200))
    assert found >= 0.97 * 200


def test_levels_by_hand() -> None:
    """Down by a fifth, then doubled: ratios between the levels, in order."""
    times = [[1.0, 1.01]] * 8 + [[0.8, 0.808]] * 8 + [[1.6, 1.616]] * 8
    first, second = find_changes(times)
    assert (first.place, second.place) == (8, 16)
    assert first.ratio == pytest.approx(0.8) and second.ratio == pytest.approx(2.0)
    assert first.t < 0 < second.t


def test_one_wild_repeat_changes_nothing() -> None:
    random = np.random.default_rng(5)
    times = np.exp(0.02 * random.standard_normal((30, 5)))
    times[12, 3] *= 10
    assert find_changes(times.tolist()) == []


def test_little_history_and_little_change_are_not_judged() -> None:
    assert find_changes([[1.0], [2.0]] * 2) == [] and FEWEST > 4
    assert find_changes([[1.0]] * 10 + [[1.01]] * 10) == []
    assert find_changes([[1.0]] * 20) == []


def test_centre_and_noise_by_hand() -> None:
    """Pairs of logs 0, 1, 5: 0, 0.5, 1, 2.5, 3, 5: median 1.75."""
    np.testing.assert_allclose(centres([np.exp([0.0, 1.0, 5.0]), [np.e]]), [1.75, 1.0])
    values = np.random.default_rng(2).normal(0, 0.05, 4000)
    values[2000:] += 1.0
    assert noise_of(values)[0] == pytest.approx(0.05, rel=0.05)
