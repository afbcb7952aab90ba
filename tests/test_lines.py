"""What the linter of lines refuses, and what it lets pass."""

from __future__ import annotations

import pytest

from docs.lines import MOST_TOKENS, refusals


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("x = [sum(b for b in a) for a in rows]", "a comprehension inside another one"),
        ("x = [a for a in rows if all(b for b in a)]", "a comprehension inside another one"),
        ("x = {a: 1 for a in sorted(b for b in rows)}", "a comprehension inside another one"),
        ("x = [a for a in rows if (b := f(a))]", "':=' inside a comprehension"),
        ("x = {a: 1 if a else 2 for a in rows}", "a conditional expression inside the element of a comprehension"),
        ("x = (y := f(1)) + (z := f(2))", "two ':=' in one statement"),
        ("x, y, z = 1, 2, 3", "3 names assigned at once"),
    ],
)
def test_what_is_refused(line: str, what: str) -> None:
    assert refusals(f"first = 1\n{line}\n") == [(2, what)]


@pytest.mark.parametrize(
    "line",
    [
        "x = [f(a) for a in rows if a > 2]",
        "x = [a for a in (rows if many else few)]",
        "x, y = a, b",
        "x, y, z = row",
        "if (x := f(1)):\n    y = (z := f(2))",
    ],
)
def test_what_passes(line: str) -> None:
    assert refusals(line) == []


def test_tokens_of_a_line_are_counted_without_comments_and_docstrings() -> None:
    # `x`, `=` and the numbers with a `+` between them: 2 + (2 n - 1) tokens
    longest = "x = " + " + ".join(["1"] * ((MOST_TOKENS - 1) // 2))
    assert refusals(f'"""{longest} {longest}"""\n{longest}  # {longest}\n') == []
    assert refusals(f"{longest} + 1 + 1\n") == [(1, f"{MOST_TOKENS + 3} tokens on one line, at most 26")]
