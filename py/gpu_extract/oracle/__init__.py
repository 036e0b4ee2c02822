"""The slow and obvious extraction: what the fast code is judged against.

Everything here is done the way it is written down: a spot is the numerical
quadrature of the Gauss-Hermite density over each pixel, A is an explicit
matrix, icov is inverted, and the blocks of its inverse are taken to the power
-1/2. No bin is treated in a way of its own, however little its pixels tell;
where double precision cannot invert icov, bench/tools/exact.py can (python-flint).
It shares nothing with the fast code but the data types, so that a mistake
would have to be made twice. Memory and time grow with the square and the cube
of the number of bins of a bundle: meant for some 3000 of them.
"""
from gpu_extract.oracle.bundle import BundleOracle, FibreOracle, decorrelate, solve_bundle
from gpu_extract.oracle.frame import bundle_ranges, diagonals, mask_bits, oracle_extract, wavelength_grid
from gpu_extract.oracle.spots import Spot, design_matrix, evaluate, expected_image, spot

__all__ = ["BundleOracle", "FibreOracle", "Spot", "bundle_ranges", "decorrelate", "design_matrix",
           "diagonals", "evaluate", "expected_image", "mask_bits", "oracle_extract", "solve_bundle", "spot",
           "wavelength_grid"]
