"""Finds lines of code that have to be read twice, which ruff has no rule for: ``python -m docs.lines``.

A statement or a line is refused if it has

- a comprehension inside the element, the iterable or the condition of another one,
- a conditional expression inside the element of a comprehension,
- two assignments by ``:=``, or one inside a comprehension,
- three names or more assigned at once from as many values,
- more than ``MOST_TOKENS`` tokens on one line. Comments, docstrings and line breaks do not count.

What is refused becomes several statements: named values, a loop with a body, a function with a name.
"""

from __future__ import annotations

import ast
import collections
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from docs.language import ROOT, code, documentation

FOR_USERS = ["orchestrator/verbs/docs", "orchestrator/verbs/project", "orchestrator/verbs/scenarios"]
MOST_TOKENS = 26
NO_TOKENS = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
Comprehension = ast.DictComp | ast.GeneratorExp | ast.ListComp | ast.SetComp

Refusal = tuple[int, str]
"""A line, and what is wrong with it."""


def files() -> list[Path]:
    """The product, without the files that are for users to copy."""
    kept = []
    for file in code():
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith(tuple(FOR_USERS)):
            kept.append(file)
    return kept


def refusals(source: str) -> list[Refusal]:
    """What is refused in the text of a module, by line."""
    tree = ast.parse(source)
    refused = [*_comprehensions(tree), *_assignments(tree), *_long_lines(source, tree)]
    return sorted(refused)


def _comprehensions(tree: ast.Module) -> Iterator[Refusal]:
    for outer in ast.walk(tree):
        if not isinstance(outer, Comprehension):
            continue
        inside = [node for node in ast.walk(outer) if node is not outer]
        if any(isinstance(node, Comprehension) for node in inside):
            yield outer.lineno, "a comprehension inside another one"
        if any(isinstance(node, ast.NamedExpr) for node in inside):
            yield outer.lineno, "':=' inside a comprehension"
        for element in _elements(outer):
            if any(isinstance(node, ast.IfExp) for node in ast.walk(element)):
                yield outer.lineno, "a conditional expression inside the element of a comprehension"


def _elements(comprehension: Comprehension) -> list[ast.expr]:
    if isinstance(comprehension, ast.DictComp):
        return [comprehension.key, comprehension.value]
    return [comprehension.elt]


def _assignments(tree: ast.Module) -> Iterator[Refusal]:
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.stmt):
            continue
        named = [node for node in _of_statement(statement) if isinstance(node, ast.NamedExpr)]
        if len(named) > 1:
            yield statement.lineno, "two ':=' in one statement"
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Tuple):
            continue
        target = statement.targets[0]
        if isinstance(target, ast.Tuple) and len(target.elts) > 2:
            yield statement.lineno, f"{len(target.elts)} names assigned at once"


def _of_statement(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of the statements in its body."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt):
                waiting.append(child)


def _long_lines(source: str, tree: ast.Module) -> Iterator[Refusal]:
    documentation = _lines_of_documentation(tree)
    tokens: collections.Counter[int] = collections.Counter()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type not in NO_TOKENS and line not in documentation:
            tokens[line] += 1
    for line, count in tokens.items():
        if count > MOST_TOKENS:
            yield line, f"{count} tokens on one line, at most {MOST_TOKENS}"


def _lines_of_documentation(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for text in documentation(tree):
        lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def main() -> int:
    count = 0
    for file in files():
        for line, what in refusals(file.read_text()):
            print(f"{file.relative_to(ROOT)}:{line}: {what}")
            count += 1
    print(f"{count} lines have to be read twice")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
