"""Relations between named figures: ``onlyedge >= phe-fl >= edgecloud``, ``a >= b + 3``, ``bytes = 41072 ± 1%``."""

from __future__ import annotations

import ast
import contextlib
import math
import operator
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.scenario.language.strict import unknown


def _divide(left: float, right: float) -> float:
    if right == 0:
        return math.nan
    return left / right


_SYNTAX = (
    ast.Compare,
    ast.BinOp,
    ast.UnaryOp,
    ast.USub,
    ast.Name,
    ast.Load,
)
_ARITHMETIC: dict[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
}
_COMPARISONS: dict[type[ast.AST], Any] = {
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.Lt: operator.lt,
}
_NAME = re.compile(r"[^\W\d][\w.-]*")
_TOLERANCE = re.compile(r"(?P<name>[^<>=]+?) = (?P<value>[\d.]+) ± (?P<by>[\d.]+)(?P<percent>%?)")


@dataclass(frozen=True)
class Relation:
    """A chain of comparisons. ``names``: the figures that it compares, each with the variable that stands for it."""

    text: str
    names: Mapping[str, str]
    tree: ast.Compare

    def sides(self, figures: Mapping[str, float]) -> list[float]:
        """The values that are compared, from left to right."""
        values = {}
        for name, variable in self.names.items():
            values[variable] = figures[name]
        sides = [self.tree.left, *self.tree.comparators]
        return [_value(side, values) for side in sides]

    def holds(self, figures: Mapping[str, float]) -> bool:
        sides = self.sides(figures)
        for place, comparison in enumerate(self.tree.ops):
            compare = _COMPARISONS[type(comparison)]
            left = sides[place]
            right = sides[place + 1]
            if not compare(left, right):
                return False
        return True


def parse(text: str, figures: Collection[str]) -> Relation:
    """Read a relation between ``figures``. ValueError says what is wrong with it."""
    code = text
    match = _TOLERANCE.fullmatch(text)
    if match:
        value = float(match["value"])
        unit = value / 100 if match["percent"] else 1
        tolerance = float(match["by"]) * unit
        code = f"{value - tolerance:f} <= {match['name']} <= {value + tolerance:f}"
    names, tree = _parsed(code, figures)
    return Relation(text, names, tree)


def _parsed(
    text: str,
    figures: Collection[str],
) -> tuple[dict[str, str], ast.Compare]:
    names: dict[str, str] = {}

    def variable(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"_{len(names)}")

    code = _NAME.sub(variable, text)  # names have hyphens, which Python would read as minus
    for name in names:
        if name not in figures:
            raise ValueError(f"{unknown('figure of this claim', name, figures)}; write spaces around a minus")
    tree = None
    with contextlib.suppress(SyntaxError):
        tree = ast.parse(code, mode="eval").body
    if isinstance(tree, ast.Compare) and names and _all_known(tree):
        return names, tree
    raise ValueError(f"'{text}' is no relation: write one like 'a >= b + 3', 'a >= b >= c' or 'a = 40 ± 5%'")


def _all_known(tree: ast.AST) -> bool:
    return all(map(_is_known, ast.walk(tree)))


def _is_known(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    return isinstance(node, (*_SYNTAX, *_ARITHMETIC, *_COMPARISONS))


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.BinOp():
            compute = _ARITHMETIC[type(node.op)]
            left = _value(node.left, values)
            right = _value(node.right, values)
            return float(compute(left, right))
        case ast.UnaryOp():
            return -_value(node.operand, values)
        case ast.Name():
            return values[node.id]
        case ast.Constant():
            return float(node.value)  # type: ignore[arg-type]
    raise AssertionError(node)
