"""The conversion of ADU to electrons."""
from dataclasses import dataclass

import numpy as np

from gpu_extract.data import Array
from gpu_extract.errors import InputError


@dataclass(frozen=True)
class Detector:
    """The conversion of ADU to electrons.

    gain: electron per ADU; read_noise: electron, of the typical pixel
    saturation: ADU from which on a pixel is masked
    noise: read noise of each pixel as read, electron, (ny, nx), where it is not that of the typical one
    """

    gain: float
    read_noise: float
    saturation: float = 65000.0
    noise: Array | None = None

    def __post_init__(self) -> None:
        for name in ("gain", "read_noise", "saturation"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}, must be a number above 0")
