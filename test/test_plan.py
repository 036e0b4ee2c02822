"""The plan: integers and one wavelength array, for every size that can be requested."""
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

import oracle
from gpu_extract import plan
from gpu_extract.config import ExtractConfig
from gpu_extract.data import with_series
from gpu_extract.errors import InputError
from gpu_extract.run import extract
from gpu_extract.simulate import NO_DEFECTS, SimConfig, simulate

CONFIG = ExtractConfig(wavelength=(6040.0, 6160.0, 0.8))


@pytest.fixture(scope="module")
def psf():
    """Ten fibres in bundles of 3, 1, 4 and 2, defined from 6000 to 6200 Angstrom."""
    return oracle.make_psf("v3", 10, (360, 92), bundle=np.array([4, 4, 4, 5, 9, 9, 9, 9, 2, 2]))


# ---- wavelengths ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("wavelength", "count", "last"), [
    ((5760.0, 7620.0, 0.8), 2326, 7620.0), ((3600.0, 5800.0, 0.8), 2751, 5800.0), ((7520.0, 9824.0, 0.8), 2881, 9824.0),
    ((6000.0, 6001.0, 0.4), 3, 6000.8), ((6000.0, 6001.0, 0.3), 4, 6000.9), ((6000.0, 6001.1, 0.4), 4, 6001.2),
    ((6000.0, 6000.1, 0.8), 1, 6000.0), ((1000.0, 1000.3, 0.1), 4, 1000.3),
])
def test_both_ends_are_included(wavelength, count, last):
    """The last one if the step reaches it within half a step."""
    wave = plan.wavelength_grid(wavelength)
    assert len(wave) == count
    assert wave[-1] == pytest.approx(last, abs=1e-9)


def test_a_wavelength_does_not_depend_on_the_padding():
    """One array is indexed everywhere: first + n step, whatever is below and above."""
    wave = plan.wavelength_grid((5760.0, 7620.0, 0.8))
    for below, above in ((0, 7), (50, 50), (200, 0)):
        padded = plan.wavelength_grid((5760.0, 7620.0, 0.8), below, above)
        assert len(padded) == len(wave) + below + above
        np.testing.assert_array_equal(padded[below:below + len(wave)], wave)


@pytest.mark.parametrize("factor", [1.0, 1.0003, 0.9997])
@pytest.mark.parametrize("pad", [0, 20, 200])
def test_the_extended_grid_has_the_pad_that_was_asked_for(psf, pad, factor):
    """As many bins beyond the ends as requested, or as the PSF has; solved at wavelength / factor, stored undivided."""
    made = plan.make_plan(psf, replace(CONFIG, wave_factor=factor), pad)
    np.testing.assert_array_equal(made.wave, plan.wavelength_grid(CONFIG.wavelength))
    np.testing.assert_array_equal(made.extended[made.inner], made.wave / factor)
    np.testing.assert_allclose(np.diff(made.extended), 0.8 / factor, rtol=1e-9)
    low, high = psf.wavelength_range
    rounded = plan.ROUNDED * high
    assert made.extended[0] >= low - rounded and made.extended[-1] <= high + rounded
    below, above = made.inner.start, len(made.extended) - made.inner.stop
    assert below == pad or made.extended[0] - 0.8 / factor < low
    assert above == pad or made.extended[-1] + 0.8 / factor > high


@pytest.mark.parametrize("step", [0.8, 0.1, 0.05, 1.1])
@pytest.mark.parametrize("factor", [1.0, 1.0003, 0.99991])
def test_a_bin_on_the_limit_of_the_psf_counts(psf, step, factor):
    """Rounding once put two of three such bins beyond it: they were lost, or a grid that ends there was refused."""
    exact, of = Fraction(str(step)), Fraction(str(factor))
    for first, count, below, above in product((5760, 6000), (26, 931), (0, 1, 7, 29), (0, 1, 13, 49)):
        last = first + (count - 1) * exact
        limits = [float(limit / of) for limit in (first - below * exact, last + above * exact)]
        ends = with_series(psf, lambda series: replace(series, wmin=limits[0], wmax=limits[1]))  # noqa: B023
        made = plan.make_plan(ends, ExtractConfig((float(first), float(last), step), wave_factor=factor), 50)
        assert (made.inner.start, len(made.extended) - made.inner.stop) == (below, above)
        short = with_series(psf, lambda series: replace(series, wmin=limits[0] * (1 + 1e-9),  # noqa: B023
                                                        wmax=limits[1] * (1 - 1e-9)))  # noqa: B023
        if below and above:
            made = plan.make_plan(short, ExtractConfig((float(first), float(last), step), wave_factor=factor), 50)
            assert (made.inner.start, len(made.extended) - made.inner.stop) == (below - 1, above - 1)


@pytest.mark.parametrize("core", ["banded", "dense"])
def test_a_grid_that_ends_on_the_limits_is_extracted(core):
    """The spots there are those of a PSF with a larger range: nothing diverges a last bit beyond the limit."""
    made = simulate(SimConfig(camera="tiny", seed=3, defects=NO_DEFECTS))
    low, high = made.psf.wavelength_range
    factor = 1.0001
    config = ExtractConfig((low * factor, high * factor, (high - low) * factor / 130), core=core, wave_factor=factor)
    wider = with_series(made.psf, lambda s: replace(s, wmin=s.wmin - 1e-9, wmax=s.wmax + 1e-9))
    one, other = (extract(made.image, psf, config) for psf in (made.psf, wider))
    good = one.ivar > 0
    assert good.mean() > 0.9
    # the spots move by 1e-9 A, 1e-9 pixels; a flux follows by no more than 1e-9 of its light, here below 1e4 sigma
    assert np.abs((one.flux - other.flux) * np.sqrt(other.ivar))[good].max() < 1e-5


# ---- fibres ---------------------------------------------------------------------------------------------------------

def test_bundles_of_the_psf(psf):
    """Runs of equal numbers, whatever the numbers and bundlesize are."""
    assert plan.instrument_bundles(psf, 25) == ((0, 3), (3, 4), (4, 8), (8, 10))


def test_fibres_of_a_bundle_lie_side_by_side(psf):
    with pytest.raises(InputError, match="BUNDLE of fibre 4 is 0, as for earlier fibres that are not adjacent"):
        plan.instrument_bundles(replace(psf, bundle=np.array([0, 0, 1, 1, 0, 0, 1, 1, 2, 2])), 25)


@pytest.mark.parametrize(("size", "bundles"), [
    (1, tuple((i, i + 1) for i in range(10))), (4, ((0, 4), (4, 8), (8, 10))), (5, ((0, 5), (5, 10))), (10, ((0, 10),)),
    (25, ((0, 10),)),
])
def test_bundles_are_counted_off_by_their_size(psf, size, bundles):
    assert plan.instrument_bundles(replace(psf, bundle=None), size) == bundles


def test_whole_bundles_are_made_of_any_range(psf):
    every = plan.instrument_bundles(psf, 25)
    for lo, count in product(range(10), range(1, 11)):
        hi = lo + count
        if hi > 10:
            continue
        made = plan.make_plan(psf, replace(CONFIG, specmin=lo, nspec=hi - lo), 5)
        assert made.fibres == (lo, hi)
        assert made.bundles == tuple(b for b in every if set(range(*b)) & set(range(lo, hi)))
    assert plan.make_plan(psf, replace(CONFIG, specmin=7), 5).fibres == (7, 10)


@pytest.mark.parametrize(("changes", "message"), [
    ({"specmin": 10}, r"fibres from 10 on were requested, made-up v3 has fibres 0 to 9: choose --specmin and --nspec"),
    ({"specmin": 8, "nspec": 3}, r"fibres 8 to 10 were requested, made-up v3 has fibres 0 to 9"),
    ({"wavelength": (5999.0, 6100.0, 0.8)}, r"wavelengths 5999 to 6099.8 .* covers 6000 to 6200: choose --wavelength"),
    ({"wavelength": (6100.0, 6201.0, 0.8)}, r"wavelengths 6100 to 6200\.8"),
    ({"wavelength": (6000.0, 6100.0, 0.8), "wave_factor": 1.001},
     r"wavelengths 6000 to 6100 .* covers 6000 to 6200 \(the factor 1.001 makes them 5994.006 to 6093.9061\): choose"),
])
def test_what_the_psf_does_not_have(psf, changes, message):
    with pytest.raises(InputError, match=message):
        plan.make_plan(psf, replace(CONFIG, **changes), 5)


# ---- pieces and their owners ----------------------------------------------------------------------------------------

def covers(ranges, n):
    """Consecutive, none empty, from 0 to n."""
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges)][:len(ranges)]
    assert all(first < last for first, last in ranges)
    assert (ranges[-1][1] if ranges else 0) == n


def test_a_grid_beyond_any_series_that_varies_is_refused(psf):
    """Files of version 2 give each parameter its own range; beyond it a polynomial may have any value."""
    core = psf.cores[0]
    short = replace(core.sigma_y, wmin=6050.0, coeff=np.full((10, 2), 1.1))
    with pytest.raises(InputError, match="covers 6050 to 6200"):
        plan.make_plan(replace(psf, cores=(replace(core, sigma_y=short),)), CONFIG, 0)
    constant = replace(short, coeff=np.full((10, 1), 1.1))
    plan.make_plan(replace(psf, cores=(replace(core, sigma_y=constant),)), CONFIG, 0)


def test_tiles_and_groups_cover_all():
    for n, length in product(range(40), (1, 2, 7, 39, 40, 100)):
        covers(plan.tiles(n, length), n)
    for n, groups in product(range(1, 30), (None, 1, 2, 3, 5, 25, 40)):
        made = plan.fibre_groups(n, groups)
        covers(made, n)
        assert len(made) <= (groups or n)
        assert len({last - first for first, last in made[:-1]}) <= 1
    assert plan.fibre_groups(25, 5) == ((0, 5), (5, 10), (10, 15), (15, 20), (20, 25))


def test_tiles_do_not_depend_on_who_asks():
    assert plan.tiles(600) == tuple((a, min(a + plan.TILE, 600)) for a in range(0, 600, plan.TILE))


def test_spread_stays_inside():
    assert plan.spread(10, 20, 5, 100) == (5, 25)
    assert plan.spread(2, 98, 5, 100) == (0, 100)
    assert plan.spread(0, 0, 0, 100) == (0, 0)


def test_halos_are_whole_blocks():
    assert plan.halo(10, 20, 5, 100) == (4, 28)
    assert plan.halo(12, 19, 4, 100) == (8, 24)
    assert plan.halo(2, 98, 5, 99) == (0, 99)
    assert plan.halo(0, 0, 0, 100) == (0, 0)


def test_shares_are_consecutive_and_even():
    for pieces, size in product(range(12), range(1, 9)):
        shares = [plan.share(pieces, rank, size) for rank in range(size)]
        assert [p for s in shares for p in s] == list(range(pieces))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_bounds_are_where_the_shares_begin():
    ranges = plan.tiles(100, 9)
    for size in range(1, 16):
        starts = plan.bounds(ranges, size)
        assert len(starts) == size + 1
        for rank, (first, last) in enumerate(pairwise(starts)):
            mine = [ranges[n] for n in plan.share(len(ranges), rank, size)]
            assert [first, last] == ([mine[0][0], mine[-1][1]] if mine else [first, first])


def test_every_bundle_is_made_once_by_one_group():
    """First whole rounds with a bundle per rank; then the rest, each shared by adjacent ranks."""
    for bundles, size in product(range(23), range(1, 12)):
        ranks = [plan.turns(bundles, size, rank) for rank in range(size)]
        assert len({len(turns) for turns in ranks}) == 1, "collectives: as many turns for every rank"
        makers: dict[int, list[int]] = {}
        for rank, turns in enumerate(ranks):
            for turn in turns:
                makers.setdefault(turn.bundle, []).append(rank)
                assert (turn.group is None) == (turn.bundle < bundles // size * size)
        assert sorted(makers) == list(range(bundles))
        for bundle, group in makers.items():
            assert group == list(range(group[0], group[-1] + 1))
            assert len(group) == 1 or bundle >= bundles // size * size
        if bundles % size:
            assert sum(len(turns) for turns in ranks) == size * (bundles // size + 1), "a rank without work"


# ---- how many neighbours are enough ---------------------------------------------------------------------------------

def test_the_number_of_neighbours_follows_from_correlations():
    """The n-th next neighbour couples directly, to the square, or through those between, to the power 2 (n + 1)."""
    limit = 1e-8 / plan.SIGNAL
    assert plan.enough_neighbours(np.array([1e-4]), 1e-8) == 1
    assert plan.enough_neighbours(np.array([1e-4, 1e-2]), 1e-8) == 2
    assert plan.enough_neighbours(np.array([0.99 * limit ** (1 / 6)]), 1e-8) == 2
    assert plan.enough_neighbours(np.array([1.01 * limit ** (1 / 6)]), 1e-8) == 3
    assert plan.enough_neighbours(np.array([0.9]), 1e-8) == plan.MOST_NEIGHBOURS
    assert plan.enough_neighbours(np.array([0.0]), 1e-8) == 1
