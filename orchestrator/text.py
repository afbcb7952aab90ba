"""Rounded quantities for people: in checks, reports, comparisons and the live view.

This module's output is not meant to be parsed. ``netem.units`` writes exact values that can be parsed.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable

FRACTIONS = ("accuracy", "f1", "macro_f1", "balanced_accuracy")  # metrics that are fractions
RECALL = "recall_"  # the name of the recall of a class starts with it
_WITHOUT_SIGN = [
    *range(0x80, 0xA0),  # control characters without a sign of their own
    *range(0x202A, 0x202F),  # changes of the direction of writing
    *range(0x2066, 0x206A),
]
_SIGNS = dict.fromkeys(_WITHOUT_SIGN, 0xFFFD)
for _code in range(0x20):
    if chr(_code) not in "\t\n":
        _SIGNS[_code] = 0x2400 + _code
_SIGNS[0x7F] = 0x2421


def visible(text: str) -> str:
    """A text with signs (␛ for escape) in place of the characters that a terminal obeys: control characters (ISO 6429)
    and changes of the direction of writing. Its length stays."""
    return text.translate(_SIGNS)


def duration(seconds: float | None) -> str:
    """Seconds as "0.31 ms", "55 ms", "12.3 s", "4 min 12 s" or "1 h 03 min"; "–" for None."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds == 0:
        return "0 s"
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < 1:
        return f"{_digits(seconds * 1e3)} ms"
    if seconds < 99.95:
        return f"{_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def rate(bits: float | None) -> str:
    """Bits per second in the scenario's units: "48.7 mbit"; "–" for None."""
    return _scaled(bits, ("bit", "kbit", "mbit", "gbit"))


def size(count: float | None) -> str:
    """Bytes as "532 B", "12.4 MB"; "–" for None."""
    return _scaled(count, ("B", "kB", "MB", "GB", "TB"))


def energy(joules: float | None) -> str:
    """Joules as "85.2 J", "12.4 kJ"; "–" for None."""
    return _scaled(joules, ("J", "kJ", "MJ"))


def how_ended(code: int) -> str:
    """How a process ended: "exit code 3", or the signal's name if ``code`` is a negative signal number: "SIGKILL"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def percent(fraction: float | None) -> str:
    """A fraction as "84.2%"; "–" for None, "NaN" and "∞" as such."""
    if fraction is None or not math.isfinite(fraction):
        return _not_finite(fraction)
    return f"{fraction * 100:.1f}%"


def share(part: float, whole: float) -> float:
    """A part of a whole, from 0 to 1. Clocks that jump, and counters that are read at different moments, may make a
    part larger than its whole, or negative; any part of nothing is all of it."""
    if whole <= 0:
        return 1.0 if part > 0 else 0.0
    return min(1.0, max(0.0, part / whole))


def is_fraction(name: str) -> bool:
    """Whether a metric is a fraction, by its name."""
    return name in FRACTIONS or name.startswith(RECALL)


def metric(name: str, value: float | None) -> str:
    """The value of a metric: a fraction as "84.2%", another as a plain number; "–" for None. The f1 of a program may be
    no fraction."""
    if is_fraction(name) and 0 <= (value or 0) <= 1:
        return percent(value)
    return number(value)


def loss(fraction: float | None) -> str:
    """A small fraction as "0.53%", with the digits that a loss rate needs; "–" for None."""
    if fraction is None or not math.isfinite(fraction):
        return "–"
    return f"{_digits(fraction * 100)}%"


def number(value: float | None) -> str:
    """A plain number with three significant digits, or whole with separators; "–" for None, "NaN" and "∞" as such."""
    if isinstance(value, int):
        return f"{value:,}"
    if value is None or not math.isfinite(value):
        return _not_finite(value)
    return _digits(value)


def _not_finite(value: float | None) -> str:
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    return "∞" if value > 0 else "−∞"


def quantity(name: str, value: float | None) -> str:
    """A measured quantity of a link, formatted by its name in the record: a time, a rate, a burst, or a fraction."""
    match name:
        case "rtt" | "delay" | "queue" | "isolation":
            return duration(value)
        case "rate" | "share":
            return rate(value)
        case "loss" | "duplicate" | "corrupt" | "reorder":
            return loss(value)
        case _:
            return number(value)


def some(names: Iterable[str], limit: int = 4) -> str:
    """Names in a row. If there are more than ``limit``, the last ones are only counted: "a, b, c and 5 more"."""
    listed = list(names)
    if len(listed) <= limit:
        return ", ".join(listed)
    shown = listed[: limit - 1]
    left = len(listed) - len(shown)
    return f"{', '.join(shown)} and {left} more"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: "1 round", "3 rounds". ``plural``: by default the noun with an s."""
    if number == 1:
        return f"{number:,} {noun}"
    return f"{number:,} {plural or f'{noun}s'}"


def _scaled(value: float | None, units: tuple[str, ...]) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    for unit in units:
        if abs(value) < 999.5 or unit == units[-1]:
            break
        value /= 1000
    return f"{_digits(value)} {unit}"


def _digits(value: float) -> str:
    """Three significant digits, no exponent, no trailing zeros."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    decimals = max(0, 2 - magnitude)
    text = f"{value:.{decimals}f}"
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text
