"""The banded core on a (simulated) device against that of the CPU, and pieces against their bundles.

Both make the same decisions from the same numbers. They differ by rounding: 100 eps times the condition number of a
fibre's S, as the CPU's core differs from the oracle. If fibres are eliminated in a chain, they also differ by what the
CPU cuts off in a narrower band than the device: at most 1e-9, a tenth of what the CPU's core may leave. The device has
wider bands and longer chains instead of windows (decorrelate.windows). Fibres for which these do not suffice are FAILED
there and left to the CPU.
"""
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from host_text import run_lanes
from simulated_device import SimulatedDevice

from decorrelate.cases import EPS, MASKS, Bundle, band_of, make_bundle, random_definite
from device.pieces import decorrelate, known, shape_of
from gpu_extract.bundle import clear_corners
from gpu_extract.data import Decorrelated, Status
from gpu_extract.decorrelate import banded
from gpu_extract.decorrelate.narrow.definite import Facts
from gpu_extract.decorrelate.narrow.schur import WORST
from gpu_extract.decorrelate.poles import LADDER, unit_poles
from gpu_extract.decorrelate.weak import TOLD, UNKNOWN
from gpu_extract.device import device_tables
from gpu_extract.device.cuda import lanes
from gpu_extract.device.cuda.text import eliminate, measure, names, poles, sweeps
from gpu_extract.device.device_banded import BandedCore
from gpu_extract.perf.recorder import Recorder

INNER, NDIAG = slice(9, 82), 3
NEAR, FAR = (11, 11), (11, 17)      # stamps: fibres touch only the next ones, or also those after them
STEP = 1.48                         # pixels per bin: the CPU's kernels are those of test/decorrelate


@cache
def bundle(mask: str, wing: float = 0.02, stamp: tuple[int, int] = NEAR, nfibre: int = 5) -> Bundle:
    return make_bundle(nfibre, 90, mask=mask, wing=wing, stamp=stamp, step=STEP)


@cache
def coarse(mask: str, wing: float) -> Bundle:
    """Spots overlap three bins: the CPU's kernels of this half-band are needed nowhere else."""
    return make_bundle(5, 90, mask=mask, wing=wing, stamp=(7, 11), step=1.9)


def on_device(*bundles: Bundle) -> Decorrelated:
    device = SimulatedDevice()
    return decorrelate(device, BandedCore(device, shape_of(bundles, INNER, NDIAG)), bundles, INNER, NDIAG)


def on_cpu(case: Bundle) -> Decorrelated:
    options = banded.Options(limits=banded.Limits(window=np.inf))
    whole = banded.decorrelate(case.normal, case.x, (0, len(case.x)), ndiag=NDIAG, options=options)
    part = Decorrelated(whole.flux[:, INNER], whole.ivar[:, INNER], whole.resolution[:, :, INNER].copy(),
                        whole.status[:, INNER], whole.weak[:, INNER])
    clear_corners(part.resolution)
    return part


def check(case: Bundle) -> tuple[Decorrelated, Decorrelated]:
    """Compare the device's results with the CPU's. Of fibres in the CPU's wide band, which leaves 1e-8, some hold in
    the device's wider bands; the others are FAILED, and 0."""
    found, wanted = on_device(case), on_cpu(case)
    narrow = np.isin(wanted.status, (Status.GOOD, Status.EMPTY))
    held = narrow | (found.status == Status.GOOD)
    others = np.where(held, Status.GOOD, Status.FAILED)
    np.testing.assert_array_equal(found.status, np.where(narrow, wanted.status, others))
    for fibre in range(len(case.x)):
        if not held[fibre].all():
            assert not found.flux[fibre].any() and not found.ivar[fibre].any() and not found.resolution[fibre].any()
            continue
        bound = (1e-9 if narrow[fibre].all() else 1e-8) + 100 * EPS * case.oracle(fibre).cond
        error = (found.flux[fibre] - wanted.flux[fibre]) * np.sqrt(wanted.ivar[fibre])
        assert np.abs(error).max() <= bound
        np.testing.assert_allclose(found.ivar[fibre], wanted.ivar[fibre], rtol=bound)
        np.testing.assert_allclose(found.resolution[fibre], wanted.resolution[fibre], rtol=0, atol=bound)
    return found, wanted


@pytest.fixture(autouse=True)
def short_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """These fibres are shorter than a tile of a frame."""
    monkeypatch.setattr(lanes, "TILE", 24)


@pytest.mark.parametrize("mask", MASKS)
def test_fibres_agree_with_the_cpu(mask: str) -> None:
    """With wings of 0.1 the CPU's narrower band leaves up to 1.5e-9 sigma here; those are compared with the oracle."""
    found, _ = check(bundle(mask))
    assert (found.status == Status.GOOD).any()


@pytest.mark.parametrize("wing", [0.02, 0.1])
@pytest.mark.parametrize("mask", MASKS)
def test_fibres_of_coarse_bins_agree_with_the_cpu(mask: str, wing: float) -> None:
    found, _ = check(coarse(mask, wing))
    assert (found.status == Status.GOOD).any()


def test_fibres_that_touch_no_other() -> None:
    """Their icov has no block for two fibres; memory after it must not couple them."""
    whole = bundle("clean")
    case = Bundle(replace(whole.normal, icov=whole.normal.icov[:, :1].copy()), whole.x, whole.dense)
    wanted = banded.decorrelate(case.normal, case.x, (0, len(case.x)), ndiag=NDIAG, bins=INNER)
    device = SimulatedDevice(garbage=0x3F)
    found = decorrelate(device, BandedCore(device, shape_of([case], INNER, NDIAG)), [case], INNER, NDIAG)
    assert (found.status == Status.GOOD).all() and (wanted.status == Status.GOOD).all()
    assert np.abs((found.flux - wanted.flux) * np.sqrt(wanted.ivar)).max() <= 1e-9
    np.testing.assert_allclose(found.ivar, wanted.ivar, rtol=1e-9)


@pytest.mark.parametrize(("mask", "wing", "stamp"), [*((mask, 0.1, NEAR) for mask in MASKS), ("gap", 0.02, NEAR),
                                                     ("clean", 0.005, FAR)])
def test_fibres_agree_with_the_oracle(mask: str, wing: float, stamp: tuple[int, int]) -> None:
    """The exact square root of the whole bundle: the remainder beyond the band is in the flux."""
    case = bundle(mask, wing, stamp)
    found = on_device(case)
    good = np.flatnonzero((found.status == Status.GOOD).all(axis=1)).tolist()
    assert good
    for fibre in good:
        exact = case.oracle(fibre)
        alive, bound = exact.s[INNER] > 0, 100 * EPS * exact.cond
        error = (found.flux[fibre] * exact.s[INNER] - (exact.q @ case.x[fibre])[INNER])[alive]
        assert np.abs(error).max() < 2e-9 + bound
        np.testing.assert_allclose(found.ivar[fibre][alive], exact.s[INNER][alive]**2, rtol=2e-9 + bound)


def dimmed(case: Bundle, weak: slice, dim: float = 1e-6) -> Bundle:
    """The same with next to no information on some bins, which x does not show."""
    n, half = case.x.shape[1], case.normal.halfband
    light, icov, x = np.ones(n), case.normal.icov.copy(), case.x.copy()
    light[weak] = dim
    for k in range(-half, half + 1):
        p = np.arange(max(0, -k), n - max(0, k))
        icov[:, :, p, half + k] *= light[p] * light[p + k]
    x[:, weak] *= 0.01 / dim
    normal = replace(case.normal, icov=icov, weight=case.normal.weight * light, rhs=case.normal.rhs * light)
    return replace(case, normal=normal, x=x)


@pytest.mark.parametrize(("weak", "bright", "held"), [(slice(0, 4), 1.0, True), (slice(86, 90), 1.0, True),
                                                      (slice(0, 4), 1e4, False), (slice(9, 12), 1.0, False)])
def test_bins_that_are_not_wanted_may_be_weak(weak: slice, bright: float, held: bool) -> None:
    """As on the CPU: condition 1e13 and more, if bins with next to no information are before or after the kept ones,
    but not among these, nor if their light stands out."""
    case = dimmed(bundle("clean"), weak)
    found = on_device(replace(case, x=bright * case.x))
    assert set(found.status.ravel()) == {int(Status.GOOD if held else Status.FAILED)}
    if held:
        wanted = banded.decorrelate(case.normal, case.x, (0, len(case.x)), ndiag=NDIAG, bins=INNER)
        assert (wanted.status == Status.GOOD).all()
        assert np.abs((found.flux - wanted.flux) * np.sqrt(wanted.ivar)).max() <= 1e-8
        np.testing.assert_allclose(found.ivar, wanted.ivar, rtol=1e-9)


def test_a_chain_of_masked_fibres() -> None:
    """A gap across the bundle couples all fibres: each is eliminated together with those beyond it."""
    case = bundle("gap", 0.02)
    found, _ = check(case)
    assert (found.status == Status.GOOD).all()
    neighbours = banded.Neighbours(case.normal, case.x, banded.Limits())
    assert neighbours.first.chained(1, 2, windowed=False), "this case was meant to have a chain"


def test_pairs_of_every_depth() -> None:
    """Bundles with all fibres coupled, with two short chains, with none, and with coupled fibres at its end."""
    lanes, size, deepest = 20, 5, 3
    facts = known(lanes, FIRST_THETA=[1.0] * 5 + [1.0, 1.0, 0.0, 1.0, 1.0] + [0.0] * 5 + [0.0, 0.0, 0.0, 1.0, 1.0])[0]
    depth, listed = np.full(2 * lanes, -7, np.int32), np.full((deepest, 2 * lanes), -7, np.int32)
    run_lanes(measure.chain, 2 * lanes, 3, (depth, facts, 1e-10, lanes, size))
    assert depth.tolist() == [0, 0, 1, 2, 3, 0, 0, 0, 0, 1, *5 * [0], 0, 0, 0, 0, 1,
                              3, 2, 1, 0, 0, 1, 0, 0, 0, 0, *5 * [0], 0, 0, 0, 0, 0]
    run_lanes(measure.enlist, deepest * 2 * lanes, -1, (listed, depth, lanes))
    for found, pairs in zip(listed.tolist(), ([2, 9, 19, 22, 25], [3, 21], [4, 20]), strict=True):
        assert found == pairs + [-1] * (2 * lanes - len(pairs))


def test_who_needs_more_than_the_narrowest_band() -> None:
    """Fibre 1 needs it; so would 3, which has no weight. In the second bundle 5 is in a chain with 6: 6 is eliminated
    minus the share of 7, also in the widest band. Their own inverses and those of fibres that touch them are needed."""
    lanes, nd, size = 10, 2, 5
    facts, flags = known(lanes, ALIVE=[1, 1, 1, 0, 1, 1, 1, 1, 1, 1], WANTED=[0, 1, 0, 2, 0, 0, 0, 0, 0, 0],
                         EXCESS=[1.0, 2.4, 2.6, 22.0, 23.0, 0.1, 0.1, 200.0, 300.0, 1e9])
    depth, wider = np.zeros((2, lanes), np.int32), np.full((4, lanes), 9, np.int32)
    depth[1, 5] = 1
    halves = np.array([8, 12, 20, 28, 40], np.int32)
    run_lanes(measure.widen, lanes, 3, (wider, depth, facts, flags, halves, len(halves), 3.0, nd, lanes, size))
    assert [np.flatnonzero(row).tolist() for row in wider[:3]] == [[1, 5, 6], [1, 5, 6], [0, 1, 2, 5, 6, 7]]
    assert set(wider[:3].ravel().tolist()) == {0, eliminate.WIDER}
    assert wider[3].tolist() == [12, 12, 20, 20, 28, 40, 40, 28, 40, 40], "3, 27 and 243 times less; a chain has all"


def test_no_band_is_measured_that_was_not_made() -> None:
    """Fibre 0 has 12 diagonals and needs the next band, 1 has all, 2 needs none; a chain needs the first one."""
    _, flags = known(4, ALIVE=1, WANTED=[2, 2, 0, 0])
    facts = known(4)[0]
    depth, halves = np.array([[0, 0, 0, 1], [0, 0, 0, 0]], np.int32), np.array([8, 12, 20], np.int32)
    wider = np.zeros((4, 4), np.int32)
    wider[3] = 12, 20, 12, 20
    for width, active in ((0, [1, 1, 1, 1]), (2, [0, 1, 0, 0]), (1, [0, 0, 0, 1])):
        run_lanes(measure.choose, 4, 1, (facts, flags, depth, wider, halves, width, 2, 8, 4))
        assert flags[names("Flag").index("ACTIVE")].tolist() == active


@pytest.mark.parametrize("theta", [1e-6, 1e-2])
@pytest.mark.parametrize("cond", [1e5, 1e8, 9e11])
def test_weights_of_masked_bins_excuse_no_coupling(cond: float, theta: float) -> None:
    """The first of three fibres touches the last, so that v^2 + 2 theta v are neglected, and 2 theta v for the one
    between them: up to what the CPU neglects, with v slightly above or below it."""
    limits, gamma = banded.Limits(), 1e-3
    most = max(limits.coupling, min(Facts(cond, theta, gamma).rounding, limits.most_coupling))
    facts, flags = known(3, COND=cond, THETA=theta, GAMMA=gamma, FIRST_THETA=theta, FIRST_GAMMA=1.0, FAR_SHARE=1.0,
                         CUT_HOLDS=0, EXCESS=1.0, ALIVE=1, RUNG=0, TOO_DEEP=0, TELLS=1, BLOCK_TELLS=1)
    for share in (0.999, 1.001):
        size = np.sqrt(share * most + theta**2) - theta
        outer, inner = (Status.GOOD if part <= most else Status.FAILED
                        for part in (size**2 + 2.0 * theta * size, 2.0 * theta * size))
        sizes = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, np.nan], [size * gamma, np.nan, np.nan]])
        run_lanes(measure.decide, 3, 1, (facts, flags, sizes, np.zeros(6, np.int32), limits.coupling,
                                         limits.most_coupling, limits.cond, 1.0, WORST, TOLD / UNKNOWN, 3, 3, 3))
        assert flags[names("Flag").index("STATUS")].tolist() == [outer, inner, outer]
        assert outer == (Status.GOOD if share < 1.0 else Status.FAILED)


def decided(lanes: int = 5, *, sizes: Any = 0.0, theta: float = 1e-6, depth: tuple[tuple[int, int], ...] = (),
            **flags: Any) -> list[int]:
    """STATUS of the fibres of a bundle with usual facts, except for these. sizes: of pairs at a distance of 2, in the
    norm of S; theta: of all fibres but the first; depth: (pair, length of its chain)."""
    limits, chains = banded.Limits(), np.zeros(2 * lanes, np.int32)
    for pair, count in depth:
        chains[pair] = count
    facts, told = known(lanes, **{"COND": 1e3, "THETA": 1e-6, "GAMMA": 1e-3,
                                  "FIRST_THETA": [1e-6] + [theta] * (lanes - 1),
                                  "FIRST_GAMMA": 1e-3, "FAR_SHARE": 1.0, "EXCESS": 1.0, "CUT_HOLDS": 0, "ALIVE": 1,
                                  "RUNG": 0, "TOO_DEEP": 0, "TELLS": 1, "BLOCK_TELLS": 1, **flags})
    between = np.stack([np.ones(lanes), np.ones(lanes), np.full(lanes, 1e-3 * np.asarray(sizes))])
    run_lanes(measure.decide, lanes, 1, (facts, told, between, chains, limits.coupling, limits.most_coupling,
                                         limits.cond, 1.0, WORST, TOLD / UNKNOWN, 3, lanes, lanes))
    return told[names("Flag").index("STATUS")].tolist()


G, F = Status.GOOD, Status.FAILED


@pytest.mark.parametrize(("changed", "wanted"), [
    ({}, [G] * 5), ({"TELLS": [1, 1, 0, 1, 1]}, [G, G, F, G, G]),
    ({"COND": [1e3, 2e12, 1e3, 1e3, 1e3]}, [G, F, G, G, G]),
    ({"COND": 2e12, "CUT_HOLDS": [1, 0, 0, 0, 1]}, [G, F, F, F, G]),
    ({"EXCESS": [1.01, 1, 1, 1, 1]}, [F, G, G, G, G]),
    ({"EXCESS": [1.01, 1.01, 1, 1, 1], "CUT_HOLDS": [1, 0, 0, 0, 0]}, [G, F, G, G, G]),
    ({"TOO_DEEP": [0, 0, 0, 0, 1]}, [G, G, G, G, F]),
    ({"RUNG": [0, -1, 0, 0, 0]}, [G, F, G, G, G]), ({"ALIVE": [1, 1, 0, 1, 1]}, [G, G, Status.EMPTY, G, G])])
def test_the_facts_of_a_fibre_decide_its_status(changed: dict[str, Any], wanted: list[int]) -> None:
    assert decided(**changed) == wanted


def test_who_is_eliminated_must_tell_its_bins_apart() -> None:
    """Fibre 4 does not: 3 has it as its next neighbour, 1 at the end of a chain; 2 has it farther away, where it
    counts."""
    assert decided(BLOCK_TELLS=[1, 1, 1, 1, 0]) == [G, G, G, F, G]
    assert decided(BLOCK_TELLS=[1, 1, 1, 1, 0], depth=((5 + 1, 2),)) == [G, F, G, F, G]
    assert decided(BLOCK_TELLS=[1, 1, 1, 1, 0], sizes=2e3)[2] == F


def test_in_a_chain_couplings_outwards_count() -> None:
    """Fibre 4 has 3 and 2 in a chain; 2 is coupled strongly. Fibre 2 is eliminated after those below it: its coupling
    to 0 counts, and that of 1 to 3 only if 3 is eliminated after 1, a hundredth of it in total; also if 1 is in the
    chain."""
    strong = {"depth": ((4, 2),), "FIRST_THETA": [1e-6, 1e-6, 0.5, 1e-6, 1e-6]}
    assert decided(**strong, sizes=[0, 1e-3, 0, 0, 0]) == [G, F, F, F, G]
    assert decided(**strong, sizes=[0, 1e-1, 0, 0, 0])[4] == F
    assert decided(**strong, sizes=[1e-3, 0, 0, 0, 0])[4] == F
    both = {"depth": ((4, 3),), "FIRST_THETA": [1e-6, 0.5, 0.5, 1e-6, 1e-6]}
    assert decided(**both, sizes=[0, 1e-3, 0, 0, 0])[4] == G


def test_who_is_in_a_chain_must_tell_with_those_beyond() -> None:
    """The blocks of fibres 3 and 4 each distinguish their bins, but S does not: nothing distinguishes the two fibres.
    Fibre 2 has them in a chain; so does 1. The smaller their share in it, the less they have to distinguish."""
    alone, chains = {"TELLS": [1, 1, 1, 0, 0]}, ((5 + 2, 1), (5 + 1, 2))
    assert decided(**alone, NOT_WEAK=1) == [G, G, G, F, F]
    near, far = [1e-6, 1e-6, 0.9, 0.9, 1.0], [1e-6, 1e-6, 5e-3, 0.9, 1.0]
    assert decided(**alone, NOT_WEAK=1, FIRST_THETA=near, depth=chains) == [G, F, F, F, F]
    assert decided(**alone, NOT_WEAK=1, FIRST_THETA=far, depth=chains) == [G, G, F, F, F]
    assert decided(**alone, NOT_WEAK=0, FIRST_THETA=far, depth=chains) == [G, F, F, F, F]
    nothing = [1e-6, 1e-6, 1e-11, 0.9, 1.0]
    assert decided(**alone, NOT_WEAK=0, FIRST_THETA=nothing, depth=chains) == [G, G, F, F, F], "nothing comes through"


def test_what_comes_through_a_chain() -> None:
    """Fibre 0 is not coupled too much to far ones, but those after it are, and it is coupled to these as strongly."""
    sizes, theta, chain = 6e-8, 0.04, ((5, 3),)      # 6 theta size: 1.4e-8 in the chain, 7e-11 of the first
    weak, strong = [1e-6, 1e-6, theta, theta, theta], [1e-6, theta, theta, theta, theta]
    assert decided(sizes=sizes, theta=1e-6, depth=chain)[0] == G
    assert decided(sizes=sizes, FIRST_THETA=weak)[0] == G
    assert decided(sizes=sizes, FIRST_THETA=weak, depth=chain)[0] == G, "nothing comes through fibre 1"
    assert decided(sizes=sizes, FIRST_THETA=strong, THETA=1e-10, depth=chain)[0] == F
    assert decided(sizes=sizes, FIRST_THETA=strong, THETA=1e-10)[0] == G


def test_largest_condition_number_is_asked_for() -> None:
    asked = device_tables.questions_table()[1:len(device_tables.RATIOS) + 1]
    ratios = np.sort(asked[asked[:, :, 3] == names("Fact").index("COND")][:, 4])
    assert np.count_nonzero(ratios == banded.Limits().cond) == 1
    said = asked[asked[:, :, 1] > 0]
    np.testing.assert_allclose(said[:, 1] * said[:, 4], 1.0, rtol=1e-15, err_msg="the answer is to what was asked")
    assert (np.diff(np.log(ratios[(ratios > 3e4) & (ratios < 3e13)])) < np.log(4.7)).all()


def test_far_couplings_bin_by_bin() -> None:
    """The least bound counts: products of largest values, or the mean of both fibres' bounds bin by bin."""
    weak, theta = 1e-8, 1e-4           # 2 theta size: 4e-9 for every pair
    assert decided(sizes=2e-5, theta=theta) == [F, F, F, F, F]
    assert decided(sizes=2e-5, theta=theta, FAR_SHARE=weak) == [G] * 5
    assert decided(sizes=2e-5, theta=theta, FAR_SHARE=[weak] * 4 + [1.0]) == [G, G, F, F, F]
    assert decided(sizes=1e-9, theta=theta) == [G] * 5


def asked_by_bin(kernel: Any, band: np.ndarray, *args: Any, facts: np.ndarray, flags: np.ndarray, roots: np.ndarray,
                 most: float) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a kernel for bins, as a diagonal matrix of every fibre, and the answers about shares of S."""
    nwave, half, lanes = band.shape[0], band.shape[1] - 1, band.shape[2]
    weights, related = np.full((nwave, lanes), np.nan), np.full(band.shape, np.nan)
    yes, table = np.full((measure.QUESTIONS, lanes), np.nan), device_tables.questions_table()
    run_lanes(kernel, nwave * lanes, 1, (weights, *args))
    run_lanes(measure.relate, nwave * lanes, 1, (related, band, weights, facts, flags, np.array([half], np.int32), most,
                                                 0, half + 1, nwave, half, lanes))
    run_lanes(sweeps.ask.sized(half, 1), measure.QUESTIONS * lanes, 1,
              (yes, related, related, None, facts, flags, table, -device_tables.SHARE, 99, nwave, half, lanes))
    return np.where(roots > 0, 1.0 / np.where(roots > 0, weights, 1.0)**2, 0.0), yes


def test_what_far_couplings_are_of_s() -> None:
    """Bin by bin: above the largest eigenvalue by at most a step, and together above the coupling itself; fibres that
    were not asked have no bound. One bin has no weight."""
    lanes, nd, hw, nwave, rng = 4, 3, 2, 40, np.random.default_rng(12)
    blocks = 1e-9 * rng.normal(size=(nd, nwave, 2 * hw + 1, lanes)) * np.exp(3 * rng.normal(size=(1, nwave, 1, 1)))
    s = [random_definite(nwave, 3, 1e4, rng) for _ in range(lanes)]
    roots = np.stack([1.0 / np.sqrt(np.diag(matrix)) for matrix in s], axis=1)
    roots[7, 1] = 0.0
    band = np.stack([band_of(matrix, 3) for matrix in s], axis=2)
    facts, flags = known(lanes, BOUND=3.0, FAR_SHARE=1.0, ACTIVE=[1, 1, 1, 0], WIDTH=0)
    made, yes = asked_by_bin(measure.weigh_far, band, blocks, roots, flags, nd, nwave, hw, lanes, lanes, facts=facts,
                             flags=flags, roots=roots, most=1e-2)
    run_lanes(measure.learn_share, lanes, 1, (facts, flags, yes, device_tables.questions_table(), 1e-2,
                                              device_tables.SHARE, lanes))
    told, square = facts[names("Fact").index("FAR_SHARE")], np.zeros((lanes, lanes, nwave, nwave))
    for i, j in ((0, 2), (1, 3)):
        for p, k in product(range(nwave), range(-hw, hw + 1)):
            if 0 <= p + k < nwave and roots[p, i] > 0 and roots[p + k, j] > 0:
                square[i, j, p, p + k] = square[j, i, p + k, p] = blocks[2, p, hw + k, i]
    for i in range(3):
        alive, scaled = roots[:, i] > 0, np.abs(square[i]).sum(axis=0) if i != 1 else np.abs(square[1, 3])
        other = roots[:, (i + 2) % 4]
        sums = (scaled * other).sum(axis=1) / np.where(alive, roots[:, i], 1.0)
        np.testing.assert_allclose(made[alive, i], sums[alive], rtol=1e-12, atol=1e-25)
        part = np.ix_(alive, alive)
        true = np.linalg.eigvals(np.linalg.solve(s[i][part], np.diag(sums)[part])).real.max()
        assert true <= told[i] <= 3.4 * true
    half = [np.linalg.cholesky(np.linalg.inv(matrix)) for matrix in s]
    assert np.linalg.norm(half[0].T @ square[0, 2] @ half[2], 2) <= np.sqrt(told[0] * told[2])
    assert told[3] == 1.0


def test_what_a_band_cuts_off_bin_by_bin() -> None:
    """Columns that start a thousand times higher in some bins, and fall by 3 in four diagonals: a diagonal matrix
    bounds them, and the answer is that of the matrix."""
    nwave, half, lanes, rng = 60, 5, 2, np.random.default_rng(13)
    level = np.exp(rng.normal(size=nwave))
    level[[3, 30, 58]] *= 1e3
    distance = np.abs(np.subtract.outer(np.arange(nwave), np.arange(nwave)))
    u = 1e-7 * np.maximum.outer(level, level) * 3.0**(-0.25 * distance)
    s = random_definite(nwave, half, 1e3, rng)
    root = 1.0 / np.sqrt(np.diag(s))
    u /= np.outer(root, root)
    cut = np.where(distance > half, u, 0.0)
    roots, band, taken = (np.stack([each] * lanes, axis=-1) for each in (root, band_of(s, half), band_of(u, half)))
    facts, flags = known(lanes, BOUND=3.0, ACTIVE=[1, 0], WIDTH=0)
    sides, places = np.zeros((nwave, measure.SIDES, lanes)), (nwave, half, lanes)
    args = taken, sides, roots, facts, flags, np.array([half], np.int32), 3.0, 0.0, 1e12, 1.0, 0, nwave, *places
    more = *args[:7], 0.01, *args[8:10], 5, 20, *places
    given = {"facts": facts, "flags": flags, "roots": roots}
    whole, plain = (asked_by_bin(measure.weigh_cut, band, *each, **given, most=1.0)[0][:, 0] for each in (more, args))
    kept = (np.arange(nwave) >= 5) & (np.arange(nwave) < 25)
    np.testing.assert_allclose(whole - plain, np.where(kept, 0.01 * 3.0, 0.0), rtol=1e-9, atol=1e-12)
    diagonal = np.diag(asked_by_bin(measure.weigh_cut, band, *args, **given, most=1.0)[0][:, 0])
    most = np.linalg.eigvals(np.linalg.solve(s, diagonal)).real.max()
    for factor, answer in ((1.001, 1.0), (0.999, 0.0)):
        _, yes = asked_by_bin(measure.weigh_cut, band, *args, **given, most=most * factor)
        assert yes[0, 0] == answer
    for cond, x, answer in ((2e12, 0.57, 1.0), (2e12, 0.585, 0.0), (1e12, 0.585, 1.0)):     # 1 / sqrt(BOUND) is 0.577
        sides[40, 1, 0], facts[names("Fact").index("COND")] = -x, cond
        assert asked_by_bin(measure.weigh_cut, band, *args, **given, most=1.001 * most)[1][0, 0] == answer
    for sign in (-1.0, 1.0):
        assert np.linalg.eigvalsh((diagonal + sign * cut) * np.outer(root, root))[0] > 0.0
    assert most < 25.0 * np.abs(np.linalg.eigvals(np.linalg.solve(s, cut))).max()


def test_who_is_asked_bin_by_bin() -> None:
    """Bundles with a FAILED fibre; fibres without weight have no bins."""
    _, flags = known(9, STATUS=[G, F, Status.EMPTY, G, G, G, G, G, F], ALIVE=[1, 1, 0, 1, 1, 1, 1, 1, 1])
    run_lanes(measure.reconsider, 9, 1, (flags, 9, 3))
    assert flags[names("Flag").index("ACTIVE")].tolist() == [1, 1, 0, 0, 0, 0, 1, 1, 1]


def without_far(case: Bundle, fibre: int) -> np.ndarray:
    """S if all fibres on each side are eliminated one by one, with couplings to next neighbours alone."""
    n, last = case.x.shape[1], len(case.x) - 1
    dark = np.where(case.normal.weight == 0, case.dense.max(), 0.0)
    s = case.dense[fibre * n:(fibre + 1) * n, fibre * n:(fibre + 1) * n] + np.diag(dark[fibre])
    for side in (-1, 1):
        taken = np.zeros((n, n))
        for j in range(last if side > 0 else 0, fibre, -side):
            own, before = slice(j * n, (j + 1) * n), slice((j - side) * n, (j - side + 1) * n)
            rest = case.dense[own, own] + np.diag(dark[j]) - taken
            taken = case.dense[before, own] @ np.linalg.solve(rest, case.dense[own, before])
        s = s - taken
    return s


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("wing", [0.02, 0.1])
def test_bound_is_above_what_chains_leave_out(mask: str, wing: float) -> None:
    """With the real effect of far couplings, from the dense matrix, as the limit, no fibre holds; with a loose limit
    all do."""
    case, limits = make_bundle(6, 60, mask=mask, wing=wing, stamp=(7, 17), step=1.9), banded.Limits(
        coupling=1e-30, most_coupling=0.0, distant=1.0)
    device = SimulatedDevice()
    core, inner, nd = BandedCore(device, shape_of([case], slice(9, 52), NDIAG), limits), slice(9, 52), 3
    decorrelate(device, core, [case], inner, NDIAG)
    facts, flags, sizes, depth = (np.asarray(core._arrays[name].data).copy() for name in ("facts", "flags", "sizes",
                                                                                         "depth"))
    flags = flags.reshape(-1, 6)
    for name, value in (("TELLS", 1), ("BLOCK_TELLS", 1), ("CUT_HOLDS", 1), ("RUNG", 0), ("TOO_DEEP", 0)):
        flags[names("Flag").index(name)] = value
    for i in np.flatnonzero(case.normal.weight.any(axis=1)).tolist():
        n, alive = case.x.shape[1], case.normal.weight[i] > 0
        part = np.ix_(alive, alive)
        s = np.linalg.inv(case.covariance[i * n:(i + 1) * n, i * n:(i + 1) * n])[part]
        root = np.linalg.cholesky(np.linalg.inv(s))
        changed = np.linalg.eigvalsh(root.T @ (without_far(case, i)[part] - s) @ root)
        error = np.abs(changed).max() - 10 * EPS * np.linalg.cond(s)
        for limit, status in ((max(error, 1e-30), F), (0.1, G)):
            run_lanes(measure.decide, 6, 1, (facts, flags, sizes, depth, limit, 0.0, np.inf, 1.0, WORST, 1.0, nd, 6, 6))
            assert flags[names("Flag").index("STATUS"), i] == status


@pytest.mark.parametrize("own", [True, False])
def test_bins_that_a_matrix_does_not_tell_apart(own: bool) -> None:
    """Two bins that differ by 1e-9 of themselves, with a share of 1e-8; elements beyond a fibre's half-band do not
    matter; a bin without weight is left out."""
    half, nwave, lanes, rng = 2, 9, 4, np.random.default_rng(8)
    band = np.zeros((nwave, half + 2, lanes))
    band[:, 0], band[:-1, 1] = 2.0, 0.3 * rng.random((nwave - 1, lanes))
    band[2, 1, 1] = 2.0 - 2e-9              # of fibre 1: bins 2 and 3 are the same
    band[1:4, 1, 1] = [0.0, 2.0 - 2e-9, 0.0]
    band[1, half + 1, 2] = 50.0             # in no fibre's band
    roots = np.full((nwave, lanes), 1.0 / np.sqrt(2.0))
    roots[5, 3], band[5, 0, 3] = 0.0, -1.0
    facts, flags = known(lanes, THETA=[1.0, 1.0, 1.0, 1.0], GAMMA=1e-3, COND=1e3, BOUND=0.7, ALIVE=1, WIDTH=0)
    related, yes = np.full((nwave, half + 2, lanes), np.nan), np.full(measure.QUESTIONS * lanes, np.nan)
    flag, halves = names("Flag").index("TELLS"), np.array([half], np.int32)
    reach = half + 1 if own else half
    run_lanes(measure.doubt, lanes, 1, (facts, flags, 1e8, flag, lanes))
    run_lanes(measure.relate, nwave * lanes, 1, (related, band, roots, facts, flags, halves if own else None, 1e8, 0,
                                                 half + 2, nwave, reach, lanes))
    table = device_tables.questions_table()
    run_lanes(sweeps.ask.sized(reach, 1), lanes, 1, (yes, related, related, None, facts, flags, table,
                                                     -device_tables.SHARE, 99, nwave, reach, lanes))
    run_lanes(measure.tell, lanes, 1, (flags, yes, flag, 0, lanes))
    assert flags[flag].tolist() == [1, 0, 1, 1]


def test_who_is_asked_whether_it_tells_bins_apart() -> None:
    facts, flags = known(4, THETA=[1e-6, 1.0, 1e-6, 1.0], GAMMA=[1e-3, 1e-3, 0.0, 1.0], COND=[1e9, 1e3, 1e9, 1.0],
                         ALIVE=[1, 1, 1, 0])
    run_lanes(measure.doubt, 4, 1, (facts, flags, 1e8, names("Flag").index("TELLS"), 4))
    assert flags[names("Flag").index("ACTIVE")].tolist() == [0, 1, 1, 0]
    assert flags[names("Flag").index("TELLS")].tolist() == [1, 0, 0, 1], "who has no weight has no bins"


def test_a_share_of_s_beyond_the_band_is_too_much() -> None:
    """IVAR is proportional to s squared, and is not corrected."""
    nwave, lanes, share = 5, 2, banded.Limits().share
    table, held = device_tables.poles_table(), np.array([0.0, 0.0, 0.0, 1.0, 0.5, 1.0])
    enough = table[2, device_tables.BEYOND]
    for number, excess, most in ((1, 1.0, share), (1, 1.1, 0.1 * share), (2, 1.0, enough)):
        facts, flags = known(lanes, STATUS=Status.GOOD, RUNG=2, ONES=1.0, CROSS=0.5, BOTH=1.0, EXCESS=excess)
        squares = np.tile(held[:, None], (1, 1, lanes))
        squares[0, number] = 0.9 * most, 1.1 * most
        run_lanes(poles.agree, lanes, 1, (flags, squares, facts, table, banded.AGREEMENT, share, 1, lanes))
        assert flags[names("Flag").index("STATUS")].tolist() == [Status.GOOD, Status.FAILED]
    rng, ndiag, kept = np.random.default_rng(9), 2, 5
    sums, left, band = rng.random((nwave, kept, lanes)), rng.random((nwave, 2, lanes)), np.full((nwave, 3, lanes), 50.0)
    made = np.full((-(-nwave // measure.CHUNK), measure.SQUARES, lanes), np.nan)
    run_lanes(poles.square, len(made) * lanes, 1, (made, sums, left, band, flags, 0.0, kept, ndiag, nwave, 2, lanes))
    np.testing.assert_allclose(made[:, 1, 0].max(), np.abs(left[:, 0, 0] / sums[:, 0, 0]).max(), rtol=1e-15)
    moves = np.abs(left[:, 1, 0] - sums[:, 1, 0] / sums[:, 0, 0] * left[:, 0, 0])
    np.testing.assert_allclose(made[:, 2, 0].max(), moves.max(), rtol=1e-15)


@pytest.mark.parametrize(("count", "ratio"), LADDER)
def test_sums_of_poles_make_the_derivative_of_the_root(count: int, ratio: float) -> None:
    """The root of B in the direction E: the solution L of Q L + L Q = E, Q the root of B, in the eigenvectors of B."""
    n, rng, rung = 30, np.random.default_rng(count), LADDER.index((count, ratio))
    spectrum = np.concatenate([[1.0 / ratio, 1.0], ratio ** -rng.random(n - 2)])
    change, unit, many = rng.normal(size=(n, n)), unit_poles(count, ratio), sweeps.GROUP
    exact = change / (np.sqrt(spectrum)[:, None] + np.sqrt(spectrum))
    row, error, made = device_tables.poles_table()[rung], device_tables.corrections()[rung]["error"], 0.0
    shifts, sums, parts = row[2:2 + sweeps.MOST], int(row[device_tables.BEYOND + 1]), row[device_tables.SUMMED:]
    for group, a in enumerate(parts.reshape(sweeps.OF_BEYOND, many, sweeps.RANK)):
        here = int(row[device_tables.BEYOND + 2 + group])
        assert (a[here:] == 0.0).all() and (a[:, sums:] == 0.0).all(), "what is not there has no part"
        of_sum = a[:here].T @ (1.0 / (shifts[group * many:][:here, None] + spectrum))
        made = made + sum(np.outer(g, g) for g in of_sum) * change
    assert (np.abs(made - exact) <= 1.02 * error * np.abs(exact)).all(), "1.02: between the numbers it was fitted at"
    assert error < 8e-3, "corrections are below 1e-6 sigma: a hundredth of them is nothing"
    assert row[device_tables.BEYOND] * error == pytest.approx(device_tables.SHIFT)
    assert row[0] == count and sorted(shifts[:count]) == sorted(unit.shifts), "all of them make Q"


def test_flux_and_what_the_band_does_not_hold() -> None:
    """(Q x + L x) / (Q 1 + L 1) to first order in L, and ivar the square of Q 1 + L 1, by which R is divided."""
    nwave, lanes, kept, first, nout = 7, 2, 5, 2, 4
    rng = np.random.default_rng(10)
    sums, left = 1.0 + rng.random((nwave, kept, lanes)), 1e-7 * rng.random((nwave, 2, lanes))
    _, flags = known(lanes, STATUS=[Status.GOOD, Status.FAILED])
    (flux, ivar), status = np.full((2, lanes, nout), np.nan), np.zeros((lanes, nout), np.int8)
    run_lanes(poles.spectra, lanes * nout, 1, (flux, ivar, status, sums, left, 1.0 / sums[:, 0], flags, kept, first,
                                               nout, lanes))
    bins = slice(first, first + nout)
    exact = (sums[bins, 1, 0] + left[bins, 1, 0]) / (sums[bins, 0, 0] + left[bins, 0, 0])
    np.testing.assert_allclose(flux[0], exact, rtol=1e-13)
    np.testing.assert_allclose(ivar[0], (sums[bins, 0, 0] + left[bins, 0, 0])**2, rtol=1e-15)
    assert not flux[1].any() and not ivar[1].any()
    resolution = np.full((lanes, 5, nout), np.nan)
    run_lanes(poles.diagonals, resolution.size, 1, (resolution, sums, left, 1.0 / sums[:, 0], flags, kept, first, 5,
                                                    nout, lanes))
    for k in range(-2, 3):
        rows = np.arange(first + max(k, 0), first + nout + min(k, 0))
        q = -sums[np.minimum(rows, rows - k), 2 + abs(k), 0]
        np.testing.assert_allclose(resolution[0, k + 2, rows - k - first], q / (sums[rows, 0, 0] + left[rows, 0, 0]),
                                   rtol=1e-15)
    assert not resolution[1].any()


@pytest.mark.parametrize("mask", ["clean", "block", "gap"])
def test_fibres_that_touch_those_after_the_next(mask: str) -> None:
    found, _ = check(bundle(mask, 0.005, FAR))
    if mask == "clean":
        assert (found.status == Status.GOOD).all()


def test_a_chain_that_is_too_long_is_left_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tables, "DEEPEST", 1)
    found = on_device(bundle("gap", 0.02))
    assert (found.status[0] == Status.FAILED).all(), "three fibres beyond the next matter to the first"
    assert (found.status[2] == Status.GOOD).all()


def test_an_empty_fibre_has_no_data_and_the_others_are_good() -> None:
    case = bundle("clean")
    normal = case.normal
    icov, weight = normal.icov.copy(), normal.weight.copy()
    icov[2], icov[1, 1], weight[2] = 0.0, 0.0, 0.0
    empty = Bundle(type(normal)(icov, normal.rhs, weight, normal.given_up), case.x, case.dense)
    found = on_device(empty)
    assert (found.status[2] == Status.EMPTY).all()
    assert not found.flux[2].any() and not found.ivar[2].any()
    assert (found.status[[0, 1, 3, 4]] == Status.GOOD).all()


def test_a_piece_is_its_bundles_bit_by_bit() -> None:
    cases = bundle("clean"), bundle("gap"), bundle("block")
    together = on_device(*cases)
    for n, case in enumerate(cases):
        alone = on_device(case)
        rows = slice(5 * n, 5 * n + 5)
        for name in ("flux", "ivar", "resolution", "status"):
            np.testing.assert_array_equal(getattr(together, name)[rows], getattr(alone, name))


def test_a_range_for_every_step() -> None:
    device, recorder = SimulatedDevice(), Recorder()
    core = BandedCore(device, shape_of([bundle("clean")], INNER, NDIAG))
    recorder.watch(device, ranges=True)
    decorrelate(device, core, [bundle("clean")], INNER, NDIAG, recorder=recorder)
    assert device.ranges == ["eliminate", "measure", "poles", "finish"]


def test_a_bundle_of_one_fibre_agrees_with_the_cpu() -> None:
    check(bundle("clean", 0.02, NEAR, 1))


def test_not_finite_is_failed() -> None:
    """A number that no solver should return gives a status, not a wrong frame."""
    case = bundle("clean")
    icov = case.normal.icov.copy()
    icov[1, 0, 40, icov.shape[3] // 2] = np.nan
    normal = type(case.normal)(icov, case.normal.rhs, case.normal.weight, case.normal.given_up)
    found = on_device(Bundle(normal, case.x, case.dense))
    assert (found.status[1] == Status.FAILED).all()
    assert np.isfinite(found.flux).all() and np.isfinite(found.resolution).all()
