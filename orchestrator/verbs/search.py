"""Search in the text of the documentation's pages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import PlaceError
from orchestrator.verbs.pages import pages, title

MOST = 12  # matches that are listed
EXCERPT = 100  # characters of a line that are shown
COUNTED = 5  # occurrences in a section that count; a table that names a word in each row is no better for it
IN_TITLE, IN_HEADING = 12.0, 8.0  # what a word in a heading weighs, compared with one in the text
WEIGHTS = {"guides": 1.5, "tutorials": 1.2, "papers": 0.5}
"""By folder: who searches wants to do something; pages of papers name nearly everything."""
HEADING = re.compile(r"#{1,6} (.+)")
FENCES = ("```", "~~~")


@dataclass(frozen=True)
class Match:
    """A section that has all words. ``line``: the number of the line with most of them; ``text``: an excerpt of it."""

    topic: str
    file: Path
    heading: str
    line: int
    text: str
    score: float


@dataclass(frozen=True)
class Section:
    """A heading and the numbered lines below it, up to the next heading."""

    heading: str
    lines: Sequence[tuple[int, str]]


def search(words: Sequence[str]) -> list[Match]:
    """The sections that have all these words, the best first. PlaceError if there are none.

    A word also matches longer words that start with it, in upper or lower case."""
    patterns = [_pattern(word) for word in words]
    matches = []
    for topic, file in pages().items():
        for section in sections(file.read_text()):
            match = _match(topic, file, section, patterns)
            if match is not None:
                matches.append(match)
    if not matches:
        raise PlaceError(_nothing(words))
    return sorted(matches, key=_best_first)


def _best_first(match: Match) -> tuple[float, str, int]:
    return -match.score, match.topic, match.line


def _pattern(word: str) -> re.Pattern[str]:
    escaped = re.escape(word)
    if word[:1].isalnum():
        escaped = rf"\b{escaped}"
    return re.compile(escaped, re.IGNORECASE)


def sections(page: str) -> Iterator[Section]:
    """The sections of a page. A line of code that looks like a heading is none."""
    heading = ""
    lines = list[tuple[int, str]]()
    in_code = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith(FENCES):
            in_code = not in_code
        match = None if in_code else HEADING.fullmatch(line)
        if match is None:
            lines.append((number, line))
            continue
        if lines:
            yield Section(heading, lines)
        heading = match[1]
        lines = [(number, heading)]
    yield Section(heading, lines)


def _match(
    topic: str,
    file: Path,
    section: Section,
    patterns: Sequence[re.Pattern[str]],
) -> Match | None:
    counts = [_occurrences(pattern, section) for pattern in patterns]
    if not all(counts):
        return None
    score = float(sum(min(count, COUNTED) for count in counts))
    score += IN_HEADING * _number_in(patterns, section.heading)
    score += IN_TITLE * _number_in(patterns, f"{topic} {title(file)}")
    body = section.lines
    if len(body) > 1:
        body = body[1:]

    def words_in(numbered: tuple[int, str]) -> int:
        return _number_in(patterns, numbered[1])

    number, line = max(body, key=words_in)
    if not _number_in(patterns, line):
        number, line = section.lines[0]
    weight = WEIGHTS.get(file.parent.name, 1.0)
    excerpt = _excerpt(line, patterns)
    return Match(topic, file, section.heading, number, excerpt, score * weight)


def _occurrences(pattern: re.Pattern[str], section: Section) -> int:
    count = 0
    for _, line in section.lines:
        count += len(pattern.findall(line))
    return count


def _number_in(patterns: Iterable[re.Pattern[str]], line: str) -> int:
    """How many of the words a line has."""
    return sum(1 for pattern in patterns if pattern.search(line))


def _excerpt(line: str, patterns: Iterable[re.Pattern[str]]) -> str:
    """The part of a long line around the first of the words."""
    line = line.strip()
    if len(line) <= EXCERPT:
        return line
    places = []
    for pattern in patterns:
        match = pattern.search(line)
        if match is not None:
            places.append(match.start())
    start = max(0, min(places) - EXCERPT // 3)
    end = start + EXCERPT
    shown = line[start:end].strip()
    before = "…" if start else ""
    after = "…" if end < len(line) else ""
    return f"{before}{shown}{after}"


def _nothing(words: Sequence[str]) -> str:
    """An error for words that no section has, with the page that has a similar name."""
    topic = " ".join(words)
    close = difflib.get_close_matches(topic, pages(), n=1)
    if close:
        remedy = f"did you mean `edgebed docs {close[0]}`?"
    else:
        remedy = "search for other or fewer words; `edgebed docs` lists all pages"
    quoted = " and ".join(repr(word) for word in words)
    return f"the documentation has no page and no section with {quoted}: {remedy}"
