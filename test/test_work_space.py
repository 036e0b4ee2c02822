"""Work space is kept from frame to frame if there are many, and given back after a single one.

No result may depend on its content when it is provided: NaN times 0 is NaN, so an element that is read before it is
written sooner or later reaches a flux, whatever it is multiplied by.
"""
from collections.abc import Callable
from dataclasses import fields
from math import prod

import numpy as np
import pytest

import oracle
from decorrelate.cases import make_bundle
from extraction import assert_same_bits, extracted
from gpu_extract.config import ExtractConfig
from gpu_extract.cpu_frame import CpuFrames
from gpu_extract.decorrelate.banded import decorrelate
from gpu_extract.kernels.arena import Arena, borrowed, forget
from gpu_extract.run import extract
from gpu_extract.simulate import SimConfig, simulate

FILLS = (np.nan, 1e300, -0.0)
GUARD = 256        # elements before and after each array: the widest band has rows of 2 x 16 + 1 vectors
# fibres, requested bins and their step, family of the PSF, masks
FRAMES = {"one": (1, 9, 0.8, "v3", False), "two": (2, 30, 0.8, "v3", True), "three": (3, 7, 0.8, "v3", True),
          "five": (5, 45, 0.8, "v3", True), "nine": (9, 27, 0.8, "v3", True), "wide": (5, 30, 1.5, "gh2", True),
          "tails": (3, 3, 1.1, "tails", False), "five fine": (5, 45, 0.7, "v3", True),
          "nine fine": (9, 27, 0.7, "v3", True), "wide short": (5, 19, 0.8, "gh2", True)}
# steps in pixels: a fibre's own half-band is 7 at the first, and 9, more than simd_schur.ROWS, at the other
BANDS = [(nfibre, nwave, mask, step) for nfibre, nwave in ((1, 3), (2, 7), (5, 9), (3, 103), (9, 33))
         for mask in ("clean", "block", "column", "dead") for step in (1.48, 1.1)]


@pytest.mark.parametrize("keep", [True, False])
def test_work_space_is_kept_only_on_request(keep: bool) -> None:
    made = simulate(SimConfig(camera="tiny"))
    forget()
    extract(made.image, made.psf, ExtractConfig((6030.0, 6050.0, 0.85)), backend=CpuFrames(keep=keep))
    with borrowed() as arena:
        assert bool(arena._blocks) == keep
    forget()


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Fill every array that is provided, and the memory on both sides of it, with one value."""
    take = Arena.take

    def use(fill: float) -> None:
        def patched(self: Arena, *shape: int) -> np.ndarray:
            whole = take(self, prod(shape) + 2 * GUARD)
            whole[:] = fill
            return whole[GUARD:GUARD + prod(shape)].reshape(shape)
        monkeypatch.setattr(Arena, "take", patched)
        forget()
    return use


@pytest.mark.parametrize("name", FRAMES)
def test_what_it_held_is_in_no_frame(name, filled):
    nfibre, nwave, step, family, masks = FRAMES[name]
    psf = oracle.make_psf(family, nfibre, shape=(210, int(7.3 * nfibre) + 20))
    config = ExtractConfig(wavelength=(6060.0, 6060.0 + step * (nwave - 1), step), model=True)
    case = oracle.make_case(psf, config, masks=masks)
    filled(0.0)
    frame = extracted(case.image, psf, config)
    for fill in FILLS:
        filled(fill)
        assert_same_bits(extracted(case.image, psf, config), frame)


@pytest.mark.parametrize(("nfibre", "nwave", "mask", "step"), BANDS)
def test_what_it_held_is_in_no_band(nfibre, nwave, mask, step, filled):
    bundle = make_bundle(nfibre, nwave, mask=mask, step=step)
    filled(0.0)
    found = decorrelate(bundle.normal, bundle.x, (0, nfibre), ndiag=3)
    for fill in FILLS:
        filled(fill)
        other = decorrelate(bundle.normal, bundle.x, (0, nfibre), ndiag=3)
        for field in fields(found):
            np.testing.assert_array_equal(getattr(other, field.name), getattr(found, field.name), field.name)
