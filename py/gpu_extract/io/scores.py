"""Scores of raw spectra: one number per fibre, over a fixed wavelength range per camera arm.

The definitions are those that users of survey frames know (desispec.specscore, suffix RAW): the flux
per Angstrom is taken as it is for the sum, and divided by the bin width once more for the median. Odd,
but the numbers are compared across years of data.
"""
import numpy as np

from gpu_extract.checks.sense import medians
from gpu_extract.data import Array

RANGES = {"B": (4000.0, 5800.0), "R": (5800.0, 7600.0), "Z": (7600.0, 9800.0)}


def band_of(wave: Array) -> str:
    """The camera arm of a wavelength grid (Angstrom): B, R or Z, by its mean."""
    mean = float(np.mean(wave))
    if mean <= RANGES["B"][1]:
        return "B"
    return "Z" if mean >= RANGES["Z"][0] else "R"


def raw_scores(wave: Array, flux: np.ndarray, ivar: np.ndarray) -> dict[str, tuple[Array, str]]:
    """Column name -> (score per fibre, what it is).

    wave: (nwave,) Angstrom; flux, ivar: (nspec, nwave), electron/Angstrom and its inverse variance

    Empty where the grid has no bin within the arm's range: there is nothing to score then.
    """
    band = band_of(wave)
    low, high = RANGES[band]
    scored = np.nonzero((wave >= low) & (wave < high))[0]
    if len(scored) == 0 or len(wave) < 2:
        return {}
    inside = slice(scored[0], scored[-1] + 1)
    width = np.gradient(wave)[inside]
    counts = flux[:, inside].astype(np.float64)
    error = np.sqrt(ivar[:, inside].astype(np.float64).clip(min=0))     # inverse error
    where = f"in wave. range {low:.0f},{high:.0f}A"
    return {
        f"SUM_RAW_COUNT_{band}": (counts.sum(axis=1), f"sum counts {where}"),
        f"MEDIAN_RAW_COUNT_{band}": (medians(counts / width), f"median counts/A {where}"),
        f"MEDIAN_RAW_SNR_{band}": (medians(error * counts / np.sqrt(width)),
                                   f"median SNR/sqrt(A) {where}"),
    }
