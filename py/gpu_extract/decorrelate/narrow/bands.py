"""Memory for bands of one width, so that kernels can process many of them in one call."""
from gpu_extract.data import Array
from gpu_extract.kernels.arena import Arena
from gpu_extract.vectors import transpose


class Bands:
    """Memory for several bands of one width, between rows of zeros, in one array; kernels find them by number.

    bands: (count, rows, width), the first bin's row is padded(width - 1)
    rests, diagonals, shifts, edges: (count, nwave or more), a vector for each band. After the measurement they contain
        E x, S_jj, the change of the flux by the band, and the last elements in it, see narrow.simd_foresee
    """

    def __init__(self, arena: Arena, count: int, nwave: int, width: int):
        self.before, self.nwave, self.half, self._used = transpose.padded(width - 1), nwave, width - 1, 0
        self.bands = arena.take(count, self.before + nwave + transpose.LANES, width)
        self.rests, self.diagonals, self.shifts, self.edges = arena.take(4, count, nwave + transpose.LANES)
        self.bands[:, :self.before] = self.bands[:, self.before + nwave:] = 0.0
        self.rests[:, nwave:] = 0.0
        self._begins = address_of(self.bands), address_of(self.shifts), address_of(self.edges)

    def take(self) -> int:
        """The number of the next band."""
        self._used += 1
        return self._used - 1

    def band(self, place: int) -> Array:
        """(nwave, width), one of the bands."""
        return self.bands[place, self.before:self.before + self.nwave]

    def rest(self, place: int) -> Array:
        """(nwave,), its vector in `rests`."""
        return self.rests[place, :self.nwave]

    def at(self, place: int) -> tuple[int, int, int]:
        """The addresses of a band, of its shifts and of its edges."""
        (bands, shifts, edges), vectors = self._begins, 8 * place * self.shifts.shape[1]
        return (bands + 8 * (place * self.bands.shape[1] + self.before) * (self.half + 1), shifts + vectors,
                edges + vectors)


def address_of(array: Array) -> int:
    """The address of an array's first element. An address does not keep its array alive."""
    return array.__array_interface__["data"][0]
