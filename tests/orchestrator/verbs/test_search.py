"""Search in the documentation."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import PlaceError
from orchestrator.verbs.pages import find, pages
from orchestrator.verbs.search import EXCERPT, search, sections

PAGE = """\
# Links

A link has a rate.

## Loss

```sh
# loss in a comment of code is no heading
```

Loss is a share.
"""


def test_the_sections_of_a_page() -> None:
    found = {section.heading: [number for number, _ in section.lines] for section in sections(PAGE)}
    assert found == {"Links": [1, 2, 3, 4], "Loss": [5, 6, 7, 8, 9, 10, 11]}


@pytest.mark.parametrize(
    ("words", "topic"),
    [
        ("csv", "data"),
        ("lte", "gallery"),
        ("burst loss", "gallery"),
        ("out of memory", "runs"),
        ("GILBERT", "fidelity"),
    ],
)
def test_words_are_found_in_the_text(words: str, topic: str) -> None:
    found = search(words.split())
    assert topic in {match.topic for match in found}
    assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)
    for match in found:
        line = match.file.read_text().splitlines()[match.line - 1]
        assert match.text.strip("…") in line
        assert len(match.text) <= EXCERPT + 2


def test_a_section_has_all_words() -> None:
    both, one = search(["csv", "target"]), search(["csv"])
    assert {(match.topic, match.heading) for match in both} < {(match.topic, match.heading) for match in one}


def test_a_heading_weighs_more_than_the_text() -> None:
    assert "csv" in search(["csv", "table"])[0].heading


def test_a_word_that_is_no_page_lists_where_it_stands() -> None:
    assert "csv" not in pages()
    first, *_ = search(["csv"])
    printed = CliRunner().invoke(cli, ["docs", "csv"]).output.splitlines()
    assert printed[0].split() == ["topic", "section", "line", "text"]
    assert printed[2].startswith(first.topic)
    assert str(first.line) in printed[2]
    found = json.loads(CliRunner().invoke(cli, ["docs", "--json", "packet", "loss"]).output)["found"]
    assert found[0].keys() == {"topic", "file", "heading", "line", "text", "score"}


def test_a_page_comes_before_the_search() -> None:
    assert CliRunner().invoke(cli, ["docs", "hosts"]).output == find("hosts").read_text()
    assert "topic" in CliRunner().invoke(cli, ["docs", "hosts", "--search"]).output.split()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [(["hots"], "did you mean `edgebed docs hosts`"), (["qqq", "zzz"], "search for other or fewer words")],
)
def test_nothing_is_found(words: list[str], remedy: str) -> None:
    with pytest.raises(PlaceError, match=rf"section with '{words[0]}'.*: {remedy}"):
        search(words)
