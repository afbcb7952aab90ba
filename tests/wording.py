"""Counts the tests that pin the wording of messages: ``python -m tests.wording``, with ``--list`` to show them.

docs/reference/messages.md shows each message, so a changed wording is a changed line there. Tests check the kind, the
place and a key word or value of an error, so that a better wording breaks none of them. A test pins a message if one of
its strings has a line of ``WORDS`` words or more, of which ``IN_A_ROW`` stand so in a message.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from docs.language import ROOT, documentation
from docs.messages import PLACEHOLDER, messages, template

MOST = 70
WORDS = 7
IN_A_ROW = 3
WHY = ("pytest.fail", "pytest.importorskip", "pytest.mark.skipif", "pytest.skip")
"""Calls with reasons of their own."""
ABOUT_WORDS = {
    "tests/node/learning/data/test_tables.py": "its cases have the names of rows of the page on data",
    "tests/orchestrator/test_layout.py": "its texts are laid out",
    "tests/test_data_page.py": "its cases have the names of rows of the page on data",
    "tests/test_wording.py": "its cases are messages",
}
"""Tests and folders that may pin messages, and why."""

Words = tuple[str, ...]


def phrases(texts: list[str]) -> set[Words]:
    """All parts of messages with ``IN_A_ROW`` words."""
    known: set[Words] = set()
    for text in texts:
        for part in PLACEHOLDER.split(text):
            known.update(_runs(_words(part)))
    return known


def pinned(place: ast.AST, known: set[Words]) -> str:
    """The first line of the strings of a place that is the wording of a message; empty if there is none."""
    others = {id(constant) for constant in documentation(place)}
    for node in ast.walk(place):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(WHY):
            others.update(id(part) for part in ast.walk(node))
        if id(node) in others:
            continue
        for line in template(node).splitlines():
            words = _words(line)
            if len(words) >= WORDS and not known.isdisjoint(_runs(words)):
                return line
    return ""


def _runs(words: list[str]) -> Iterator[Words]:
    for start in range(len(words) - IN_A_ROW + 1):
        yield tuple(words[start : start + IN_A_ROW])


def _words(text: str) -> list[str]:
    """The words without punctuation, and without the escapes of a regular expression."""
    plain = (word.strip(".,:;!?()[]'\"`^$*") for word in text.replace("\\", "").split())
    return [word for word in plain if word]


def places() -> Iterator[tuple[str, int, str, ast.AST]]:
    """The file, the line, the name and the code of each test, and of each table of cases in a module of tests."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        path = file.relative_to(ROOT).as_posix()
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield path, node.lineno, node.name, node
        for statement in tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                yield path, statement.lineno, "a table", statement


def main(show: bool) -> int:
    known = phrases([text for _, text in messages()])
    count = 0
    for path, line, name, node in places():
        if path.startswith(tuple(ABOUT_WORDS)):
            continue
        wording = pinned(node, known)
        if wording:
            count += 1
            if show:
                print(f"{path}:{line}: {name}: {wording}")
    print(f"{count} tests and tables pin the wording of a message, at most {MOST}")
    return int(count > MOST)


if __name__ == "__main__":
    sys.exit(main(show="--list" in sys.argv))
