"""Drawings as PDF files of one page (ISO 32000-1), with lines and text that stay sharp at every size.

Texts are in Helvetica, which every reader has, so the file has no font.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

from orchestrator.report.vector import Clip, Drawing, Fill, Label, Plain, Point, Stroke
from orchestrator.report.widths import width_of

_LIKE = str.maketrans({"−": "–", "≥": ">=", "≤": "<=", "→": "->", "μ": "µ", "▲": "", "✓": ""})
"""Signs that the encoding of the font lacks."""


def pdf(drawing: Drawing) -> bytes:
    """The file. Equal drawings give equal bytes."""
    opacities = sorted({1.0, *(shape.opacity for shape in drawing.plain() if isinstance(shape, Fill))})
    states = {opacity: f"G{number}" for number, opacity in enumerate(opacities)}
    content = "\n".join(_operators(drawing, states)).encode("ascii")
    packed = zlib.compress(content, 9)
    kept = " ".join(f"/{name} << /ca {_number(opacity)} >>" for opacity, name in states.items())
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    size = f"[0 0 {_number(drawing.width)} {_number(drawing.height)}]"
    resources = f"<< /Font << /F {font} >> /ExtGState << {kept} >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox {size} /Resources {resources} /Contents 4 0 R >>".encode(),
        f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n".encode() + packed + b"\nendstream",
    ]
    return _file(objects)


def _file(objects: Sequence[bytes]) -> bytes:
    file = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(file))
        file += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    tail = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(file)}\n%%EOF\n"
    return file + head.encode() + tail.encode()


def _operators(drawing: Drawing, states: dict[float, str]) -> Iterable[str]:
    yield "1 J 1 j"
    for shape in drawing.shapes:
        if isinstance(shape, Clip):
            yield f"q {_path(shape.corners)} W n"
            yield from (_operator(each, states) for each in shape.shapes)
            yield "Q"
        else:
            yield _operator(shape, states)


def _operator(shape: Plain, states: dict[float, str]) -> str:
    match shape:
        case Stroke():
            dash = " ".join(map(_number, shape.dash))
            return f"{_colour(shape.colour)} RG {_number(shape.width)} w [{dash}] 0 d {_path(shape.points)} S"
        case Fill():
            return f"/{states[shape.opacity]} gs {_colour(shape.colour)} rg {_path(shape.points)} f"
        case Label():
            return f"/{states[1.0]} gs {_text(shape)}"


def _text(label: Label) -> str:
    said = label.text.translate(_LIKE)
    back = {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor] * width_of(said, label.size)
    x, y = label.at
    if label.upwards:
        place = f"0 1 -1 0 {_number(x)} {_number(y - back)}"
    else:
        place = f"1 0 0 1 {_number(x - back)} {_number(y)}"
    letters = said.encode("cp1252", "replace").hex()
    return f"BT {_colour(label.colour)} rg /F {_number(label.size)} Tf {place} Tm <{letters}> Tj ET"


def _path(points: Sequence[Point]) -> str:
    first, *others = (f"{_number(x)} {_number(y)}" for x, y in points)
    return " ".join([f"{first} m", *(f"{each} l" for each in others)])


def _colour(written: str) -> str:
    return " ".join(_number(part / 255) for part in bytes.fromhex(written.removeprefix("#")))


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"
