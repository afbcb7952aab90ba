"""Relations between named figures: ``onlyedge >= phe-fl >= edgecloud``, ``a >= b + 3``, ``bytes = 41072 ± 1%``."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from orchestrator.scenario.language.strict import unknown

_ARITHMETIC: dict[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right if right else math.nan,
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
        values = {self.names[name]: figures[name] for name in self.names}
        return [_value(side, values) for side in (self.tree.left, *self.tree.comparators)]

    def holds(self, figures: Mapping[str, float]) -> bool:
        pairs = zip(self.tree.ops, pairwise(self.sides(figures)), strict=True)
        return all(_COMPARISONS[type(each)](left, right) for each, (left, right) in pairs)


def parse(text: str, figures: Collection[str]) -> Relation:
    """Read a relation between ``figures``. ValueError says what is wrong with it."""
    match = _TOLERANCE.fullmatch(text)
    if match:
        value = float(match["value"])
        by = float(match["by"]) * (value / 100 if match["percent"] else 1)
        return Relation(text, *_parsed(f"{value - by:f} <= {match['name']} <= {value + by:f}", figures))
    return Relation(text, *_parsed(text, figures))


def _parsed(text: str, figures: Collection[str]) -> tuple[dict[str, str], ast.Compare]:
    names: dict[str, str] = {}  # names have hyphens, which Python would read as minus
    code = _NAME.sub(lambda match: names.setdefault(match[0], f"_{len(names)}"), text)
    for name in names:
        if name not in figures:
            raise ValueError(f"{unknown('figure of this claim', name, figures)}; write spaces around a minus")
    try:
        tree = ast.parse(code, mode="eval").body
    except SyntaxError:
        tree = None
    if not isinstance(tree, ast.Compare) or not names or not all(map(_is_known, ast.walk(tree))):
        raise ValueError(f"'{text}' is no relation: write one like 'a >= b + 3', 'a >= b >= c' or 'a = 40 ± 5%'")
    return names, tree


def _is_known(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    return isinstance(
        node, (ast.Compare, ast.BinOp, ast.UnaryOp, ast.USub, ast.Name, ast.Load, *_ARITHMETIC, *_COMPARISONS)
    )


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.BinOp():
            return float(_ARITHMETIC[type(node.op)](_value(node.left, values), _value(node.right, values)))
        case ast.UnaryOp():
            return -_value(node.operand, values)
        case ast.Name():
            return values[node.id]
        case ast.Constant():
            return float(node.value)  # type: ignore[arg-type]
    raise AssertionError(node)
