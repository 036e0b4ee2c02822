"""What is told of a fit, in words."""
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu_extract.data import Array
from gpu_psf.status import Status

MOST = 5            # wavelengths that are told


def words_on(part: Mapping[str, Any]) -> str:
    """One line about a bundle."""
    if part["reason"]:
        return f"not fitted: {part['reason']}"
    odd = int((np.asarray(part["status"]) != Status.FITTED).sum())
    return (f"{part['lines']} lines, {part['nspot']} spots, chi2 {part['chi2'] / (part['npix'] - part['npar']):.3f}"
            + (f", {odd} fibres with few lines or none" if odd else "")
            + left_out(part["unlisted"], part["hot"], len(part["misplaced"]), named(part["misplaced"])))


def named(waves: Array) -> str:
    """The first of some wavelengths."""
    return ", ".join(f"{wave:.2f}" for wave in waves[:MOST]) + (", ..." if len(waves) > MOST else "")


def left_out(unlisted: int, hot: int, misplaced: int, which: str = "", most: str = "") -> str:
    """Words on what a fit left out, "" if nothing; misplaced: a number of lines, which: and their wavelengths, if they
    are to be told; most: prefix of numbers of lines, such as "up to "."""
    words = [f"lines that are not in the list ({most}{unlisted})"] if unlisted else []
    words += [f"lines that are not where the list has them ({which or f'{most}{misplaced}'})"] if misplaced else []
    words += [f"hot columns ({hot})"] if hot else []
    return f", left out: {', '.join(words)}" if words else ""
