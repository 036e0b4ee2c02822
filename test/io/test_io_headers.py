"""Header cards: values and comments survive, structure does not; what FITS cannot hold breaks no write."""

import io
import math

import numpy as np
from astropy.io import fits

from gpu_extract.data import Card
from gpu_extract.io.headers import cards_of, header_of, merged


def there_and_back(cards):
    """Through the bytes of a real file."""
    buffer = io.BytesIO()
    fits.PrimaryHDU(header=header_of(cards)).writeto(buffer)
    with fits.open(io.BytesIO(buffer.getvalue())) as hdus:
        return [c for c in cards_of(hdus[0].header) if c.key != "EXTEND"]


def test_values_and_comments_survive():
    cards = [
        Card("EXPTIME", 900.5, "seconds"),
        Card("EXPID", 12345),
        Card("SIM", True, "yes"),
        Card("NAME", "it's"),
        Card("EMPTY", None, "nothing known"),
        Card("HISTORY", "line one"),
        Card("COMMENT", "words"),
        Card("LONG", "x" * 200),
        Card("LONGKEYWORD", 3, "ten letters"),
        Card("TINY", 1.25e-300),
    ]
    assert there_and_back(cards) == cards


def test_structural_cards_are_left_out_both_ways():
    header = fits.ImageHDU(np.zeros((3, 4), np.uint16), name="A").header
    header["KEEP"] = 1
    assert cards_of(header) == (Card("KEEP", 1),)
    names = ("BITPIX", "NAXIS", "NAXIS1", "TFORM3", "BZERO", "EXTNAME", "CHECKSUM", "DATASUM")
    assert list(header_of([Card(n, 1) for n in names] + [Card("KEEP", 2)])) == ["KEEP"]


def test_what_fits_cannot_hold_is_written_as_text():
    cards = there_and_back(
        [
            Card("BAD", math.nan),
            Card("INF", math.inf),
            Card("PATH", "/data/größe"),
            Card("NP", np.float32(0.5)),
            Card("NPI", np.int64(7)),
            Card("TUPLE", (1, 2)),
        ]
    )
    assert {c.key: c.value for c in cards} == {
        "BAD": "nan",
        "INF": "inf",
        "PATH": "/data/gr\\xf6\\xdfe",
        "NP": 0.5,
        "NPI": 7,
        "TUPLE": "(1, 2)",
    }


def test_comments_that_do_not_fit_are_cut_in_silence():
    (card,) = there_and_back([Card("KEY", 1, "c" * 100)])
    assert card.value == 1 and 20 < len(card.comment) < 80 and set(card.comment) == {"c"}
    (card,) = there_and_back([Card("KEY", "s" * 60, "d" * 40)])
    assert card.value == "s" * 60


def test_cards_that_cannot_be_parsed_are_left_out():
    block = b"".join(
        c.ljust(80)
        for c in (
            b"SIMPLE  =                    T",
            b"BITPIX  =                    8",
            b"NAXIS   =                    0",
            b"GOOD    =                    1",
            b"BAD     = 'unfinished",
            b"END",
        )
    )
    with fits.open(io.BytesIO(block.ljust(2880))) as hdus:
        assert Card("GOOD", 1) in cards_of(hdus[0].header)


def test_of_several_cards_of_one_keyword_the_first_counts():
    """As for astropy's users; frames once had the last one, and CAMERA was taken from the first."""
    header = fits.Header([("A", 1), ("HISTORY", "x"), ("B", 5)])
    for card in (("A", 2), ("HISTORY", "x")):
        header.append(card, end=True)
    assert [(card.key, card.value) for card in cards_of(header)] == [
        ("A", header["A"]), ("HISTORY", "x"), ("B", 5), ("HISTORY", "x")]
    assert header.count("A") == 2 and header["A"] == 1


def test_merging_replaces_in_place_and_keeps_history():
    one = [Card("A", 1), Card("HISTORY", "x"), Card("B", 2)]
    two = [Card("HISTORY", "x"), Card("A", 3, "new")]
    assert merged(one, two) == (Card("A", 3, "new"), Card("HISTORY", "x"), Card("B", 2), Card("HISTORY", "x"))


def test_a_card_whose_name_no_file_can_have_is_left_out():
    """A flipped bit in the name of a blank card or a comment."""
    header = fits.Header([("KEEP", 1)])
    header.append(fits.Card.fromstring("COMME\x17T = 3"))
    header.append(fits.Card.fromstring("HIERARCH A B = 2"))
    assert cards_of(header) == (Card("KEEP", 1), Card("A B", 2))
