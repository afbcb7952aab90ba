"""What the texts of a column of a table stand for: numbers, truth values, missing values, categories, dates.

A column of numbers as texts is read as numbers. A column most of whose texts are numbers, but for units, other marks or
another way to write them, is no column of categories: `Problem` names its first odd text and the remedy.
docs/reference/data.md lists the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MISSING = (
    *("", "?", r"\N", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "#N/A N/A", "NaN", "nan", "-NaN", "-nan", "NaT"),
    *("NULL", "Null", "null", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Texts that are no value in any column, as pandas, R, databases and UCI's older data sets write them."""
MISSING_NUMBER = (*("None", "none", "NONE", "na", "-", "--", "–", "—", ".", ".."), *("#DIV/0!", "#VALUE!"))
"""Texts that are no value in a column whose other texts are numbers."""

MOSTLY = 0.5  # share of a column's texts that look like numbers, above which it is one of numbers
FEW = 3  # different numbers that such a column has at least

LOOKED_AT = 10_000  # different texts of a column from which its kind follows
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


def problem(counts: Mapping[str, int], *, decimal_commas: bool) -> Problem | None:
    """What is wrong with a column of texts that are not all numbers; None if they are categories. ``counts``: the
    different texts in order of their first rows, and how often each occurs. ``decimal_commas``: whether values are
    separated by semicolons or tabs, so that a comma may be a decimal one."""
    looked_at = list(counts)[:LOOKED_AT]
    rows = sum(counts[text] for text in looked_at)
    dates = [text for text in looked_at if DATE.fullmatch(text)]
    if sum(counts[text] for text in dates) > MOSTLY * rows:
        remedy = "write numbers, such as days or seconds since the first one, or name other columns"
        return Problem(dates[0], "a date or a time", remedy)
    forms = {text: DRESSED.fullmatch(text) for text in looked_at}
    alike = [text for text, form in forms.items() if form and not (form["word"] and _differ(forms))]
    share = sum(counts[text] for text in alike) / rows
    few = len(alike) < FEW and share < 1
    if share <= MOSTLY or few:
        return None
    with_commas = decimal_commas and any("," in text and DECIMAL_COMMA.fullmatch(text) for text in alike)
    read = DECIMAL_COMMA if with_commas else PLAIN
    odd = next((text for text in counts if not read.fullmatch(text)), None)
    if odd is None:
        return None
    if with_commas and PLAIN.fullmatch(odd):
        return Problem(odd, POINT, ONE_WAY)
    what, remedy = _oddity(odd, DRESSED.fullmatch(odd), commas_read=decimal_commas)
    return Problem(odd, what, remedy)


def _differ(forms: Mapping[str, re.Match[str] | None]) -> bool:
    """Whether words of different texts differ, so that they are no unit."""
    return len({form["word"] for form in forms.values() if form and form["word"]}) > 1


def _oddity(text: str, form: re.Match[str] | None, *, commas_read: bool) -> tuple[str, str]:
    """What an odd text among numbers is, and the remedy."""
    without = "write the numbers without it"
    if form is None:
        return "no number, and most values of the column are", "write a number, or leave the row out"
    if form["percent"]:
        return "a number with a percent sign", without
    if form["currency"] or form["after"]:
        return "a number with a currency", without
    if form["unit"] or form["word"]:
        return f"a number with the unit {form['unit'] or form['word']}", without
    if form["bound"]:
        return "a bound, and no number", "write a number, or leave the row out"
    if form["mark"]:
        return "a number with a mark", without
    if form["bracket"]:
        return "a number in brackets", "write a minus sign, or the numbers without brackets"
    if "," in form["core"] and not commas_read and len(re.findall("[.,]", form["core"])) == 1:
        return "a number with a comma", "write decimal points, or separate the values of the file by semicolons"
    if form["sign"] == "\u2212":
        return "a number with the minus sign of typography", "write it with a hyphen"
    if re.search("[.,'’ \u00a0\u202f\u2009]", form["core"]):
        return "a number with separators of thousands", "write the numbers without them"
    return "a number in another form", "write it as 1.5 or 1.5e-3"


def may_be_thousands(texts: Iterable[str]) -> bool:
    """Whether all points or commas of these numbers have three digits behind them, as separators of thousands have.
    0.125 has a decimal point."""
    separated = [text for text in texts if re.search("[.,]", text)]
    return all(re.fullmatch(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", text) for text in separated)


def is_identifier(name: str) -> bool:
    """Whether a column's name says that it identifies the rows: id, user_id, customerId, index, rownames, uuid, nr."""
    word = (
        r"(id|ids|idx|index|level_\d+|uuid|guid|rowid|row_?names?|row_?n(o|r|um|umber)?|row|primary_key|nr\.?|no\.?|n°"
        r"|s\.? ?no\.?|sl\.? ?no\.?|sr\.? ?no\.?|#)"
    )
    return (
        re.fullmatch(rf"(.*[_ .\-])?{word}", name, re.IGNORECASE) is not None
        or re.search("[a-z](Id|ID)$", name) is not None
    )


def has_no_name(name: str) -> bool:
    """Whether a column has no name of its own: that of an index, as pandas writes it and reads it again, or as R's
    readr names it."""
    unnamed = r"\s*|__index_.*|Unnamed: \d+.*|\.\.\.\d+"
    return re.fullmatch(unnamed, name) is not None


def shown(values: Any, most: int = 5) -> str:
    """The first of some values, and how many more there are."""
    texts = [str(value) if len(str(value)) <= 24 else f"{str(value)[:24]}…" for value in values[:most]]
    more = len(values) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")
