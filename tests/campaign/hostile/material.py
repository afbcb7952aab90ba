"""Hostile input, as strategies of Hypothesis: values, text, bytes, and things that were whole before."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

Draw = st.DrawFn
TEXTS = [
    *(
        "",
        " ",
        "\x00",
        "\ud800",
        "\x1b[2J\x1b]0;x\x07",
        "\x9b1m",
        "\u202e",
        "\u2028",
        "a\nb",
        "a\rb",
        "é",
        "x" * 30_000,
    ),
    *("../../x", "/etc/passwd", "/dev/zero", "~", "-", "--help", "a/b", "%s%n", "{0}", "</script><script>x", "=1+1"),
    *("NaN", "1e999", "-1", "0x10", "1_000", "٣", "true", "null", "9" * 400, "9" * 5000, "'; DROP TABLE event; --"),
    *("1s", "1e300s", "50%", "1gbit", "cloud", "edge-0", "device-0-0", "global", "accuracy", "start", "end", "round"),
]
NUMBERS: list[float] = [
    *(0, 1, -1, 2, 3, 255, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**400, -(10**400)),
    *(0.5, -0.0, 1e-320, 1e-9, 1e15, 1e300, 1.7e308, math.inf, -math.inf, math.nan),
]
PLAUSIBLE: list[Any] = [
    *(
        0,
        1,
        2,
        3,
        7,
        100,
        5000,
        0.5,
        1.0,
        -1,
        True,
        False,
        None,
        "",
        [],
        {},
        "1s",
        "20ms",
        "0s",
        "1h",
        "5%",
        "100%",
        "0%",
    ),
    *("1mbit", "1bit", "900gbit", "1gib", "1kb", "cloud", "edge-0", "device-0", "device-1-1", "devices", "wifi", "lte"),
    *("fedavg", "hierfavg", "scaffold", "mlp", "cnn", "digits", "sim", "crash", "pause", "degrade", "partition", "iid"),
    *(["device-0-0", "cloud"], [1, 2], [["edge-0"], ["cloud"]], {"dirichlet": 0.1}, {"at": "1s"}, {"rate": "1mbit"}),
]
plausible = st.sampled_from(PLAUSIBLE)
texts = st.sampled_from(TEXTS) | st.text(max_size=12)
numbers = st.sampled_from(NUMBERS) | st.integers(-5, 2000) | st.floats()
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)


@st.composite
def nested(draw: Draw) -> str:
    """JSON or YAML that is nested so deep that a recursive reader fails."""
    depth = draw(st.sampled_from([30, 900, 5000, 100_000]))
    begin, end = draw(st.sampled_from([("[", "]"), ('{"a":', "}")]))
    return begin * depth + "1" + end * depth


@st.composite
def written(draw: Draw, document: Any) -> str:
    """JSON of a changed document, or of something else."""
    if draw(st.integers(0, 9)) == 0:
        return draw(nested() | texts)
    return json.dumps(draw(changed(document)), ensure_ascii=draw(st.booleans()))


def fields(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping of some of these keys, and perhaps others, to anything."""
    return st.dictionaries(st.sampled_from(names) | texts, values, max_size=6)


@st.composite
def changed(draw: Draw, document: Any) -> Any:
    """A document in which some values are others, or gone, or there twice."""
    found = copy.deepcopy(document)
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        places = list(_places(found))
        if not places:
            return draw(values)
        holder, key = draw(st.sampled_from(places))
        match draw(st.integers(0, 4)):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case 1:
                holder[draw(texts)] = copy.deepcopy(holder[key])
            case 2:
                holder[key] = draw(values)
            case _:
                holder[key] = copy.deepcopy(draw(plausible))
    return found


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


@st.composite
def spoiled(draw: Draw, whole: bytes) -> bytes:
    """Bytes of which some are others, gone, or there many times."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(data) - 1)))
        end = start + draw(st.sampled_from([0, 1, 4, 8, 1000]))
        piece = draw(
            st.binary(max_size=8) | st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"\xff\xff", b"\n", b'"', b","])
        )
        data[start:end] = piece * draw(st.sampled_from([1, 1, 1, 100]))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 4)) == 0 else data)


@st.composite
def table(draw: Draw, columns: Mapping[str, Sequence[str]], most: int = 5) -> str:
    """CSV of some of these columns with their good cells. About one in two tables has an odd cell, row or heading."""
    names = [name for name in columns if draw(st.integers(0, 6))]
    rows = [names]
    for _ in range(draw(st.integers(0, most))):
        rows.append([draw(st.sampled_from(columns[name])) for name in names])
    if draw(st.booleans()) and names:
        row = draw(st.sampled_from(rows))
        row[draw(st.integers(0, len(names) - 1))] = draw(texts | numbers.map(_decimal))
    if draw(st.integers(0, 5)) == 0:
        rows.append(draw(st.lists(texts, max_size=9)))
    between, end = draw(st.sampled_from([",", ",", ",", ";", "\t"])), draw(st.sampled_from(["\n", "\r\n", "\r"]))
    return end.join(between.join(map(str, row)) for row in rows)


def _decimal(number: float) -> str:
    return f"{number:e}" if isinstance(number, float) else str(number % 10**20)
