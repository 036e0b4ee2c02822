"""The offset of an image's light from the traces of a PSF, and a test whether it is nearer to other fibres' traces.

Traces that are off by a pitch or more also find light: that of their neighbours. Only fibres beside gaps and at the
ends find none. Therefore the light on all traces together is compared with that for larger shifts.
"""
import numpy as np

from gpu_extract.data import Array, PsfModel
from gpu_extract.errors import InputError
from gpu_extract.spots import centres

SAMPLES, FEW = 512, 128      # places along each trace: for small and for large shifts
PITCHES = 6.5                # range of the large shifts
NEAR = 0.75                  # pixels beyond the allowed shift that still belong to the same fibre
LOST = 1.5                   # light, in fibres, that a larger shift must gain: a trace beside the fibres is worth one


def light_on_traces(pix: Array, psf: PsfModel, shifts: Array, samples: int = SAMPLES) -> Array:
    """Mean light on the traces moved by each shift in x (pixels).

    Each row counts by its light above the row's median, capped at the brightest hundredth, so that no single line
    decides. All rows around a place are averaged, because distant fibres have an arc's lines in other rows.
    """
    y, x = centres(psf, (0, psf.nfibre), np.linspace(*psf.wavelength_range, samples))
    ny, nx = pix.shape
    above = np.clip(pix - np.median(pix, axis=1, keepdims=True), 0, None)
    above = np.minimum(above, np.quantile(above, 0.99))
    height = max(ny // samples, 1)
    above = above[:ny // height * height].reshape(-1, height, nx).mean(axis=1)
    on = (y >= 0) & (y <= ny - 1) & (x >= 0) & (x <= nx - 1)
    rows, place = np.minimum(np.rint(y[on]).astype(int) // height, len(above) - 1), x[on]
    light = []
    for shift in shifts:
        left = np.floor(place + shift).astype(int)
        part = place + shift - left
        fine = (left >= 0) & (left < nx - 1)
        at = rows[fine], left[fine]
        found = above[at] * (1 - part[fine]) + above[at[0], at[1] + 1] * part[fine]
        light.append(float(found.sum()) / max(len(place), 1))
    return np.array(light)


def check_beside(pix: Array, psf: PsfModel, most: float) -> None:
    """Raise InputError where the light of all fibres lies farther from the traces than `most` pixels in x.

    Orders of an echelle are not checked: their spacing varies, so that no shift brings all of them onto others.
    """
    if psf.own is not None or psf.nfibre < 2:
        return
    x = centres(psf, (0, psf.nfibre), np.array([sum(psf.wavelength_range) / 2]))[1, :, 0]
    pitch = float(np.median(np.abs(np.diff(x))))
    near, far = most + NEAR, most + PITCHES * pitch
    shifts = np.arange(-np.ceil(2 * far), np.ceil(2 * far) + 1) / 2
    light = light_on_traces(pix, psf, shifts, FEW)
    inside = np.abs(shifts) <= near
    best = int(light.argmax())
    if not inside[best] and light[best] > light[inside].max() * (1 + LOST / psf.nfibre):
        raise InputError(f"the light lies {shifts[best]:+.1f} pixels in x from the traces of {psf.name}, at most "
                         f"{most:g} are allowed: farther off, fibres would be taken for their neighbours; give a PSF "
                         "that is nearer, or a flat to gpu_psf start")
