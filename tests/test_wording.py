"""What counts as a message, which tests pin its wording, and the comparison that does not."""

from __future__ import annotations

import ast

import pytest

from docs.messages import texts
from tests.texts import containing
from tests.wording import phrases, pinned


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        ("raise ValueError(f'{key}: has no unit')", ["{key}: has no unit"]),
        ("raise ValueError('a\\n' + refused(f'{len(values)} are too many'))", ["{len} are too many"]),
        ("problems.append(Problem(where, path, 'is not known'))", ["is not known"]),
        ("notes.append('the host is busy: steps are late')", ["the host is busy: steps are late"]),
        ("words = 'is not known'", []),
        ("run = option('--run', help='the run of which all is shown')", []),
        ("query = 'SELECT a from a table with more words'", []),
    ],
)
def test_messages_are_texts_of_errors_and_sentences(line: str, messages: list[str]) -> None:
    assert texts(ast.parse(line)) == messages


# The message has eight words, and three of them in a row stand between its values.
KNOWN = phrases(["{path}: the rate of {link} must be above {low}"])


@pytest.mark.parametrize(
    ("line", "pins"),
    [
        ("assert text == 'links.a: the rate of a must be above 0'", True),
        ("raises(match=r'links\\.a: the rate of .* must be above 0$')", True),
        ("assert text == f'{path}: the rate of {link} must be above 0'", True),
        ("raises(match='must be above 0')", False),
        ("'''the rate of links.a must be above 0'''", False),
        ("assert text == 'a sentence of seven words that no one prints'", False),
    ],
)
def test_a_line_of_seven_words_pins_a_message(line: str, pins: bool) -> None:
    assert bool(pinned(ast.parse(line), KNOWN)) is pins


def test_a_text_by_its_parts() -> None:
    text = "links.a: the rate must be above 0"
    assert [text] == [containing("links.a", "above 0")]
    assert text != containing("above 0", "links.a")  # in this order
    assert text != containing("links.a", "above 1")
    assert containing("a", "a") != "a"  # there is one only
    assert containing("links.a") in [text]
