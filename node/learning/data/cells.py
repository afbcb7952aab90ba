"""What the texts of a column of a table stand for: numbers, truth values, missing values, categories, dates.

A column of numbers as texts is read as numbers. If most texts of a column are numbers, but for units, other marks or
another way to write them, it is no column of categories: `Problem` names its first odd text and the remedy.
docs/reference/data.md lists the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_BLANK = ("", "?", r"\N")
_NOT_AVAILABLE = ("NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "#N/A N/A")
_NOT_A_NUMBER = ("NaN", "nan", "-NaN", "-nan", "NaT")
_NULL = ("NULL", "Null", "null")
_OF_VISUAL_C = ("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN")
MISSING = _BLANK + _NOT_AVAILABLE + _NOT_A_NUMBER + _NULL + _OF_VISUAL_C
"""Texts that are no value in any column, as pandas, R, databases and UCI's older data sets write them."""
_NONE = ("None", "none", "NONE", "na")
_DASHES_AND_POINTS = ("-", "--", "–", "—", ".", "..")
_ERRORS_OF_EXCEL = ("#DIV/0!", "#VALUE!")
MISSING_NUMBER = _NONE + _DASHES_AND_POINTS + _ERRORS_OF_EXCEL
"""Texts that are no value in a column of numbers."""

MOSTLY = 0.5  # share of a column's texts that look like numbers, above which it is one of numbers
FEW = 3  # different numbers that such a column has at least

LOOKED_AT = 10_000  # different texts of a column from which its kind follows
LONGEST_SHOWN = 24  # characters of a value in a message
PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d*,\d+)([eE][+-]?\d+)?", re.ASCII)
_UNITS = (
    "kg|g|mg|µg|ug|t|lbs?|oz|km|m|cm|mm|µm|um|nm|mi|miles|ft|in|s|sec|ms|min|h|hr|hrs|hours?|days?|years?|yrs?|"
    "km/h|kmh|mph|m/s|°C|°F|°|C|F|K|k|M|Pa|hPa|kPa|bar|V|mV|A|mA|W|kW|MW|kWh|Hz|kHz|MHz|GHz|l|L|ml|mL|cl|mol|mmol|"
    "ppm|ppb|bps|kbit|Mbit|B|kB|KB|MB|GB|TB|hp|PS|rpm|EUR|USD|GBP|CHF|Euro|m²|m2|m³|m3"
)
_CURRENCY = r"[$€£¥₹₽]|EUR|USD|GBP|CHF|US\$|R\$|kr|zł"
_SPACES = "[ \u00a0\u202f\u2009]"
_SIGN = "[+\u2212-]"
_CORE = rf"(?:\d{{1,3}}(?:(?:{_SPACES}|[.,'’])\d{{3}})+(?:[.,]\d+)?|\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE]{_SIGN}?\d+)?"
DRESSED = re.compile(
    rf"(?P<bound>[<>≤≥≈~=]+)?{_SPACES}*(?P<bracket>\()?(?P<sign>{_SIGN})?(?P<currency>{_CURRENCY})?{_SPACES}*{_SIGN}?"
    rf"(?P<core>{_CORE})(?:(?P<percent>{_SPACES}*[%‰])|{_SPACES}*(?P<after>{_CURRENCY})|{_SPACES}*(?P<unit>{_UNITS})"
    rf"|{_SPACES}+(?P<word>[A-Za-zµ°/²³]+)|(?P<mark>[*†+?]+))?\)?",
    re.ASCII,
)
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp]\.?[Mm]\.?)?"
_MONTH = r"(jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*\.?"
DATE = re.compile(
    rf"(\d{{4}}([-/.])\d{{1,2}}\2\d{{1,2}}|\d{{1,2}}([-/.])\d{{1,2}}\3(\d{{4}}|\d{{2}})"
    rf"|\d{{1,2}}[. -]*{_MONTH}[ -]*\d{{2,4}}|{_MONTH} \d{{1,2}},? \d{{4}})"
    rf"([T ]+{_CLOCK})?( ?(Z|UTC|GMT|[+-]\d{{2}}(:?\d{{2}})?))?|{_CLOCK}",
    re.IGNORECASE,
)


POINT = "a number with a point, and others have decimal commas"
COMMA = "a number with a comma, and others have decimal points"
EITHER = "a number with a comma or point that may be a decimal one or separate thousands"
ONE_WAY = "write all numbers with decimal points and without separators of thousands"
WITH_COMMAS = "write decimal points, no separators of thousands, and commas between the values of the file"


@dataclass(frozen=True)
class Problem:
    """A text of a column that cannot be used, what the column or the text is, and the remedy."""

    text: str
    what: str
    remedy: str


def problem(
    counts: Mapping[str, int],
    *,
    decimal_commas: bool,
) -> Problem | None:
    """What is wrong with a column of texts that are not all numbers; None if they are categories. ``counts``: the
    different texts in order of their first rows, and how often each occurs. ``decimal_commas``: whether values are
    separated by semicolons or tabs, so that a comma may be a decimal one."""
    looked_at = list(counts)[:LOOKED_AT]
    rows = _rows_of(looked_at, counts)
    dates = [text for text in looked_at if DATE.fullmatch(text)]
    rows_of_dates = _rows_of(dates, counts)
    if rows_of_dates > MOSTLY * rows:
        remedy = "write numbers, such as days or seconds since the first one, or name other columns"
        return Problem(dates[0], "a date or a time", remedy)
    alike = _like_numbers(looked_at)
    share = _rows_of(alike, counts) / rows
    few = len(alike) < FEW and share < 1
    if share <= MOSTLY or few:
        return None
    with_commas = decimal_commas and _any_decimal_comma(alike)
    if with_commas:
        pattern = DECIMAL_COMMA
    else:
        pattern = PLAIN
    odd = _first_without_match(counts, pattern)
    if odd is None:
        return None
    if with_commas and PLAIN.fullmatch(odd):
        return Problem(odd, POINT, ONE_WAY)
    form = DRESSED.fullmatch(odd)
    what, remedy = _oddity(odd, form, commas_read=decimal_commas)
    return Problem(odd, what, remedy)


def _rows_of(texts: Iterable[str], counts: Mapping[str, int]) -> int:
    """The rows that have one of these different texts."""
    return sum(counts[text] for text in texts)


def _like_numbers(texts: Iterable[str]) -> list[str]:
    """The texts that are numbers but for units, marks and other ways to write them."""
    forms = {text: DRESSED.fullmatch(text) for text in texts}
    words_differ = _differ(forms)
    alike = []
    for text, form in forms.items():
        if form is None:
            continue
        if form["word"] and words_differ:
            continue
        alike.append(text)
    return alike


def _any_decimal_comma(texts: Iterable[str]) -> bool:
    for text in texts:
        if "," in text and DECIMAL_COMMA.fullmatch(text):
            return True
    return False


def _first_without_match(
    texts: Iterable[str],
    pattern: re.Pattern[str],
) -> str | None:
    for text in texts:
        if not pattern.fullmatch(text):
            return text
    return None


def _differ(forms: Mapping[str, re.Match[str] | None]) -> bool:
    """Whether words of different texts differ, so that they are no unit."""
    words = set[str]()
    for form in forms.values():
        if form and form["word"]:
            words.add(form["word"])
    return len(words) > 1


def _oddity(
    text: str,
    form: re.Match[str] | None,
    *,
    commas_read: bool,
) -> tuple[str, str]:
    """What an odd text among numbers is, and the remedy."""
    without = "write the numbers without it"
    if form is None:
        return "no number, and most values of the column are", "write a number, or leave the row out"
    if form["percent"]:
        return "a number with a percent sign", without
    if form["currency"] or form["after"]:
        return "a number with a currency", without
    unit = form["unit"] or form["word"]
    if unit:
        return f"a number with the unit {unit}", without
    if form["bound"]:
        return "a bound, and no number", "write a number, or leave the row out"
    if form["mark"]:
        return "a number with a mark", without
    if form["bracket"]:
        return "a number in brackets", "write a minus sign, or the numbers without brackets"
    separators = re.findall("[.,]", form["core"])
    one_comma = separators == [","]
    if one_comma and not commas_read:
        return "a number with a comma", "write decimal points, or separate the values of the file by semicolons"
    if form["sign"] == "\u2212":
        return "a number with the minus sign of typography", "write it with a hyphen"
    if re.search("[.,'’ \u00a0\u202f\u2009]", form["core"]):
        return "a number with separators of thousands", "write the numbers without them"
    return "a number in another form", "write it as 1.5 or 1.5e-3"


def may_be_thousands(texts: Iterable[str]) -> bool:
    """Whether all points or commas of these numbers have three digits behind them, as separators of thousands have.
    0.125 has a decimal point."""
    groups_of_three = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
    for text in texts:
        separated = re.search("[.,]", text)
        if separated and not groups_of_three.fullmatch(text):
            return False
    return True


def is_identifier(name: str) -> bool:
    """Whether a column's name says that it identifies the rows: id, user_id, customerId, index, rownames, uuid, nr."""
    word = (
        r"(id|ids|idx|index|level_\d+|uuid|guid|rowid|row_?names?|row_?n(o|r|um|umber)?|row|primary_key|nr\.?|no\.?|n°"
        r"|s\.? ?no\.?|sl\.? ?no\.?|sr\.? ?no\.?|#)"
    )
    ends_with_word = re.fullmatch(rf"(.*[_ .\-])?{word}", name, re.IGNORECASE)
    if ends_with_word:
        return True
    return re.search("[a-z](Id|ID)$", name) is not None


def has_no_name(name: str) -> bool:
    """Whether a column has no name of its own: that of an index, as pandas writes it and reads it again, or as R's
    readr names it."""
    unnamed = r"\s*|__index_.*|Unnamed: \d+.*|\.\.\.\d+"
    return re.fullmatch(unnamed, name) is not None


def shown(values: Any, most: int = 5) -> str:
    """The first of some values, and how many more there are."""
    texts = [_shortened(str(value)) for value in values[:most]]
    listed = ", ".join(texts)
    more = len(values) - len(texts)
    if more:
        return f"{listed} and {more} more"
    return listed


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_SHOWN:
        return text
    return f"{text[:LONGEST_SHOWN]}…"
