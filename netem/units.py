"""Quantities as text with units: "20ms", "50mbit", "0.5%", "64kb".

    parse_duration("20ms")   -> 0.02      seconds; ns us ms s min h
    parse_rate("50mbit")     -> 50e6      bits per second; bit kbit mbit gbit
    parse_fraction("0.5%")   -> 0.005     0..1; a percentage
    parse_size("64kb")       -> 64000     bytes; b kb mb gb (powers of 1000), kib mib gib (powers of 1024)

Units are never guessed. A number without a unit is an error (except 0). So is an ambiguous spelling: tc(8) takes
"mbps" as mega*bytes* per second, most other tools as megabits. Text is parsed as a decimal number and rounded to a
float once. Therefore ``parse_*`` returns exactly the value that ``format_*`` has written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

from netem.errors import UnitError

_NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([^\W\d_/%]*(?:/[a-zA-Z]+)?|%)\s*")

_DURATIONS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
}
_RATES = {
    "bit": Decimal(1),
    "kbit": Decimal(10**3),
    "mbit": Decimal(10**6),
    "gbit": Decimal(10**9),
}
_SIZES = {
    "b": Decimal(1),
    "kb": Decimal(10**3),
    "kib": Decimal(2**10),
    "mb": Decimal(10**6),
    "mib": Decimal(2**20),
    "gb": Decimal(10**9),
    "gib": Decimal(2**30),
}
_AMBIGUOUS_RATE = re.compile(r"([kmg]?)i?(?:bps|bits?/s(?:ec)?|bitps|bits|b/s(?:ec)?|b|bytes?/s(?:ec)?)", re.IGNORECASE)
_PREFIXES = {
    "": "",
    "k": "kilo",
    "m": "mega",
    "g": "giga",
}


def parse_duration(value: object) -> float:
    """Seconds of a duration such as "20ms", "1.5s" or "10min".

    Raises UnitError for: no unit, an unknown unit, negative, or not finite.
    """
    number, unit = _split(value, "duration", "20ms")
    if unit == "m":
        raise UnitError(f"{shown(value)} is ambiguous: write {number}min for minutes or {number}ms for milliseconds")
    seconds = number * _multiplier(number, unit, _DURATIONS, value, "duration", "20ms")
    return _finite(seconds, value)


def parse_rate(value: object) -> float:
    """Bits per second of a rate such as "50mbit" or "5.47kbit".

    Raises UnitError for: no unit, an unknown or ambiguous unit ("Mbps", "MB/s"), negative, or not finite.
    """
    number, unit = _split(value, "rate", "10mbit")
    ambiguous = _AMBIGUOUS_RATE.fullmatch(unit)
    if ambiguous and unit.lower() not in _RATES:
        prefix = ambiguous[1].lower()
        word = _PREFIXES[prefix]
        remedy = f"write {_plain(number)}{prefix}bit ({word}bits per second)"
        if "bit" not in unit.lower():
            remedy += f", or {_plain(8 * number)}{prefix}bit if you meant {word}bytes"
        raise UnitError(f"{shown(value)}: the unit {unit!r} is read differently by different tools; {remedy}")
    bits = number * _multiplier(number, unit, _RATES, value, "rate", "10mbit")
    return _finite(bits, value)


def parse_fraction(value: object) -> float:
    """A fraction 0..1 from a percentage such as "0.5%" (0.005).

    Raises UnitError for: no percent sign (1 could mean 1% or 100%), above 100%, another unit, or not finite.
    """
    number, unit = _split(value, "fraction", "0.5%")
    if unit not in ("", "%"):
        raise UnitError(f"{shown(value)}: {unit!r} is no unit of a fraction; write a percentage such as 0.5%")
    if not unit and number != 0:
        meant = []
        for percentage in (number, number.scaleb(2)):
            if percentage <= 100:
                meant.append(f"{_plain(percentage)}%")
        remedy = " or ".join(meant) or "0.5%"
        raise UnitError(f"{shown(value)} has no unit; write a percentage: {remedy}")
    if number > 100:
        raise UnitError(f"{shown(value)} is more than 100%")
    return float(number.scaleb(-2))


def parse_size(value: object) -> int:
    """Bytes of a size such as "64kb" (64 000) or "64kib" (65 536).

    Raises UnitError for: no unit, an unknown or ambiguous unit ("64Kb"), negative, or not a whole number of bytes.
    """
    number, unit = _split(value, "size", "64kb")
    in_bits = len(unit) == 2 and unit[0] in "KMG" and unit[1] == "b"
    if in_bits:
        raise UnitError(
            f"{shown(value)}: {unit!r} may mean bits; sizes are in bytes: write {_plain(number)}{unit.lower()}"
        )
    size = number * _multiplier(number, unit, _SIZES, value, "size", "64kb")
    _finite(size, value)
    if size != size.to_integral_value():
        raise UnitError(f"{shown(value)} is not a whole number of bytes")
    return int(size)


def format_duration(seconds: float) -> str:
    """The shortest usual spelling: 0.02 -> "20ms", 600.0 -> "10min". `parse_duration` returns exactly `seconds`."""
    value = _decimal(seconds)
    if value == 0:
        return "0s"
    for unit in ("h", "min"):
        if value < 10**9 and value % _DURATIONS[unit] == 0:
            number = value / _DURATIONS[unit]
            return f"{_plain(number)}{unit}"
    return _scaled(
        value,
        {
            "s": 0,
            "ms": -3,
            "us": -6,
            "ns": -9,
        },
    )


def format_rate(bits_per_second: float) -> str:
    """50e6 -> "50mbit". `parse_rate` returns exactly `bits_per_second`."""
    value = _decimal(bits_per_second)
    return _scaled(
        value,
        {
            "gbit": 9,
            "mbit": 6,
            "kbit": 3,
            "bit": 0,
        },
    )


def format_fraction(fraction: float) -> str:
    """0.005 -> "0.5%". `parse_fraction` returns exactly `fraction`."""
    percentage = _decimal(fraction).scaleb(2)
    return f"{_plain(percentage)}%"


def format_size(size: int) -> str:
    """64000 -> "64kb", 65536 -> "64kib": the shortest exact text."""
    if size < 0:
        raise UnitError(f"a size cannot be negative: {size}")
    if size == 0:
        return "0b"
    texts = []
    for unit in reversed(_SIZES):
        number, rest = divmod(size, int(_SIZES[unit]))
        if rest == 0:
            texts.append(f"{number}{unit}")
    return min(texts, key=len)


def _split(value: object, kind: str, example: str) -> tuple[Decimal, str]:
    """Number and unit of a written quantity; a value of type int or float has no unit."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnitError(f"{shown(value)} is not a {kind}; write it like {example}")
    text = value if isinstance(value, str) else repr(value)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f"{shown(value)} is not a {kind}; write a number and a unit, like {example}")
    number = Decimal(match[1])
    if number < 0:
        raise UnitError(f"{shown(value)}: a {kind} cannot be negative")
    return abs(number), match[2]


def _multiplier(
    number: Decimal,
    unit: str,
    units: Mapping[str, Decimal],
    value: object,
    kind: str,
    example: str,
) -> Decimal:
    allowed = " ".join(units)
    if unit:
        try:
            return units[unit.lower()]
        except KeyError:
            raise UnitError(
                f"{shown(value)}: {unit!r} is no unit of a {kind}; write it like {example} (units: {allowed})"
            ) from None
    if number == 0:
        return Decimal(1)
    raise UnitError(f"{shown(value)} has no unit; write a {kind} like {example} (units: {allowed})")


def _finite(number: Decimal, value: object) -> float:
    result = float(number)
    if math.isinf(result):
        raise UnitError(f"{shown(value)} is too large")
    return result


def _decimal(value: float) -> Decimal:
    """The shortest decimal number that rounds to this float."""
    if not math.isfinite(value) or value < 0:
        raise UnitError(f"{value!r} cannot be written as a quantity: it must be finite and not negative")
    return Decimal(repr(float(value)))


def _scaled(value: Decimal, exponents: Mapping[str, int]) -> str:
    """`value` in the first unit in which it is at least 1, otherwise in the last unit."""
    chosen = list(exponents)[-1]
    for unit, exponent in exponents.items():
        if value >= Decimal(1).scaleb(exponent):
            chosen = unit
            break
    number = value.scaleb(-exponents[chosen])
    return f"{_plain(number)}{chosen}"


def _plain(number: Decimal) -> str:
    """The number without an exponent, unless it would have many zeros."""
    number = number.normalize()
    if -12 <= number.adjusted() <= 15:
        return f"{number:f}"
    return str(number)


def shown(value: object) -> str:
    """A value as quoted in messages, in YAML spelling."""
    kind = type(value)
    if value is None:
        text = "nothing"
    elif kind is bool:
        text = str(value).lower()
    elif kind is dict:
        text = "a mapping"
    elif kind is list:
        text = "a list"
    elif isinstance(value, str | int | float):
        text = repr(value)
    else:
        text = str(value)
    if len(text) > 60:
        return f"{text[:57]}..."
    return text
