"""The numbers of lanes of kernels, and how fibres are cut into them.

For recursions along wavelength a fibre is cut into tiles, with one lane each. A lane begins a halo before its tile,
which is as long as its matrix needs to forget where the lane began (doc/method-banded.md). The length of tiles is
chosen for speed; bits depend on it alone.
"""
from gpu_extract.device.cuda.text import eliminate, normal

TILE = 192      # bins of a tile: its lane, including halos, is ten times shorter than a fibre of 2456 bins
LONG = 2 * TILE      # for poles: there are lanes enough, and halos cost relatively less
SHORT = TILE // 2    # for solutions, which wait for memory: twice as many lanes wait at the same time
MOST = 17, 11    # bins of the other fibre and rows of a spot that a member of `couple` holds in its registers
BESIDE = 16     # most bins of the other fibre beyond those of a team's own
TERMS = 48      # most terms along x times rows that a lane of `make` holds in its registers
MIDDLES = 16    # numbers that a member of `find_middles` requests at once
PRODUCT = eliminate.PRODUCT_ROWS, eliminate.PRODUCT_COLUMNS      # of a lane of `product`, ...
SHARE = eliminate.SHARE_ROWS, eliminate.SHARE_COLUMNS      # ... and a lane of `share`


def tile_of(nwave: int, most: int = TILE) -> int:
    """Bins of a tile: at most `most`, in tiles of nearly equal length; more, if a fibre would otherwise have more tiles
    than partial sums (PARTS)."""
    return -(-nwave // min(-(-nwave // most), normal.PARTS))


def tiles_of(nwave: int, most: int = TILE) -> int:
    """The number of tiles of a fibre."""
    return -(-nwave // tile_of(nwave, most))


def places_of(nwave: int) -> int:
    """Places for a fibre's bins in the order of text/normal.h: whole sections."""
    return -(-nwave // normal.SECTION) * normal.SECTION


def couple_launches(hw: int, nd: int, ny: int) -> list[tuple[tuple[int, int, int, int], int, range]]:
    """For each launch of `couple` its numbers, the parts into which the bins of the other fibre are cut, and the
    distances of fibres. A fibre with itself has its own launch, with half the bins, if these need not be cut."""
    rows, parts = -(-ny // -(-ny // MOST[1])), -(-(2 * hw + 1) // MOST[0])
    of_pairs, own = (-(-(2 * hw + 1) // parts), rows, BESIDE, 0), hw < MOST[0]
    found = [((hw + 1, rows, BESIDE, 1), 1, range(1))] if own else []
    return [*found, (of_pairs, parts, range(int(own), nd))][:nd + 1 - own]


def make_rows(ny: int, terms: int) -> int:
    """Rows of a spot that a lane of `make` makes together, in nearly equal parts; terms: of its components, along x."""
    return -(-ny // -(-ny // max(TERMS // terms, 1)))


def beside(lanes: int, wanted: int) -> int:
    """How many of the fibres or pairs have lanes of their own (text/lanes.h: Chosen)."""
    return -(-lanes // eliminate.TURNS) if wanted == eliminate.LISTED else lanes


def block_lanes(pairs: int, nwave: int, columns: int, block: tuple[int, int], wanted: int = 0) -> int:
    """Lanes of `product` or `share` for this many pairs: blocks over rows of this many columns."""
    together = 1 if wanted == eliminate.LISTED else eliminate.BESIDE
    return (-(-beside(pairs, wanted) // together) * together
            * -(-nwave // block[0]) * -(-(columns + block[0] - 1) // block[1]))


def fours(nwave: int) -> int:
    """Lanes of `transpose`, `rest` and `mix` for a fibre, pair or vector."""
    return -(-nwave // eliminate.FOUR)
