"""How many lanes kernels take, and how fibres are cut for them.

For recursions along wavelength a fibre is cut into tiles, one lane each: a lane begins a halo before its tile, as long
as its matrix needs to forget where it began (doc/method-banded.md). How long a tile is, is a matter of speed alone; the
bits depend on it, and on nothing else.
"""
from gpu_extract.device.cuda.text import eliminate, normal

TILE = 192      # bins of a tile: a lane of 2456 bins is ten times shorter, with its halos
LONG = 2 * TILE      # of poles: so many are lanes enough, and halos count less then
SHORT = TILE // 2    # of solutions, which wait for memory: twice as many lanes do so side by side
MOST = 17, 11    # bins of the other fibre and rows of a spot that a member of `couple` has in its registers
BESIDE = 16     # most bins of the other fibre beyond those of a team's own
TERMS = 48      # most terms along x times rows that a lane of `make` has in its registers
MIDDLES = 16    # numbers that a member of `find_middles` asks for at once
PRODUCT = eliminate.PRODUCT_ROWS, eliminate.PRODUCT_COLUMNS      # the blocks that a lane of these makes
SHARE = eliminate.SHARE_ROWS, eliminate.SHARE_COLUMNS


def tile_of(nwave: int, most: int = TILE) -> int:
    """Bins of a tile: at most so many, as even as can be, or more, so that there are no more tiles than partial sums of
    a fibre (PARTS)."""
    return -(-nwave // min(-(-nwave // most), normal.PARTS))


def tiles_of(nwave: int, most: int = TILE) -> int:
    """How many tiles a fibre has."""
    return -(-nwave // tile_of(nwave, most))


def places_of(nwave: int) -> int:
    """Room for a fibre's bins in the order of text/normal.h: whole sections."""
    return -(-nwave // normal.SECTION) * normal.SECTION


def couple_launches(hw: int, nd: int, ny: int) -> list[tuple[tuple[int, int, int, int], int, range]]:
    """The numbers of `couple`, into how many parts the bins of the other fibre are cut, and the distances it is for: a
    fibre with itself has a launch of its own, of half the bins, where these are not cut; all as even as can be."""
    rows, parts = -(-ny // -(-ny // MOST[1])), -(-(2 * hw + 1) // MOST[0])
    of_pairs, own = (-(-(2 * hw + 1) // parts), rows, BESIDE, 0), hw < MOST[0]
    found = [((hw + 1, rows, BESIDE, 1), 1, range(1))] if own else []
    return [*found, (of_pairs, parts, range(int(own), nd))][:nd + 1 - own]


def make_rows(ny: int, terms: int) -> int:
    """Rows of a spot that a lane of `make` makes together, as even as can be; terms: of its cores, along x."""
    return -(-ny // -(-ny // max(TERMS // terms, 1)))


def beside(lanes: int, wanted: int) -> int:
    """Which of so many fibres or pairs have lanes of their own (text/lanes.h: Chosen)."""
    return -(-lanes // eliminate.TURNS) if wanted == eliminate.LISTED else lanes


def block_lanes(pairs: int, nwave: int, columns: int, block: tuple[int, int], wanted: int = 0) -> int:
    """Lanes of `product` or `share` for so many pairs: blocks over rows of so many columns."""
    together = 1 if wanted == eliminate.LISTED else eliminate.BESIDE
    return (-(-beside(pairs, wanted) // together) * together
            * -(-nwave // block[0]) * -(-(columns + block[0] - 1) // block[1]))


def fours(nwave: int) -> int:
    """Lanes of transpose, rest and mix for a fibre, pair or vector."""
    return -(-nwave // eliminate.FOUR)
