"""How far wavelengths that were found from a described range can be trusted."""
import numpy as np

from gpu_extract.data import Array
from gpu_psf.series import legvander
from gpu_psf.start.identify import rows_of
from gpu_psf.start.lines import Pairs, Seen
from gpu_psf.start.search import brightest
from gpu_psf.start.solution import DEGREES, STIFF, Solution

NEAR = 1.5              # pixels within which a line of the list explains one that is seen
EXPLAINED = 0.9         # least share of the bright lines that are explained, of a solution that is not doubted
UNSURE = 1.0            # pixels of uncertainty that are told
LINE = 0.03             # pixels: least error of a line


def doubts(seen: Seen, lines: Array, solution: Solution, pairs: Pairs, ny: int) -> tuple[str, ...]:
    """Warnings, as sentences, about a solution; pairs: the lines that it goes through."""
    found = []
    share = explained(seen, lines, solution)
    if share < EXPLAINED:
        found.append(f"{share:.0%} of the bright lines that are seen are within {NEAR:g} pixels of one in the list, "
                     f"{EXPLAINED:.0%} or more usually are: the wavelengths may be wrong; give the whole list of the "
                     "lamp, or more lines, or --pairs")
    unsure = uncertainty(pairs, solution, ny)
    if unsure.max() > UNSURE:
        rows = np.flatnonzero(unsure > UNSURE)
        found.append(f"there are few lines, and wavelengths are uncertain by up to {unsure.max():.1f} pixels, by more "
                     f"than {UNSURE:g} in {len(rows)} of {ny} rows, most of all in row {int(unsure.argmax())}: give "
                     "lines there, or --psf")
    return tuple(found)


def explained(seen: Seen, lines: Array, solution: Solution) -> float:
    """The share of the brightest lines of the fibres that lie beside one of the list."""
    near, count = 0, 0
    for fibre, listed in enumerate(rows_of(solution, lines)):
        rows, on = brightest(seen, fibre), listed[np.isfinite(listed)]
        count += len(rows)
        if len(on):
            near += int(np.count_nonzero(np.abs(rows[:, np.newaxis] - on).min(axis=1) < NEAR))
    return near / max(count, 1)


def uncertainty(pairs: Pairs, solution: Solution, ny: int) -> Array:
    """What the lines of a typical fibre leave open in each row, pixels, (ny,): the standard deviation of a polynomial
    through them whose high orders are expected to be small."""
    fibres, count = np.unique(pairs.fibre, return_counts=True)
    rows = pairs.row[pairs.fibre == fibres[np.argsort(count)[len(count) // 2]]]
    of_line, expected = max(solution.rms, LINE), [np.inf, np.inf, np.inf, *(size * ny for size in STIFF[1])]
    basis, every = (legvander(2 * at / (ny - 1) - 1, DEGREES[0]) for at in (rows, np.arange(ny, dtype=float)))
    # an order without a line to tell it may be off by the whole CCD
    known = basis.T @ basis / of_line**2 + np.diag([1 / min(size, ny) ** 2 for size in expected])
    return np.asarray(np.sqrt(np.einsum("yi,ij,yj->y", every, np.linalg.inv(known), every)))
