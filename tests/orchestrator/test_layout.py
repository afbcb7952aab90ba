from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from orchestrator.layout import UNLIMITED, open_console, write, write_entries, write_table

PATH = "/home/somebody/experiments/runs/dropout-20250101-120000-abcd/report.html"
HEADINGS = ("node", "memory", "what it does")
ROWS = [("device-0-1", "203 MB", "trains a model on its own part of the data"), ("[edge]", "7 MB", PATH)]


def told(width: int, write: object, *arguments: object, **options: object) -> str:
    console = Console(file=io.StringIO(), width=width)
    assert callable(write)
    write(console, *arguments, **options)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_word_is_ever_cut(width: int) -> None:
    shown = told(width, write_table, HEADINGS, ROWS, title=f"the run of {PATH}", right={1})
    for word in " ".join((*HEADINGS[1:], *(cell for row in ROWS for cell in row), "the run of", PATH)).split():
        assert word in shown.split()
    assert "…" not in shown


def test_a_table_that_fits() -> None:
    assert told(120, write_table, HEADINGS, ROWS, title="nodes", right={1}).splitlines() == [
        "nodes",
        "node        memory  what it does",
        "─" * (10 + 2 + 6 + 2 + len(PATH)),
        "device-0-1  203 MB  trains a model on its own part of the data",
        f"[edge]        7 MB  {PATH}",
    ]


def test_a_table_is_wrapped_at_spaces() -> None:
    assert told(40, write_table, HEADINGS, ROWS[:1], right={1}).splitlines() == [
        "node        memory  what it does",
        "─" * 40,
        "device-0-1  203 MB  trains a model on",
        "                    its own part of the",
        "                    data",
    ]


def test_a_table_whose_words_do_not_fit_is_a_block_for_each_row() -> None:
    assert told(60, write_table, HEADINGS, ROWS).splitlines() == [
        "device-0-1",
        "  memory        203 MB",
        "  what it does  trains a model on its own part of the data",
        "[edge]",
        "  memory        7 MB",
        f"  what it does  {PATH}",
    ]


def test_entries_stay_beside_their_label() -> None:
    entries = [("verdict", Text("pass", style="green")), ("", "the links were as slow as they should be"), ("at", PATH)]
    assert told(40, write_entries, entries).splitlines() == [
        "verdict  pass",
        "         the links were as slow as they",
        "         should be",
        f"at       {PATH}",
    ]


def test_lines_that_were_there_stay() -> None:
    assert told(80, write, "one\n\ntwo") == "one\n\ntwo\n"


def test_without_a_terminal_there_is_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert open_console().width == UNLIMITED  # pytest has taken standard output
    monkeypatch.setenv("COLUMNS", "72")
    assert open_console().width == 72
