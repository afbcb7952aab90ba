"""Tables and entries on a console of any width. No text is ever cut, so paths and names can be copied whole.

Text that is too wide is wrapped at spaces. If the longest words of a table's columns do not fit side by side, each row
becomes a block of lines. A word wider than the console overflows, and the terminal continues it on the next line.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.text import Text

from orchestrator.text import visible

Cell = str | Text
"""The content of a table cell. A plain string is printed as it is, without markup."""

UNLIMITED = 10_000  # columns
PROSE = 120  # columns of a table with sentences in it, where there is no terminal
GAP = 2  # columns between two cells
LONGEST_LINE = 5000  # characters of an error; a path has at most 4096
LEAST = 20  # columns; text is not wrapped to less


def print_error(text: str) -> None:
    """Print an error on standard error. A line may quote what somebody else has written, so the end of a long one is
    left out."""
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in visible(text).split("\n")]
    print("error: " + "\n".join(lines), file=sys.stderr)


def open_console(piped: int = UNLIMITED) -> Console:
    """A console on standard output: as wide as the terminal or $COLUMNS, otherwise ``piped`` columns."""
    console = Console(highlight=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console.width = piped
    return console


def write(console: Console, *lines: Cell) -> None:
    """Write text, wrapped at spaces."""
    for each in lines:
        for line in _wrapped(_text(each), console.width):
            write_line(console, line)


def write_entries(console: Console, entries: Iterable[tuple[Cell, Cell]], indent: int = 0) -> None:
    """Write each label with its text beside it. Wrapped lines of the text stay in the text's column."""
    pairs = [(_text(label), _text(said)) for label, said in entries]
    width = max((label.cell_len for label, _ in pairs), default=0)
    room = max(LEAST, console.width - indent - width - GAP)
    for label, said in pairs:
        for number, line in enumerate(_wrapped(said, room)):
            write_line(console, Text(" " * indent) + _row([label if number == 0 else Text(), line], [width, 0], set()))


def write_table(
    console: Console,
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    title: str = "",
    right: Collection[int] = (),
) -> None:
    """Write a table under its title. The columns ``right`` hold figures: right-aligned, never wrapped."""
    cells = _cells(headings, rows)
    if title:
        write(console, Text(title, style="bold"))
    natural = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    least = _least(cells, right)
    room = console.width - GAP * (len(headings) - 1)
    if sum(least) > room:
        _write_blocks(console, headings, cells[1:])
        return
    widths = _widths(natural, least, room)
    for number, row in enumerate(cells):
        wrapped = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in range(max(map(len, wrapped))):
            parts = [lines[line] if line < len(lines) else Text() for lines in wrapped]
            write_line(console, _row(parts, widths, right))
        if number == 0:
            write_line(console, Text("─" * (sum(widths) + GAP * (len(widths) - 1)), style="dim"))


def write_wide_table(
    console: Console, headings: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Collection[int] = ()
) -> None:
    """Write a table that may be wider than the console: in parts below each other, each with the first column and as
    many of the other columns as fit. If some column does not fit beside the first, each row becomes a block."""
    cells = _cells(headings, rows)
    least = _least(cells, right)
    first = max(least[0], min(LEAST, max(_width(row[0]) for row in cells)))
    if first + GAP + max(least[1:], default=0) > console.width:
        write_table(console, headings, cells[1:], right=right)
        return
    parts: list[list[int]] = []
    used = console.width
    for place in range(1, len(headings)):
        used += GAP + least[place]
        if used > console.width:
            parts.append([])
            used = first + GAP + least[place]
        parts[-1].append(place)
    for number, part in enumerate(parts):
        if number:
            write(console, "")
        chosen = [0, *part]
        shown = {index for index, place in enumerate(chosen) if place in right}
        body = [[row[place] for place in chosen] for row in cells[1:]]
        write_table(console, [headings[place] for place in chosen], body, right=shown)


def _cells(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[list[Text]]:
    return [[Text(each, style="bold") for each in headings], *([_text(cell) for cell in row] for row in rows)]


def _least(cells: Sequence[Sequence[Text]], right: Collection[int]) -> list[int]:
    """The least width of each column: its longest word, or its longest line if it holds figures."""
    return [
        max(_longest_word(heading), *map(_width if place in right else _longest_word, column), 0)
        for place, (heading, *column) in enumerate(zip(*cells, strict=True))
    ]


def _write_blocks(console: Console, headings: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    for first, *others in rows:
        write(console, first)
        write_entries(console, [pair for pair in zip(headings[1:], others, strict=True) if pair[1].plain], indent=2)


def write_line(console: Console, line: Text) -> None:
    """Write a line without wrapping it, whatever its width, such as a command to be copied."""
    line.plain = visible(line.plain)
    line.rstrip()
    console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _row(parts: Sequence[Text], widths: Sequence[int], right: Collection[int]) -> Text:
    line = Text()
    for place, (part, width) in enumerate(zip(parts, widths, strict=True)):
        space = " " * max(0, width - part.cell_len)
        line += Text.assemble(space, part) if place in right else Text.assemble(part, space)
        if place < len(parts) - 1:
            line.append(" " * GAP)
    return line


def _widths(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths of columns that fit into ``room``. Narrows the widest column first, never below its ``least``."""
    widths = list(natural)
    while sum(widths) > room:
        widest = max((place for place in range(len(widths)) if widths[place] > least[place]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _wrapped(text: Text, room: int) -> list[Text]:
    """The text in lines no wider than ``room``. A word wider than that is kept whole."""
    lines: list[Text] = []
    for paragraph in text.split(allow_blank=True):
        breaks = []
        used = 0
        for word in re.finditer(r"\s*\S+\s*", paragraph.plain):
            if used and used + Text(word[0].rstrip()).cell_len > room:
                breaks.append(word.start())
                used = 0
            used += Text(word[0]).cell_len
        lines += paragraph.divide(breaks)
    for line in lines:
        line.rstrip()
    return lines or [Text()]


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def _width(cell: Text) -> int:
    return max((line.cell_len for line in cell.split()), default=0)


def _longest_word(cell: Text) -> int:
    return max((Text(word).cell_len for word in cell.plain.split()), default=0)
