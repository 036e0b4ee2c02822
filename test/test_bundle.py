"""One bundle from pixels to spectra: the same bits for any division of work; the model image; fallback to the dense
core."""
from dataclasses import replace

import numpy as np
import pytest

import oracle
from extraction import BY_BIN, CORES, assert_same_bits, dense_normal, extracted, in_sigma, normals
from gpu_extract import bundle, plan
from gpu_extract.config import ExtractConfig
from gpu_extract.cpu_frame import CpuFrames
from gpu_extract.data import NOT_MEASURED, Decorrelated, Image, SpecMask, Status
from gpu_extract.decorrelate.poles import LADDER
from gpu_extract.run import prepare
from gpu_extract.simulate import SimConfig, simulate
from gpu_extract.simulate.config import Defects
from gpu_extract.spots import make_spots

CONFIG = ExtractConfig(wavelength=(6012.0, 6092.0, 0.85), model=True)


@pytest.fixture(scope="module")
def tiny():
    """Two bundles of five fibres; cosmics, bad columns, and 3 % of the pixels masked at random."""
    return simulate(SimConfig(camera="tiny", defects=Defects(masked_fraction=0.03)))


@pytest.fixture(scope="module", params=CORES)
def whole(request, tiny):
    """(settings, frame): one thread, tiles of the usual length."""
    config = replace(CONFIG, core=request.param)
    return config, extracted(tiny.image, tiny.psf, config)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("length", [7, 64, 150, 10**6])
def test_tiles_and_threads_change_no_bit(tiny, whole, length, threads):
    """Including the model image."""
    config, frame = whole
    other = extracted(tiny.image, tiny.psf, config, threads=threads, backend=CpuFrames(tile=length))
    assert_same_bits(other, frame)
    np.testing.assert_array_equal(other.model, frame.model)


def test_tiles_of_that_length_are_really_made(tiny, monkeypatch):
    """The length of the previous test reaches the code: 129 bins in tiles of 7."""
    asked = []
    monkeypatch.setattr(bundle, "tiles", lambda *sizes: asked.append(sizes) or plan.tiles(*sizes))
    extracted(tiny.image, tiny.psf, CONFIG, backend=CpuFrames(tile=7))
    assert set(asked) == {(129, 7)} and len(plan.tiles(129, 7)) == 19


def test_an_image_of_any_memory_layout_gives_the_same_bits(tiny, whole):
    """Read-only, cut out of a larger one, or ordered by columns."""
    config, frame = whole
    ny, nx = tiny.image.shape
    larger = np.zeros((2, ny + 3, nx + 5), dtype=np.float32)
    larger[:, 2:-1, 1:-4] = tiny.image.pix, tiny.image.ivar
    for pix, ivar in (larger[:, 2:-1, 1:-4], [np.asfortranarray(a) for a in (tiny.image.pix, tiny.image.ivar)]):
        pix.flags.writeable = ivar.flags.writeable = False
        assert_same_bits(extracted(Image(pix, ivar), tiny.psf, config), frame)


# ---- the model image ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("core", CORES)
def test_model_image_is_the_sum_over_overlapping_bundles(core):
    """Against A x with an explicit A and dense algebra, bundle by bundle, summed; bundles of 2, 3 and 1 fibres.

    Fibres of different bundles are 7.3 pixels apart here: their spots overlap. The bound is that of x, 1e-9 of a
    pixel's error, and 1e-13 of its light.
    """
    psf = oracle.make_psf("v3", 6, (360, 64), first_row=20, bundle=np.array([0, 0, 1, 1, 1, 2]))
    config = ExtractConfig(wavelength=(6060.0, 6080.0, 0.8), core=core, model=True)
    case = oracle.make_case(psf, config, pad=60)
    frame = extracted(case.image, psf, config)
    parts = []
    wave, _ = oracle.wavelength_grid(config, psf, frame.notes["pad"])
    for fibres in (range(2), range(2, 5), range(5, 6)):
        design = oracle.design_matrix(psf, fibres, wave, psf.shape)
        parts.append(oracle.solve_bundle(design, case.image, len(fibres), psferr=0.01).model)
    shared = sum((part > 0).astype(int) for part in parts) > 1
    assert shared.sum() > 1000, "the bundles do not overlap"
    wanted = sum(parts)
    assert (np.abs(frame.model - wanted) <= 1e-9 / np.sqrt(case.image.ivar) + 1e-12 * np.abs(wanted)).all()


def test_model_image_leaves_out_what_was_not_extracted(tiny):
    """It has only the requested bundles; without the setting there is none."""
    one = extracted(tiny.image, tiny.psf, replace(CONFIG, specmin=5, nspec=1))
    both = extracted(tiny.image, tiny.psf, CONFIG)
    assert one.model.shape == tiny.image.shape
    np.testing.assert_array_equal(one.model[:, :40], 0)
    np.testing.assert_array_equal(one.model[:, 70:], both.model[:, 70:])
    assert extracted(tiny.image, tiny.psf, replace(CONFIG, model=False)).model is None


def test_model_image_of_some_columns_is_made_of_the_fibres_that_touch_them(tiny, monkeypatch):
    """It has the bits of the whole model there; spots of other fibres are not made for it."""
    made = []
    monkeypatch.setattr(bundle, "make_spots", lambda psf, some, wave: made.append(some) or make_spots(psf, some, wave))
    whole = extracted(tiny.image, tiny.psf, CONFIG)
    assert {*made} == {(0, 5), (5, 10)}
    corner = np.floor(tiny.psf.x.coeff[:, 0]).astype(int) - tiny.psf.stamp[1] // 2
    for columns, fibres in (((0, corner[1] - 2), {(0, 1)}), ((corner[3] + 3, corner[6] + 3), {(2, 5), (5, 7)})):
        made.clear()
        some = extracted(tiny.image, tiny.psf, replace(CONFIG, model=columns))
        np.testing.assert_array_equal(some.model[:, slice(*columns)], whole.model[:, slice(*columns)])
        assert np.any(some.model != whole.model) and {*made} == fibres
        assert_same_bits(some, whole)


def test_model_image_follows_the_data(tiny):
    """chi of the pixels inside the requested range is 1, apart from structure of the simulated spectra within a bin."""
    image, frame = tiny.image, extracted(tiny.image, tiny.psf, CONFIG)
    inside = np.zeros(image.shape, dtype=bool)
    inside[40:150] = frame.model[40:150] > 20
    use = inside & (image.ivar > 0)
    chi = ((image.pix - frame.model) * np.sqrt(image.ivar))[use]
    assert use.sum() > 2000
    assert 0.7 < np.sqrt(np.mean(np.clip(chi, -5, 5) ** 2)) < 1.3


# ---- the fallback core ---------------------------------------------------------------------------------------------

def failing(fibre: int, facts: tuple[float, float] = (NOT_MEASURED, NOT_MEASURED)):
    """The banded core, failing for one fibre of each bundle, with these facts about it."""
    real = bundle.banded.decorrelate

    def decorrelate(normal, x, fibres, **named):
        out: Decorrelated = real(normal, x, fibres, **named)
        if fibres[0] <= fibre < fibres[1]:
            for name in ("flux", "ivar", "resolution"):
                getattr(out, name)[fibre - fibres[0]] = 0.0
            out.status[fibre - fibres[0]] = Status.FAILED
            out.facts[fibre - fibres[0]] = facts
        return out
    return decorrelate


def test_what_the_banded_core_gives_up_the_dense_core_does(tiny, monkeypatch):
    """That fibre has the bits and the status of the dense core; the others are unchanged."""
    usual = extracted(tiny.image, tiny.psf, CONFIG)
    dense = extracted(tiny.image, tiny.psf, replace(CONFIG, core="dense"))
    monkeypatch.setattr(bundle.banded, "decorrelate", failing(2))
    frame = extracted(tiny.image, tiny.psf, CONFIG, threads=2)
    for i in range(10):
        wanted = dense if i % 5 == 2 else usual
        for name in BY_BIN:
            if name != "status":
                np.testing.assert_array_equal(getattr(frame, name)[i], getattr(wanted, name)[i], err_msg=name)
    np.testing.assert_array_equal(frame.status[[2, 7]], np.where(frame.ivar[[2, 7]] > 0, Status.DENSE, Status.EMPTY))
    assert in_sigma(frame, usual.flux).max() < 1e-6


def test_asked_for_the_banded_core_alone_a_failure_is_nodata(tiny, monkeypatch):
    monkeypatch.setattr(bundle.banded, "decorrelate", failing(2))
    frame = extracted(tiny.image, tiny.psf, replace(CONFIG, core="banded"))
    np.testing.assert_array_equal(frame.status[[2, 7]], Status.FAILED)
    np.testing.assert_array_equal(frame.ivar[[2, 7]], 0)
    assert ((frame.mask[[2, 7]] & SpecMask.NODATA) > 0).all()
    assert not (frame.mask & SpecMask.BADFIBER).any()


@pytest.mark.parametrize("groups", [1, 2, 3, 5, 8])
def test_groups_of_the_dense_core_agree(tiny, groups):
    """Patches of one fibre or of several differ in which neighbours they omit, by 1e-8 sigma each."""
    config = replace(CONFIG, core="dense")
    frame = extracted(tiny.image, tiny.psf, config)
    other = extracted(tiny.image, tiny.psf, replace(config, nsubbundles=groups, nwavestep=33))
    assert in_sigma(other, frame.flux).max() < 2 * config.tolerance
    np.testing.assert_allclose(other.ivar, frame.ivar, rtol=1e-8)
    np.testing.assert_array_equal(other.mask, frame.mask)


# ---- facts ----------------------------------------------------------------------------------------------------------

FACTS = ("fibres", "iterations", "error", "halfband", "ownband", "neighbours", "coupling", "cond", "selfcheck")


def test_facts_of_a_bundle_are_those_of_its_normal_equations(tiny):
    """Compared with the whole icov with its diagonal scaled to 1: the coupling is its largest element between two
    fibres, to rounding; S, a Schur complement, has no larger condition number than icov itself."""
    frame = extracted(tiny.image, tiny.psf, CONFIG)
    job, made = normals(tiny.image, tiny.psf, CONFIG)
    for (lo, hi), normal in zip(job.plan.bundles, made, strict=True):
        notes = frame.notes["bundles"][lo]
        assert set(FACTS) < set(notes) and notes["fibres"] == hi - lo
        assert 0 < notes["ownband"] <= notes["halfband"] == normal.halfband
        matrix = dense_normal(normal)
        alive = normal.weight.ravel() > 0
        matrix = matrix[alive][:, alive]
        fibre = np.repeat(np.arange(hi - lo), normal.weight.shape[1])[alive]
        root = 1 / np.sqrt(matrix.diagonal())
        between = np.abs(matrix * root * root[:, None])[fibre[:, None] != fibre].max()
        assert notes["coupling"] == pytest.approx(between, rel=1e-13)
        spectrum = np.linalg.eigvalsh(matrix)
        assert 1 < notes["cond"] <= max(LADDER[0][1], 6.4 * spectrum[-1] / spectrum[0])
        assert 0 <= notes["selfcheck"] <= bundle.banded.AGREEMENT


@pytest.mark.parametrize("threads", [2, 5])
def test_facts_do_not_depend_on_threads(tiny, threads):
    frame, other = (extracted(tiny.image, tiny.psf, CONFIG, threads=n) for n in (1, threads))
    assert frame.notes["bundles"] == other.notes["bundles"]


def test_facts_of_fibres_that_the_banded_core_gave_up_are_not_its(tiny, monkeypatch):
    """The facts are the largest of the other fibres; the dense core alone measures none."""
    monkeypatch.setattr(bundle.banded, "decorrelate", failing(2, facts=(1e300, np.inf)))
    notes = extracted(tiny.image, tiny.psf, CONFIG).notes["bundles"][0]
    assert 1 < notes["cond"] < 1e12 and 0 <= notes["selfcheck"] <= bundle.banded.AGREEMENT
    notes = extracted(tiny.image, tiny.psf, replace(CONFIG, core="dense")).notes["bundles"][0]
    assert (notes["cond"], notes["selfcheck"]) == (NOT_MEASURED, NOT_MEASURED) and notes["coupling"] > 0


# ---- pieces ---------------------------------------------------------------------------------------------------------

def test_corners_of_the_stored_diagonals_are_empty():
    """Elements whose row is beyond the ends of the requested range: a dia_matrix does not show them."""
    for ndiag, nwave in ((2, 6), (5, 4), (0, 3)):
        resolution = np.ones((1, 2 * ndiag + 1, nwave))
        bundle.clear_corners(resolution)
        for k in range(2 * ndiag + 1):
            for j in range(nwave):
                assert resolution[0, k, j] == (0 <= j - ndiag + k < nwave)


def test_work_is_done_once_on_any_number_of_threads(tiny):
    for threads in (1, 2, 5):
        done: list[int] = []
        prepare(tiny.psf, CONFIG, threads).map(done.append, range(20))
        assert sorted(done) == list(range(20))


def test_an_error_on_a_thread_is_an_error(tiny):
    with pytest.raises(ZeroDivisionError):
        prepare(tiny.psf, CONFIG, 2).map(lambda n: 1 // n, [1, 0, 2])


def test_the_largest_ivar_is_known_only_where_odd_pixels_were_looked_for(tiny):
    """A spot with pixels outside the searched columns may have any ivar."""
    job = replace(prepare(tiny.psf, CONFIG), most_ivar=3.0)
    place = bundle.locate(tiny.image, job, job.plan.bundles[0])
    assert place.most_ivar == 3.0
    x0, width = place.spots.x0, tiny.image.shape[1]
    first, last = max(int(x0.min()), 0), min(int(x0.max()) + tiny.psf.stamp[1], width)
    for looked, most in ((slice(first, last), 3.0), (slice(first + 1, last), np.inf), (slice(first, last - 1), np.inf)):
        assert bundle._most_ivar(job, place.spots, looked, width) == most
    assert bundle.locate(tiny.image, replace(job, most_ivar=None), job.plan.bundles[0]).most_ivar == np.inf
