"""The PSF validator: each way a fibre can be bad, the message, and that other fibres are not affected."""
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest

import oracle
from extraction import CORES, assert_same_bits, extracted, in_sigma, moved, relative
from gpu_extract.checks.psf_check import check_psf, out_of_order, remaining
from gpu_extract.config import ExtractConfig
from gpu_extract.data import Frame, PsfModel, SpecMask, Status
from gpu_extract.errors import InputError
from gpu_extract.spots import select
from test_relations import turned

WAVE = np.arange(6050.0, 6098.5, 0.8)
CONFIG = ExtractConfig(wavelength=(6050.0, 6098.0, 0.8))
NFIBRE = 7


def fresh(family="v3"):
    return oracle.make_psf(family, NFIBRE, (360, 70), first_row=20)


def with_trace(psf: PsfModel, axis: str, fibre: int, place, value: float) -> PsfModel:
    series = getattr(psf, axis)
    coeff = series.coeff.copy()
    coeff[fibre, place] = value
    return replace(psf, **{axis: replace(series, coeff=coeff)})


def with_core(psf: PsfModel, number: int, name: str, fibre: int, change) -> PsfModel:
    """`change` is applied to the coefficients (..., ncoef) of one fibre."""
    core = psf.cores[number]
    series = getattr(core, name)
    coeff = series.coeff.copy()
    coeff[..., fibre, :] = change(coeff[..., fibre, :])
    cores = list(psf.cores)
    cores[number] = replace(core, **{name: replace(series, coeff=coeff)})
    return replace(psf, cores=tuple(cores))


def with_nan(coeff):
    coeff = coeff.copy()
    coeff.ravel()[-1] = np.nan
    return coeff


def on_one_trace(psf: PsfModel, fibre: int) -> PsfModel:
    return with_trace(psf, "x", fibre, slice(None), psf.x.coeff[fibre - 1 if fibre else 1])


def turning(psf: PsfModel, fibre: int) -> PsfModel:
    """y is good on the requested wavelengths (up to u = 0) and turns around at u = 0.4, within the padding."""
    slope = psf.y.coeff[fibre, 1]
    return with_trace(psf, "y", fibre, 2, -slope / (3 * 0.4))


# name: (the change to fibre i of a PSF, the message)
FAULTS = {
    "coefficient": (lambda p, i: with_core(p, 0, "gh", i, with_nan), "its PSF has values that are not finite"),
    "width": (lambda p, i: with_core(p, 0, "sigma_y", i, with_nan), "its PSF has values that are not finite"),
    "trace": (lambda p, i: with_trace(p, "y", i, 0, np.inf), "its PSF has values that are not finite"),
    "negative": (lambda p, i: with_core(p, 0, "sigma_x", i, np.negative), "its PSF has sigma -1."),
    "narrowing": (lambda p, i: with_core(p, 0, "sigma_y", i, lambda c: c * 0 + np.array([1.0, -1.7, 0, 0])),
                  "its PSF has sigma -"),
    "backwards": (lambda p, i: with_trace(p, "y", i, 2, 500.0), "its y is not monotonic in wavelength"),
    "far off": (lambda p, i: with_trace(p, "y", i, 2, 1e300), "its y is not monotonic in wavelength"),
    "turning": (turning, "its y is not monotonic in wavelength"),
    "off": (lambda p, i: with_trace(p, "x", i, 0, -40.0), "its trace is off the CCD"),
    "above": (lambda p, i: with_trace(p, "y", i, 0, 1e5), "its trace is off the CCD"),
    "double": (on_one_trace, "its trace is not "),
}


@pytest.mark.parametrize("family", oracle.FAMILIES)
def test_a_good_psf_passes_as_it_is(family):
    psf = fresh(family)
    dropped = check_psf(psf, WAVE)
    assert dropped == {}
    assert remaining(psf, dropped) is psf


@pytest.mark.parametrize("fibre", [0, 3, NFIBRE - 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_fibre_is_dropped_with_its_reason(fault, fibre):
    """Only that fibre (of two on one trace, the one on the other's trace); nothing else is affected."""
    spoil, reason = FAULTS[fault]
    psf = spoil(fresh(), fibre)
    dropped = check_psf(psf, WAVE)
    assert list(dropped) == [fibre]
    assert dropped[fibre].startswith(reason)
    left, others = remaining(psf, dropped), np.arange(NFIBRE) != fibre
    for name in ("x", "y"):
        np.testing.assert_array_equal(getattr(left, name).coeff, getattr(psf, name).coeff[others])
    for name in ("sigma_x", "sigma_y", "gh"):
        got, given = getattr(left.cores[0], name).coeff, getattr(psf.cores[0], name).coeff
        np.testing.assert_array_equal(got, given[..., others, :])
        assert np.isfinite(got).all()


def test_a_core_is_cut_off_at_some_width():
    """At -1 sigma it once counted as a table."""
    psf = with_core(fresh("gh2"), 0, "nsig", 2, lambda c: c * 0 + np.array([-1.0, *np.zeros(c.shape[-1] - 1)]))
    assert check_psf(psf, WAVE) == {2: "its core is cut off at -1 sigma"}


@pytest.mark.parametrize("name", ["amp", "core", "xscale", "yscale", "index", "nsig", "second"])
def test_every_series_is_looked_at(name):
    psf = fresh("gh2")
    if name == "nsig":
        psf = with_core(psf, 0, "nsig", 2, with_nan)
    elif name == "second":
        psf = with_core(psf, 1, "gh", 2, with_nan)
    else:
        series = getattr(psf.tail, name)
        coeff = series.coeff.copy()
        coeff[2, 1] = np.nan
        psf = replace(psf, tail=replace(psf.tail, **{name: replace(series, coeff=coeff)}))
    dropped = check_psf(psf, WAVE)
    assert dropped == {2: "its PSF has values that are not finite"}
    tail = remaining(psf, dropped).tail
    assert all(np.isfinite(getattr(tail, n).coeff).all() for n in ("amp", "core", "xscale", "yscale", "index"))


def at(*x: float) -> PsfModel:
    """A PSF with its traces at these x, on a CCD wide enough."""
    psf = fresh()
    coeff = psf.x.coeff.copy()
    coeff[:, 0] = x
    return replace(psf, x=replace(psf.x, coeff=coeff), shape=(360, 400))


@pytest.mark.parametrize(("x", "dropped"), [
    ((10, 17, 24, 31, 38, 45, 52), {}),
    ((10, 17, 300, 31, 38, 45, 52), {2: "not left of that of fibre 3"}),       # only the misplaced one
    ((300, 17, 24, 31, 38, 45, 52), {0: "not left of that of fibre 1"}),
    ((10, 17, 24, 31, 38, 45, 12), {6: "not right of that of fibre 5"}),
    ((10, 17, 17.4, 31, 38, 45, 52), {2: "not right of that of fibre 1"}),
    ((10, 17, 17.6, 31, 38, 45, 52), {}),
    ((10, 24, 24, 31, 38, 45, 52), {1: "not left of that of fibre 2"}),        # the one in its place is kept
    ((17, 17, 24, 31, 38, 45, 52), {0: "not left of that of fibre 1"}),
    ((10, 17, 24, 31, 38, 45, 45), {6: "not right of that of fibre 5"}),
    ((10, 17, 24, 31, 38, 52, 52), {5: "not left of that of fibre 6"}),
    ((52, 45, 38, 24, 24, 17, 10), {3: "not right of that of fibre 4"}),
    ((10, 24, 17, 31, 38, 45, 52), {1: "not left of that of fibre 2", 2: "not right of that of fibre 1"}),  # swapped
    ((10, 17, 38, 31, 24, 45, 52), {2: "not left of that of fibre 3", 4: "not right of that of fibre 3"}),
    ((10, 24, 17, 31, 38, 52, 45), {1: "not left of that of fibre 2", 2: "not right of that of fibre 1",
                                    5: "not left of that of fibre 6", 6: "not right of that of fibre 5"}),
    ((10, 200, 210, 31, 38, 45, 52), {1: "not left of that of fibre 3", 2: "not left of that of fibre 3"}),
])
def test_fibres_out_of_order(x, dropped):
    """As many as possible are kept, in order and apart."""
    got = check_psf(at(*x), WAVE)
    assert got == {i: f"its trace is {reason}" for i, reason in dropped.items()}


@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize(("i", "j"), [*permutations(range(6), 2)])
def test_a_fibre_with_the_trace_of_another_is_never_kept(i, j, turn):
    """Fibre i on the trace of j, and the two swapped; all others are kept."""
    x = np.linspace(10, 45, 6)[::turn, None]
    copied, swapped = x.copy(), x.copy()
    copied[i], swapped[[i, j]] = x[j], x[[j, i]]
    assert list(out_of_order(copied, np.arange(6))) == [i]
    assert list(out_of_order(swapped, np.arange(6))) == sorted([i, j])


def test_order_does_not_count_fibres_that_are_bad_already():
    psf = with_trace(at(10, 17, 300, 31, 38, 45, 52), "y", 2, 2, 500.0)
    assert check_psf(psf, WAVE) == {2: "its y is not monotonic in wavelength"}


def test_without_any_good_fibre_it_is_an_error():
    with pytest.raises(InputError, match=r"no fibre can be extracted \(fibre 0: its trace is off the CCD\)"):
        check_psf(moved(fresh(), 0.0, 4000.0, (360, 70)), WAVE)


@pytest.mark.parametrize("family", oracle.FAMILIES)
def test_what_remains_is_closed_up(family):
    psf = replace(fresh(family), bundle=np.array([0, 0, 0, 1, 1, 1, 2]))
    rest = remaining(psf, {1: "", 6: ""})
    assert rest.nfibre == 5
    assert rest.bundle.tolist() == [0, 0, 1, 1, 1]
    good = [0, 2, 3, 4, 5]
    np.testing.assert_array_equal(rest.x.coeff, psf.x.coeff[good])
    for series, given in zip(rest.series(), psf.series(), strict=True):
        np.testing.assert_array_equal(series.coeff, given.coeff[..., good, :])


@cache
def without(core: str) -> tuple[oracle.Case, Frame]:
    """A case with a PSF without fibre 3, and its frame."""
    case = oracle.make_case(remaining(fresh(), {3}), CONFIG, pad=60)
    return case, extracted(case.image, case.psf, replace(CONFIG, core=core))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_dropped_fibre_does_not_lose_the_frame(fault, core):
    """Its row has no data, with the bits that say so. The others are bitwise those with a PSF without it."""
    case, reference = without(core)
    frame = extracted(case.image, FAULTS[fault][0](fresh(), 3), replace(CONFIG, core=core))
    assert list(frame.notes["dropped"]) == [3]
    assert set(frame.mask[3]) == {SpecMask.SOMEBADPIX | SpecMask.ALLBADPIX | SpecMask.NODATA | SpecMask.BADFIBER}
    assert set(frame.status[3]) == {Status.DROPPED}
    for name in ("flux", "ivar", "resolution", "chi2pix"):
        np.testing.assert_array_equal(getattr(frame, name)[3], 0)
    assert_same_bits(frame, reference, np.arange(NFIBRE) != 3)


@cache
def broad(dropped: tuple[int, ...]) -> tuple[oracle.Case, Frame]:
    """A case with the light of the broad PSF's other fibres, and the oracle's result for exactly these."""
    config = ExtractConfig(wavelength=(6050.0, 6077.0, 1.5), tolerance=1e-13)
    case = oracle.make_case(remaining(fresh("gh2"), dropped), config, pad=60)
    return case, oracle.oracle_extract(case.image, case.psf, config, pad=60)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("dropped", [(3,), (2, 3), (0, 6), (1, 3, 5)])
def test_fibres_on_both_sides_of_a_dropped_one_are_coupled(dropped, core):
    """A broad PSF: spots of second and third neighbours overlap. Bounds as in test_against_oracle.py."""
    case, reference = broad(dropped)
    psf = fresh("gh2")
    for fibre in dropped:
        psf = FAULTS["coefficient"][0](psf, fibre)
    frame = extracted(case.image, psf, replace(case.config, core=core))
    assert tuple(frame.notes["dropped"]) == dropped
    kept = [i for i in range(NFIBRE) if i not in dropped]
    bound = max(1e-8, 100 * np.finfo(float).eps * reference.notes["cond"])
    assert np.abs((frame.flux[kept] - reference.flux) * np.sqrt(reference.ivar)).max() < bound
    assert relative(frame.ivar[kept], reference.ivar).max() < bound
    np.testing.assert_array_equal(frame.mask[kept], reference.mask)


@pytest.mark.parametrize("asked", [(1, 1), (1, 2), (0, 4)])
def test_a_range_of_fibres_may_be_dropped(asked):
    """The requested rows, whatever is in them; messages about bundles use the PSF's numbers."""
    case, psf = oracle.make_case(fresh(), CONFIG, pad=60), fresh()
    for fibre in (0, 1, 4):
        psf = FAULTS["coefficient"][0](psf, fibre)
    config = replace(CONFIG, specmin=asked[0], nspec=asked[1], bundlesize=2)
    frame = extracted(case.image, psf, replace(config, model=True))
    assert frame.fibres.tolist() == list(range(asked[0], sum(asked)))
    assert (frame.ivar > 0).all(axis=1).tolist() == [i not in (0, 1) for i in frame.fibres]
    assert list(frame.notes["bundles"]) == [2] * (sum(asked) > 2)
    assert (frame.model is not None) == (sum(asked) > 2)
    whole = extracted(case.image, psf, replace(config, specmin=0, nspec=None))
    assert list(whole.notes["bundles"]) == [2, 5, 6]
    assert_same_bits(frame, whole, other_rows=slice(asked[0], sum(asked)))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("fibre", [0, NFIBRE - 1])
def test_the_first_and_the_last_fibre_may_be_dropped(fibre, core):
    """Decay and coupling are measured on existing fibres."""
    psf = FAULTS["coefficient"][0](fresh(), fibre)
    case = oracle.make_case(remaining(fresh(), {fibre}), CONFIG, pad=60)
    frame = extracted(case.image, psf, replace(CONFIG, core=core))
    np.testing.assert_array_equal((frame.ivar > 0).all(axis=1), np.arange(NFIBRE) != fibre)


@pytest.mark.parametrize(("x", "dropped"), [
    ((52, 45, 38, 31, 24, 17, 10), {}),
    ((52, 45, 300, 31, 24, 17, 10), {2: "not left of that of fibre 1"}),
    ((5, 45, 38, 31, 24, 17, 10), {0: "not right of that of fibre 1"}),
    ((52, 45, 45.2, 31, 24, 17, 10), {2: "not left of that of fibre 1"}),
    ((52, 45, 38, 31, 24, 17, 50), {6: "not left of that of fibre 5"}),
])
def test_traces_may_run_either_way(x, dropped):
    """Numbers may ascend towards decreasing x: wrong places are judged against that order."""
    got = check_psf(at(*x), WAVE)
    assert got == {i: f"its trace is {reason}" for i, reason in dropped.items()}


@pytest.mark.parametrize("beyond", [-0.5, 0.5])
def test_a_fibre_off_the_ccd_is_so_in_a_mirror(beyond):
    """A stamp beyond the centre of the last column, or of the first. Limits of outliers are those of the fibres that
    are left: bins beside hits differed by 0.06 sigma in two passes."""
    psf = fresh()
    place = psf.shape[1] - 1 + psf.stamp[1] + beyond
    last = with_trace(psf, "x", NFIBRE - 1, slice(None), [place, *[0.0] * (psf.x.coeff.shape[-1] - 1)])
    off = {NFIBRE - 1: "its trace is off the CCD"} if beyond > 0 else {}
    assert check_psf(last, WAVE) == check_psf(turned(last, 1), WAVE) == off


@pytest.mark.parametrize("core", CORES)
def test_fibres_in_reverse_are_the_same_spectra(core):
    """The normal equations are the same except for the order of their rows: 1e-9 sigma for sums in another order."""
    psf = fresh()
    backwards = select(psf, range(NFIBRE - 1, -1, -1))
    case = oracle.make_case(psf, CONFIG)
    config = replace(CONFIG, core=core)
    frame, other = extracted(case.image, psf, config), extracted(case.image, backwards, config)
    assert not other.notes["dropped"]
    assert in_sigma(frame, other.flux[::-1]).max() < 1e-9
    assert relative(other.ivar[::-1], frame.ivar).max() < 1e-9
