"""Drawings for LaTeX: a `tikzpicture`, whose text is in the font of the document. It needs the package `tikz`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.latex import escaped
from orchestrator.report.vector import Clip, Drawing, Fill, Label, Plain, Point, Stroke

_ANCHORS = {"start": "base west", "middle": "base", "end": "base east"}
_HEAD = r"""% Needs \usepackage{tikz}. Include it by \input{FILE}.
\begin{tikzpicture}[x=1bp, y=1bp, inner sep=0pt]
"""


def pgf(drawing: Drawing) -> str:
    """The picture as a file of LaTeX. Equal drawings give equal texts."""
    size = f"{_number(drawing.width)}, {_number(drawing.height)}"
    lines = [rf"\useasboundingbox (0, 0) rectangle ({size});", *_lines(drawing)]
    return f"{_HEAD}{chr(10).join(lines)}\n\\end{{tikzpicture}}\n"


def _lines(drawing: Drawing) -> Iterable[str]:
    for written in dict.fromkeys(shape.colour for shape in drawing.plain()):
        yield rf"\definecolor{{{_named(written)}}}{{HTML}}{{{written.removeprefix('#').upper()}}}"
    for shape in drawing.shapes:
        if isinstance(shape, Clip):
            yield rf"\begin{{scope}}\clip {_path(shape.corners)} -- cycle;"
            yield from map(_command, shape.shapes)
            yield r"\end{scope}"
        else:
            yield _command(shape)


def _command(shape: Plain) -> str:
    colour = _named(shape.colour)
    match shape:
        case Stroke():
            dash = _dash(shape.dash)
            look = f"{colour}, line width={_number(shape.width)}bp, line cap=round, line join=round{dash}"
            return rf"\draw[{look}] {_path(shape.points)};"
        case Fill():
            return rf"\fill[{colour}, fill opacity={_number(shape.opacity)}] {_path(shape.points)} -- cycle;"
        case Label():
            return _node(shape, colour)


def _named(colour: str) -> str:
    """The name of a colour in the picture."""
    return f"edgebed-{colour.removeprefix('#')}"


def _node(label: Label, colour: str) -> str:
    turn = ", rotate=90" if label.upwards else ""
    size = rf"\fontsize{{{_number(label.size)}}}{{{_number(label.size * 1.2)}}}\selectfont"
    look = f"anchor={_ANCHORS[label.anchor]}, text={colour}{turn}, font={size}"
    return rf"\node[{look}] at {_point(label.at)} {{{escaped(label.text)}}};"


def _dash(lengths: Sequence[float]) -> str:
    parts = [f"{'off' if place % 2 else 'on'} {_number(length)}bp" for place, length in enumerate(lengths)]
    return f", dash pattern={' '.join(parts)}" if parts else ""


def _path(points: Sequence[Point]) -> str:
    return " -- ".join(map(_point, points))


def _point(point: Point) -> str:
    return f"({_number(point[0])}, {_number(point[1])})"


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"
