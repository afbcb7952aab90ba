"""Tables and entries on a console of any width. No text is ever cut, so paths and names can be copied whole.

Text that is too wide is wrapped at spaces. If the longest words of a table's columns do not fit into a line, each row
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
    """Print an error on standard error. A line may quote a text from elsewhere, so the end of a long one is left
    out."""
    lines = []
    for line in visible(text).split("\n"):
        if len(line) > LONGEST_LINE:
            line = f"{line[:LONGEST_LINE]}…"
        lines.append(line)
    print("error: " + "\n".join(lines), file=sys.stderr)


def open_console(piped: int = UNLIMITED) -> Console:
    """A console on standard output: as wide as the terminal or $COLUMNS, otherwise ``piped`` columns."""
    console = Console(highlight=False)
    has_width = os.environ.get("COLUMNS", "").isdigit()
    if not console.is_terminal and not has_width:
        console.width = piped
    return console


def write(console: Console, *lines: Cell) -> None:
    """Write text, wrapped at spaces."""
    for cell in lines:
        for line in _wrapped(_text(cell), console.width):
            write_line(console, line)


def write_entries(
    console: Console,
    entries: Iterable[tuple[Cell, Cell]],
    indent: int = 0,
) -> None:
    """Write each label with its text next to it. Wrapped lines of the text stay in the text's column."""
    pairs = []
    width = 0
    for entry_label, entry_text in entries:
        label = _text(entry_label)
        pairs.append((label, _text(entry_text)))
        width = max(width, label.cell_len)
    room = max(LEAST, console.width - indent - width - GAP)
    margin = Text(" " * indent)
    for label, text in pairs:
        first = label
        for line in _wrapped(text, room):
            row = _row([first, line], [width, 0], set())
            write_line(console, margin + row)
            first = Text()


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
    natural = [max(map(_width, column)) for column in _columns(cells)]
    least = _least(cells, right)
    gaps = GAP * (len(headings) - 1)
    room = console.width - gaps
    if sum(least) > room:
        _write_blocks(console, headings, cells[1:])
        return
    widths = _widths(natural, least, room)
    for number, row in enumerate(cells):
        _write_row(console, row, widths, right)
        if number == 0:
            rule = "─" * (sum(widths) + gaps)
            write_line(console, Text(rule, style="dim"))


def _write_row(
    console: Console,
    row: Sequence[Text],
    widths: Sequence[int],
    right: Collection[int],
) -> None:
    """Write a row in as many lines as its cells need."""
    wrapped = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, wrapped))
    for number in range(height):
        parts = []
        for lines in wrapped:
            parts.append(lines[number] if number < len(lines) else Text())
        write_line(console, _row(parts, widths, right))


def write_wide_table(
    console: Console,
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: Collection[int] = (),
) -> None:
    """Write a table that may be wider than the console: in parts below each other, each with the first column and as
    many of the other columns as fit. If some column does not fit next to the first, each row becomes a block."""
    cells = _cells(headings, rows)
    least = _least(cells, right)
    natural = max(_width(row[0]) for row in cells)
    first = max(least[0], min(LEAST, natural))
    widest = max(least[1:], default=0)
    if first + GAP + widest > console.width:
        write_table(console, headings, cells[1:], right=right)
        return
    for number, part in enumerate(_parts(first, least, console.width)):
        if number:
            write(console, "")
        chosen = [0, *part]
        chosen_headings = [headings[place] for place in chosen]
        chosen_right = {index for index, place in enumerate(chosen) if place in right}
        body = []
        for row in cells[1:]:
            body.append([row[place] for place in chosen])
        write_table(console, chosen_headings, body, right=chosen_right)


def _parts(
    first: int,
    least: Sequence[int],
    width: int,
) -> list[list[int]]:
    """The columns after the first one, in parts that fit into the width, each next to the first column."""
    parts: list[list[int]] = []
    used = width
    for place in range(1, len(least)):
        used += GAP + least[place]
        if used > width:
            parts.append([])
            used = first + GAP + least[place]
        parts[-1].append(place)
    return parts


def _cells(
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
) -> list[list[Text]]:
    cells = [[Text(heading, style="bold") for heading in headings]]
    for row in rows:
        cells.append([_text(cell) for cell in row])
    return cells


def _columns(cells: Sequence[Sequence[Text]]) -> list[tuple[Text, ...]]:
    return list(zip(*cells, strict=True))


def _least(cells: Sequence[Sequence[Text]], right: Collection[int]) -> list[int]:
    """The least width of each column: its longest word, or its longest line if it holds figures."""
    least = []
    for place, column in enumerate(_columns(cells)):
        heading = column[0]
        width_of = _width if place in right else _longest_word
        widths = [_longest_word(heading), *map(width_of, column[1:]), 0]
        least.append(max(widths))
    return least


def _write_blocks(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[Text]],
) -> None:
    for row in rows:
        write(console, row[0])
        entries = []
        for heading, cell in zip(headings[1:], row[1:], strict=True):
            if cell.plain:
                entries.append((heading, cell))
        write_entries(console, entries, indent=2)


def write_line(console: Console, line: Text) -> None:
    """Write a line without wrapping it, whatever its width, such as a command to be copied."""
    line.plain = visible(line.plain)
    line.rstrip()
    console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _row(
    parts: Sequence[Text],
    widths: Sequence[int],
    right: Collection[int],
) -> Text:
    line = Text()
    last = len(parts) - 1
    for place, (part, width) in enumerate(zip(parts, widths, strict=True)):
        space = " " * max(0, width - part.cell_len)
        if place in right:
            line += Text.assemble(space, part)
        else:
            line += Text.assemble(part, space)
        if place < last:
            line.append(" " * GAP)
    return line


def _widths(
    natural: Sequence[int],
    least: Sequence[int],
    room: int,
) -> list[int]:
    """The widths of columns that fit into ``room``. Narrows the widest column first, never below its ``least``."""
    widths = list(natural)
    while sum(widths) > room:
        reducible = []
        for place, width in enumerate(widths):
            if width > least[place]:
                reducible.append(place)
        widest = max(reducible, key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _wrapped(text: Text, room: int) -> list[Text]:
    """The text in lines no wider than ``room``. A word wider than that is kept whole."""
    lines: list[Text] = []
    for paragraph in text.split(allow_blank=True):
        breaks = []
        used = 0
        for word in re.finditer(r"\s*\S+\s*", paragraph.plain):
            with_space = Text(word[0]).cell_len
            without_space = Text(word[0].rstrip()).cell_len
            if used and used + without_space > room:
                breaks.append(word.start())
                used = 0
            used += with_space
        lines += paragraph.divide(breaks)
    for line in lines:
        line.rstrip()
    return lines or [Text()]


def _text(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text(cell)


def _width(cell: Text) -> int:
    return max((line.cell_len for line in cell.split()), default=0)


def _longest_word(cell: Text) -> int:
    widths = [Text(word).cell_len for word in cell.plain.split()]
    return max(widths, default=0)
