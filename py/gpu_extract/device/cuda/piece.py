"""A piece of a frame on the device: bundles of equal shape, side by side."""
from dataclasses import dataclass

from gpu_extract.device.cuda.seam import DeviceArray


@dataclass(frozen=True)
class PieceShape:
    """The integers that shape a piece.

    bundles: their number, each of `nfibre` fibres: fibre f of the piece belongs to bundle f // nfibre
    nd, hw: fibre offsets and half-band of icov; nwave: bins that are solved for; first, last: the range that is kept
    ndiag: diagonals of the resolution on each side
    """

    bundles: int
    nfibre: int
    nd: int
    hw: int
    nwave: int
    first: int
    last: int
    ndiag: int

    @property
    def fibres(self) -> int:
        """Fibres of all bundles."""
        return self.bundles * self.nfibre

    @property
    def nout(self) -> int:
        """Bins that are kept."""
        return self.last - self.first


@dataclass(frozen=True)
class PieceNormal:
    """Normal equations and their solution, wavelength fastest.

    icov: (fibres, nd, 2 hw + 1, nwave) float64: icov[f, d, hw + k, j] couples bin (f, j) with (f + d, j + k); 0 if that
        bin does not exist or is in another bundle. Regularised; bins of weight 0 hold zeros
    weight, x: (fibres, nwave) float64; x is 0 where weight is
    low, halo: factors of the fibres' own blocks, and for each tile how many rows before it they begin (text/sweeps.h)
    """

    icov: DeviceArray
    weight: DeviceArray
    x: DeviceArray
    low: DeviceArray
    halo: DeviceArray


@dataclass(frozen=True)
class PieceOut:
    """The result of a core, as data.Decorrelated: flux, ivar (fibres, nout) and resolution (fibres, 2 ndiag + 1, nout)
    float64, status (fibres, nout) int8."""

    flux: DeviceArray
    ivar: DeviceArray
    resolution: DeviceArray
    status: DeviceArray
