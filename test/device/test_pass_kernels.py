"""The kernels of two passes alone, against the functions of passes/ that define them."""
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_text import run_lanes
from simulated_device import SimulatedDevice

from device.pieces import upload
from gpu_extract.data import Normal
from gpu_extract.device.cuda.piece import PieceShape
from gpu_extract.device.cuda.text import names, passes
from gpu_extract.device.memory import Sizes
from gpu_extract.device.pass_plan import Passes, shared_arrays
from gpu_extract.device.pass_steps import PassSteps
from gpu_extract.normal import Cut
from gpu_extract.passes import missed, outliers, shared_lines, variance
from gpu_extract.passes.outliers import find_outliers
from gpu_extract.passes.sides import leave_out
from gpu_extract.passes.spot_shape import Shape

ROWS, COLUMNS, NFIBRE = 40, 30, 2
SHAPE = Shape((0.5, 0.45, 0.3, 0.35), (3, 2), 0.03)
ERROR = 0.01
NOISE = 0.25          # read noise squared


def field(seed: int, hits: float) -> tuple[Cut, np.ndarray, np.ndarray, np.ndarray]:
    """Pixels with bright and faint hits on the light of traces, streaks in all directions, broad light that is in no
    model, and masked pixels; the model of the light, in places below 0; its rows of light; known outliers."""
    rng = np.random.default_rng(seed)
    x, y = np.arange(COLUMNS), np.arange(ROWS)[:, None]
    own = (200.0 * np.exp(-0.5 * ((x % 10 - 5) / 1.3) ** 2) * (1 + 3 * (y % 13 == 0)) - 3.0).astype(np.float32)
    root = 1 / np.sqrt(9.0 + np.maximum(own, 0.0).astype(float))
    pixels = own + rng.normal(0, 1, own.shape) / root
    struck = rng.random(own.shape) < hits
    pixels[struck] += (rng.uniform(1, 25, own.shape) / root)[struck]
    for n in range(4):
        v, u, height = rng.integers(6, ROWS - 6), rng.integers(6, COLUMNS - 6), rng.uniform(6, 20)
        dy, dx = ((1, 0), (0, 1), (1, 1), (1, -1))[n]
        for k in range(-3, 4):
            pixels[v + k * dy, u + k * dx] += height * rng.uniform(0.5, 1.5) / root[v, u]
        v, u = rng.integers(6, ROWS - 6), rng.integers(6, COLUMNS - 6)
        broad = np.exp(-((y - v) ** 2 + (x - u) ** 2) / (2 * rng.uniform(0.7, 2.5) ** 2))
        pixels += rng.uniform(6, 20) * broad / root[v, u]
    root[rng.random(own.shape) < 0.04] = 0.0
    rows = np.stack([rng.integers(0, 15, COLUMNS), rng.integers(ROWS - 15, ROWS + 1, COLUMNS)])
    known = (struck & (rng.random(own.shape) < 0.5)) | (rng.random(own.shape) < 0.05)
    return Cut(root, root * pixels, 0, 0), own, rows, known & (root > 0)


def counted(own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The light in the pixels' variance: of the bundle, and of the others."""
    return own * np.float32(0.75), np.maximum(own, 0) * np.float32(0.25)


def looked(cases: list[tuple[Cut, np.ndarray, np.ndarray, np.ndarray]], step: int, closed: tuple[int, ...] = (),
           *, counts: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rejected pixels (bundles, columns, rows), states of bundles and gates of fibres after a search by the kernels.

    counts: the light's noise is that of counts
    """
    def lying(arrays: Any, dtype: Any) -> np.ndarray:
        return np.ascontiguousarray(np.stack([array.T for array in arrays]), dtype)

    count, size = len(cases), len(cases) * ROWS * COLUMNS
    root, light, own = (lying(arrays, kind) for arrays, kind in (
        ([cut.root for cut, *_ in cases], np.float64), ([cut.light for cut, *_ in cases], np.float64),
        ([model for _, model, *_ in cases][::-1], np.float32)))
    numbers = np.arange(count)[::-1].copy()         # where the models lie
    rejected = lying([known for *_, known in cases], np.int8)
    limits = {name: getattr(outliers, name) for name in ("FAR", "PAIR", "STAY", "GROWN", "LENIENT")}
    limits |= {"WRONG": outliers.WRONG * ERROR + SHAPE.between,
               **dict(zip(("UP", "ACROSS", "FALLING", "RISING"), SHAPE.beside, strict=True))}
    asked = (np.stack([rows for _, _, rows, _ in cases]).astype(np.int32),
             np.array([limits[name] for name in names("Limit")[:-1]]), np.array([[0, 0, ROWS, COLUMNS]] * count),
             NFIBRE, ROWS, COLUMNS, outliers.AROUND)
    gate, looks = np.zeros(count * NFIBRE, np.int32), np.zeros((count, passes.LOOKED))
    for b in closed:
        gate[b * NFIBRE:(b + 1) * NFIBRE] = 1
    marks, seeds = np.full_like(rejected, -99), np.full_like(rejected, -99)
    parts = np.full((count, passes.COUNTED, 8), np.nan)
    lit = [lying(part, np.float32) if counts else None
           for part in zip(*(counted(model) for _, model, *_ in cases), strict=True)]
    seen = root, light, own, numbers, *lit

    def tally(of: np.ndarray) -> np.ndarray:
        run_lanes(passes.tally, count * 8, step, (parts, of, ROWS * COLUMNS, 8))
        return parts.sum(axis=2)

    run_lanes(passes.stand_out, size, step, (marks, *seen, rejected, gate, *asked))
    run_lanes(passes.despair, count, step, (
        looks, gate, tally(marks), NFIBRE, outliers.MOST, outliers.MANY, outliers.NARROW,
        outliers.LOW if counts else outliers.BRIGHTEST))
    run_lanes(passes.pair_up, size, step, (seeds, marks, gate, asked[2], NFIBRE, ROWS, COLUMNS))
    run_lanes(passes.reject, size, step, (rejected, seeds, *seen, looks, gate, *asked))
    run_lanes(passes.end_look, count, step, (looks, gate, tally(rejected), 0, NFIBRE))
    return rejected, looks, gate.reshape(count, NFIBRE)


@pytest.mark.parametrize(("step", "counts"), [(1, True), (7, False), (-1, True)])
def test_outliers_are_those_of_the_cpu(step: int, counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields with few hits, and with more, where nothing is rejected; a closed bundle stays unchanged."""
    monkeypatch.setattr(outliers, "MOST", 0.06)       # so much light in these small fields is in no model
    cases = [field(seed, hits) for seed in range(150) for hits in (0.0, 0.01)]
    rejected, looks, gates = looked(cases, step, counts=counts)
    seen = {"kept": 0, "back": 0, "new": 0}
    for (cut, own, rows, known), found, state, gate in zip(cases, rejected, looks, gates, strict=True):
        wanted = find_outliers(cut, own, rows, shape=SHAPE, error=ERROR, known=np.argwhere(known),
                               lit=np.add(*counted(own)) if counts else None)
        assert state[passes.HOPELESS] == (wanted is None)
        chosen = np.zeros_like(known)
        chosen[tuple((np.zeros((0, 2), int) if wanted is None else wanted).T)] = True
        np.testing.assert_array_equal((found & 1).T != 0, chosen)
        assert state[passes.CHANGES] == (chosen != known).sum() and set(gate) == {int(np.array_equal(chosen, known))}
        for name, which in (("kept", chosen & known), ("back", known & ~chosen), ("new", chosen & ~known)):
            seen[name] += int(which.sum())
    assert min(seen.values()) > 50 and 10 < looks[:, passes.HOPELESS].sum() < 290, seen
    closed, state, gates = looked(cases[:2], step, closed=(1,), counts=counts)
    np.testing.assert_array_equal(closed[0], rejected[0])
    np.testing.assert_array_equal(closed[1], cases[1][3].T)
    assert not state[1].any() and gates[1].all()


def test_a_bundle_is_solved_again_only_where_it_changed() -> None:
    """It is done if nothing changed, or it is hopeless or closed already."""
    looks, gate = np.zeros((4, passes.LOOKED)), np.array([0, 0, 0, 1], np.int32)
    looks[:, passes.CHANGES], looks[2, passes.HOPELESS] = (1, 0, 3, 3), 1
    run_lanes(passes.ask_again, 4, 1, (looks, gate, 1))
    np.testing.assert_array_equal(gate, [0, 1, 1, 1])


def test_what_is_beyond_any_model_once_stays_so() -> None:
    x, beyond = np.array([1.0, 2e30, np.nan, -2e30, 1.0]), np.array([0, 0, 0, 0, 1], np.int8)
    run_lanes(passes.lessen_x, 5, 1, (x, beyond, None, 1e30))
    np.testing.assert_array_equal(beyond, [0, 1, 1, 1, 1])


def test_a_bundle_in_which_too_many_pixels_stand_out_is_hopeless() -> None:
    """More than a share of the good pixels stand out, and of the sure ones by more than the model's error. They are not
    those of hits: too many, broad, or as many lie below the model. In the first ones each condition just fails."""
    fine = [(10, 5, 100, 50, 5, 5), (5, 5, 100, 50, 0, 9), (10, 2, 100, 50, 0, 9), (20, 10, 100, 50, 9, 10)]
    wrong = [(20, 11, 100, 50, 11, 0), (20, 10, 100, 50, 8, 0), (20, 10, 100, 50, 10, 11)]
    counts, gate = np.array([*fine, *wrong, wrong[0]], float), np.array([0] * 7 + [1], np.int32)
    looks = np.zeros((8, passes.LOOKED))
    run_lanes(passes.despair, 8, 1, (looks, gate, counts, 1, 0.06, 0.2, 0.9, 0.5))
    np.testing.assert_array_equal(looks[:, passes.HOPELESS], [0] * 4 + [1] * 3 + [0])


def test_rejected_pixels_are_packed_into_bits() -> None:
    rows, columns = 75, 6
    rejected = (np.random.default_rng(0).random((2, columns, rows)) < 0.1).astype(np.int8) + np.int8(2)
    packed = np.zeros((2, columns, 3), np.uint32)
    run_lanes(passes.pack, packed.size, 5, (packed, rejected, rows, 3))
    bits = np.unpackbits(packed.astype("<u4").view(np.uint8), axis=2, bitorder="little")
    np.testing.assert_array_equal(bits[..., :rows], rejected & 1)
    assert not bits[..., rows:].any()


@pytest.mark.parametrize(("dtype", "bare"), [(np.float32, False), (np.float64, False), (None, False), (None, True)])
def test_weights_are_those_of_the_cpu(dtype: Any, bare: bool) -> None:
    """Against simd_pixels.weigh: noise of pixels, or of amplifiers that meet on the cut-out; light below 0. And against
    the weights by which the first pass judges. Pixels of other bundles are masked."""
    rng, columns, rows, wide, error = np.random.default_rng(2), 12, 20, 17, 0.0 if bare else 0.02
    root, light = rng.random((2, 1, columns, rows))
    root[rng.random(root.shape) < 0.2] = 0.0
    light[root == 0] = 0.0
    expected, others = (rng.normal(5, 20, root.shape).astype(np.float32) for _ in range(2))
    plane = (2 + rng.random((25, wide))).astype(dtype or np.float64)
    four = np.array([1.0, 2.0, 3.0, 4.0, np.nan])
    top, aside = 3, 2
    there = plane[top:top + rows, aside:aside + columns].astype(float)
    if dtype is None:
        y, x = np.arange(rows)[:, None] + top >= 11, np.arange(columns) + 30 >= 37
        there = four[2 * y + x]
    wanted = root[0].T.copy(), light[0].T.copy()
    if bare:
        judged = outliers.by_own_light(Cut(*wanted, 0, 0), np.square(there))
        wanted = outliers.FIRST * judged.root, outliers.FIRST * judged.light
    else:
        variance.weigh(Cut(*wanted, 0, 0), np.square(there), expected[0].T.copy(), others[0].T.copy(), error)
    sides = np.stack([rng.integers(0, 4, rows), rng.integers(columns - 3, columns + 1, rows)])[None].astype(np.int32)
    leave_out(Cut(*wanted, 0, 0), sides[0])
    kind = np.dtype(dtype or np.float64).itemsize
    run_lanes(passes.expect[kind], root.size, 7, (
        root, light, *((None, None) if bare else (expected, others)), None if dtype is None else plane,
        four, np.array([[top, 30, rows, columns]]), np.array([[aside, wide, 0, wide, 25]]), sides, plane.size,
        11, 37, rows, columns, error, int(bare), outliers.BRIGHTEST))
    for found, want in zip((root, light), wanted, strict=True):
        np.testing.assert_allclose(found[0].T, want, rtol=1e-14, atol=0)


@pytest.mark.parametrize("step", [1, -1])
def test_missed_light_is_weighted_as_on_the_cpu(step: int) -> None:
    """Light that the model has elsewhere, above it and below, hits on it, rejected pixels."""
    counts = []
    for seed in range(12):
        cut, own, rows, known = field(seed, 0.01)
        cut.light[:] += cut.root * 0.05 * (np.roll(own, 1, axis=0) - own) * (seed % 3)
        root, light, rejected = cut.root.copy(), cut.light.copy(), np.ascontiguousarray(known.T[None], np.int8)
        cut.root[known] = cut.light[known] = 0.0
        others = counted(own)[1]
        places, less = missed.weigh_missed(cut, own, rows, shape=SHAPE, error=ERROR, lit=own + others)
        wanted = np.ones_like(root)
        wanted[tuple(places.T)] = less
        lying = [np.ascontiguousarray(array.T[None]) for array in (root, light, own, others)]
        limits = np.zeros(passes.LIMITS)
        limits[passes.WRONG] = outliers.WRONG * ERROR + SHAPE.between
        run_lanes(passes.miss, root.size, step, (
            *lying, rejected, rows[None].astype(np.int32), limits, np.array([[0, 0, ROWS, COLUMNS]]), ROWS, COLUMNS,
            outliers.AROUND, missed.FAR))
        for found, before in zip(lying, (root, light), strict=False):
            np.testing.assert_allclose(found[0].T, before * wanted, rtol=1e-14, atol=0)
        counts.append(len(places))
    assert max(counts) > 20, counts


def smoothed(x: np.ndarray, icov: np.ndarray, bins: tuple[np.ndarray, np.ndarray], nfibre: int,
             **pixels: Any) -> np.ndarray:
    """What the kernels make of spectra x of bundles of so many fibres; bins: their weight and share; pixels: root, and
    where spots lie, with a core of three pixels by one."""
    (fibres, nwave), hw, bundles, (weight, share) = x.shape, icov.shape[2] // 2, len(x) // nfibre, bins
    shape, device = PieceShape(bundles, nfibre, 2, hw, nwave, 0, nwave, 2), SimulatedDevice(order=0.382)
    stream = device.stream()
    turns = np.cos(np.pi * np.outer(np.arange(15), (np.arange(variance.FREQUENCIES) + 0.5) / variance.FREQUENCIES))
    turns[1:] *= 2.0
    given = {"x": x, "icov": icov, "sums": np.stack([weight, weight]), "share": share, "turns": turns,
             **pixels}
    arrays = SimpleNamespace(
        **{name: upload(device, array, stream) for name, array in given.items()},
        vectors=device.empty((6, fibres, nwave)), row=device.empty((fibres, hw + 1)), left=device.empty((fibres,)),
        lines=device.empty((fibres, nwave), np.int8), found=device.empty((fibres, nwave), np.int8),
        **{name: device.empty(*array) for name, array in shared_arrays(shape).items()})
    nothing = Passes((), (), None, False, 0.0, (0, 0), None, (1, 0))
    sizes = Sizes((3, 3), pixels["root"].shape[:0:-1] if pixels else (1, 1), 1, np.float64, np.float64, 1, False)
    y = PassSteps(device, stream, shape, sizes, arrays, nothing)._smooth()
    device.finish(device.record(stream))
    return np.asarray(y.data).reshape(fibres, nwave)


def test_smoothed_spectra_are_those_of_the_cpu() -> None:
    """Lines, an edge, noise, dark bins and a dark fibre; against variance.smooth."""
    rng, nwave, hw = np.random.default_rng(4), 220, 3
    fibres = 2 * NFIBRE
    profile = np.array([1.0, 0.7, 0.25, 0.04])
    icov = np.zeros((fibres, 2, 2 * hw + 1, nwave))
    weight = 5.0 + rng.random((fibres, nwave))
    weight[1, 40:44] = weight[2] = 0.0
    weight[3] *= 0.2        # with less information
    for f in range(fibres):
        for k in range(hw + 1):
            pair = np.sqrt(weight[f, :nwave - k] * weight[f, k:]) * profile[k] * 0.2
            icov[f, 0, hw + k, :nwave - k] = pair
            icov[f, 0, hw - k, k:] = pair
    icov[:, 1] = rng.random(icov[:, 1].shape)       # of neighbours: it does not count
    x = 40.0 + rng.normal(0, 3, (fibres, nwave)) + 30 * (np.arange(nwave) > 150)
    x[0, [30, 90]] += 900, 60
    x[3, 100] -= 200
    x[3, 50:90] -= 90
    x[weight == 0] = 0.0
    share = NOISE * weight * rng.uniform(0.5, 2.0, weight.shape)      # amplifiers differ
    share[3, 70:73] = 0.0
    found = smoothed(x, icov, (weight, share), NFIBRE)
    for b in range(2):
        own = slice(b * NFIBRE, (b + 1) * NFIBRE)
        normal = Normal(np.ascontiguousarray(icov[own].transpose(0, 1, 3, 2)), np.zeros_like(x[own]), weight[own],
                        np.zeros(x[own].shape, bool))
        wanted = variance.smooth(normal, x[own], share[own])
        np.testing.assert_allclose(found[own], wanted, rtol=1e-11, atol=1e-11)
        alone = x[own] + np.minimum(icov[own, 0, hw] / variance.FULL, 1.0)
        kept = np.isclose(wanted, alone, rtol=1e-12)
        assert kept.any() and (np.abs(wanted - x[own]) > 1).any(), "lines are kept, the rest is not"


def test_smooth_with_lines_that_all_fibres_show() -> None:
    """In the first bundle; fibres with lines of their own, masked pixels and bins without any. The second has none."""
    rng, nwave, hw, nfibre = np.random.default_rng(5), 220, 3, 5
    fibres, profile = 2 * nfibre, np.array([1.0, 0.7, 0.25, 0.04])
    root = np.ones((2, nfibre, nwave + 2))       # columns, rows: a fibre in each, a bin in the middle of three
    root[0, 1, 61:64] = root[0, 2, 100:125] = root[1, 3, 80] = 0.0
    good = sum(root[..., k:nwave + k] for k in range(3)).reshape(-1, nwave) / 3
    weight = (good > 0) * (5.0 + rng.random((fibres, 1)))
    icov = rng.random((fibres, 2, 2 * hw + 1, nwave))
    for f in range(fibres):
        for k in range(hw + 1):
            pair = np.sqrt(weight[f, :nwave - k] * weight[f, k:]) * profile[k] * 0.2
            icov[f, 0, hw + k, :nwave - k] = icov[f, 0, hw - k, k:] = pair
            icov[f, 0, hw + k, nwave - k:] = icov[f, 0, hw - k, :k] = 0.0
    x = 40.0 + rng.normal(0, 3, (fibres, nwave)) + 10 * np.arange(fibres)[:, None]
    shape = np.zeros(nwave)
    shape[8:200:9] = rng.uniform(20, 300, 22)
    x[:nfibre] += rng.uniform(0.8, 1.2, (nfibre, 1)) * shape
    x[3, 57:60] += 400
    x[4, 150] -= 300
    x[weight == 0] = 0.0
    y0, x0 = (np.broadcast_to(one, x.shape).astype(np.int32).copy()
              for one in (np.arange(nwave), np.tile(np.arange(nfibre), 2)[:, None] - 1))
    cuts = np.array([[0, 0, nwave + 2, nfibre]] * 2)
    share = NOISE * weight * rng.uniform(0.5, 2.0, weight.shape)
    found = smoothed(x, icov, (weight, share), nfibre, root=root, y0=y0, x0=x0, cuts=cuts)
    for b in range(2):
        own = slice(b * nfibre, (b + 1) * nfibre)
        normal = Normal(np.ascontiguousarray(icov[own].transpose(0, 1, 3, 2)), np.zeros_like(x[own]), weight[own],
                        np.zeros(x[own].shape, bool))
        core = shared_lines.share_good(Cut(root[b].T.copy(), root[b].T.copy(), 0, 0), (y0[own], x0[own] + 1), (3, 1))
        np.testing.assert_array_equal(core, good[own])
        light = shared_lines.shared_lines(normal, x[own], share[own], core)
        assert (light is None) == (b == 1)
        wanted = variance.smooth(normal, x[own], share[own], light)
        np.testing.assert_allclose(found[own], wanted, rtol=1e-11, atol=1e-11)
        if light is not None:
            assert np.abs(wanted - variance.smooth(normal, x[own], share[own])).max() > 3 and not light.more.all()
