"""A frame and bundles on the simulated device, with the kernels in CUDA C++ under the sanitizers. test_sanitized.py
runs it in a process that has their libraries loaded. It prints the digest of all results, for every filling of memory
and every order of lanes."""
import sys
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import host_text
import numpy as np
import pytest
from simulated_device import SimulatedDevice

from decorrelate.cases import make_bundle
from device import test_pass_kernels, test_teams, test_text_kernels
from device.device_case import CONFIG, host_core, struck, with_device
from device.pieces import decorrelate, shape_of
from device.test_sweeps import (
    test_listed_pairs_have_the_bits_of_all_pairs,
    test_numbers_of_a_band_are_those_of_its_matrix,
    test_poles_summed_on_their_way_up,
    test_the_preconditioner_solves_with_the_fibres_own_blocks,
)
from gpu_extract.config import ExtractConfig
from gpu_extract.device.cuda import lanes
from gpu_extract.device.cuda.text import eliminate
from gpu_extract.device.device_banded import BandedCore
from gpu_extract.device.frames import GpuFrames
from gpu_extract.run import extract, prepare
from gpu_extract.simulate.troubles import with_tail

INNER, NDIAG = slice(9, 52), 3


def digest(garbage: int, order: float) -> str:
    """Of a frame, of a bundle with chains of masked fibres, and of one whose fibres stay in the narrowest band, in
    tiles of 24 bins."""
    cases = [make_bundle(4, 60, mask=mask, wing=0.02, stamp=(7, 9), step=1.9) for mask in ("gap", "clean")]
    device = SimulatedDevice(garbage=garbage, order=order)
    found = decorrelate(device, BandedCore(device, shape_of(cases, INNER, NDIAG)), cases, INNER, NDIAG)
    frame = with_device(SimulatedDevice(garbage=garbage, order=order))
    arrays = [getattr(result, name) for result in (found, frame) for name in ("flux", "ivar", "resolution", "status")]
    arrays += [frame.mask, frame.chi2pix, frame.pixmask_fraction, frame.model]
    psf = with_tail(struck()[1], 0.0003)
    twice = ExtractConfig(CONFIG.wavelength, tolerance=1e-4, passes=2, any_psf=True)
    frame = extract(struck()[0], psf, twice, backend=GpuFrames(lambda: SimulatedDevice(garbage=garbage, order=order),
                                                               core=host_core(lambda: prepare(psf, twice))))
    arrays += [frame.flux, frame.ivar, frame.mask, frame.chi2pix, frame.notes["rejected"]]
    return sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


lanes.TILE = 24
if "--plain" not in sys.argv:
    host_text.MORE_FLAGS = host_text.SANITIZED
for garbage, order in ((0x00, 0.0), (0x7F, 0.382), (0xFF, 0.618)):
    print(digest(garbage, order), flush=True)
test_the_preconditioner_solves_with_the_fibres_own_blocks()
test_listed_pairs_have_the_bits_of_all_pairs(-1)
test_numbers_of_a_band_are_those_of_its_matrix()
test_poles_summed_on_their_way_up(4)
for half in (13, 29, 40):
    test_teams.test_a_team_has_the_numbers_of_one_thread(half)
    test_teams.test_definiteness_agrees_with_the_eigenvalues(half, 1 - 1e-6)
    test_teams.test_poles_give_solutions_and_diagonals_of_the_inverse(half, 5, 10.0, 17)
for counts in (False, True):
    with pytest.MonkeyPatch.context() as patched:
        test_pass_kernels.test_outliers_are_those_of_the_cpu(7, counts, patched)
test_pass_kernels.test_missed_light_is_weighted_as_on_the_cpu(7)
test_pass_kernels.test_rejected_pixels_are_packed_into_bits()
test_pass_kernels.test_smoothed_spectra_are_those_of_the_cpu()
test_pass_kernels.test_smooth_with_lines_that_all_fibres_show()
for dtype, bare in ((np.float32, False), (np.float64, False), (None, False), (None, True)):
    test_pass_kernels.test_weights_are_those_of_the_cpu(dtype, bare)
for most, hw in (((9, 12), 4), ((3, 5), 6)):
    with pytest.MonkeyPatch.context() as patched:
        test_text_kernels.test_couplings_are_the_products_of_whitened_spots(7, hw, most, patched)
test_text_kernels.test_chi2_and_model_of_pixels_are_their_formulas()
for distance, few in ((1, 2), (2, 2), (1, 5)):
    test_text_kernels.test_what_the_band_does_not_hold(distance, few)
test_text_kernels.test_medians_of_chi2_are_those_of_numpy()
test_text_kernels.test_products_with_couplings_between_fibres(5)
for dtype in (test_text_kernels.np.float32, test_text_kernels.np.float64):
    test_text_kernels.test_extremes_of_the_good_pixels_of_bundles(dtype)
for cores, tail, rows in ((((3, 5, 0), (0, 0, 0)), 0, 5), (((2, 3, 0), (4, 2, 1)), 1, 2)):
    test_text_kernels.test_spots_weights_and_right_hand_sides_are_their_definitions(cores, tail, rows)
for distance, wanted in ((1, 0), (2, 0), (1, eliminate.LISTED), (1, eliminate.WIDER)):
    test_text_kernels.test_products_and_shares_are_those_of_dense_matrices(distance, wanted)
