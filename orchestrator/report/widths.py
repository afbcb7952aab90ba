"""The widths of texts in Helvetica, in thousandths of the size, as Adobe's font metrics have them."""

from __future__ import annotations

_ALPHABETS = (
    (" !", (278, 278)),
    ("\"#$%&'()*+,-./", (355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278)),
    ("0123456789", (556,) * 10),
    (":;<=>?@", (278, 278, 584, 584, 584, 556, 1015)),
    ("ABCDEFGHIJKLM", (667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833)),
    ("NOPQRSTUVWXYZ", (722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611)),
    ("[\\]^_`", (278, 278, 278, 469, 556, 333)),
    ("abcdefghijklm", (556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833)),
    ("nopqrstuvwxyz", (556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500)),
    ("{|}~±×°·–…", (334, 260, 334, 584, 584, 584, 400, 278, 556, 1000)),
)
_WIDTHS = {
    character: width for alphabet, widths in _ALPHABETS for character, width in zip(alphabet, widths, strict=True)
}
_OTHER = 600


def width_of(text: str, size: float) -> float:
    """The width of a text in points, in Helvetica of this size."""
    return sum(_WIDTHS.get(character, _OTHER) for character in text) * size / 1000
