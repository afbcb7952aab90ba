from __future__ import annotations

import pytest
from rich.text import Text

from orchestrator.layout import (
    UNLIMITED,
    Cell,
    open_console,
    print_error,
    write,
    write_entries,
    write_table,
    write_wide_table,
)
from tests.orchestrator.consoles import printed

PATH = "/home/somebody/experiments/runs/dropout-20250101-120000-abcd/report.html"
HEADINGS = ("node", "memory", "what it does")
ROWS = [("device-0-1", "203 MB", "trains a model on its own part of the data"), ("[edge]", "7 MB", PATH)]


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_word_is_ever_cut(width: int) -> None:
    shown = printed(width, lambda console: write_table(console, HEADINGS, ROWS, title=f"the run of {PATH}", right={1}))
    for word in " ".join((*HEADINGS[1:], *(cell for row in ROWS for cell in row), "the run of", PATH)).split():
        assert word in shown.split()
    assert "…" not in shown


def test_a_table_that_fits() -> None:
    assert printed(
        120, lambda console: write_table(console, HEADINGS, ROWS, title="nodes", right={1})
    ).splitlines() == [
        "nodes",
        "node        memory  what it does",
        "─" * (10 + 2 + 6 + 2 + len(PATH)),
        "device-0-1  203 MB  trains a model on its own part of the data",
        f"[edge]        7 MB  {PATH}",
    ]


def test_a_table_is_wrapped_at_spaces() -> None:
    assert printed(40, lambda console: write_table(console, HEADINGS, ROWS[:1], right={1})).splitlines() == [
        "node        memory  what it does",
        "─" * 40,
        "device-0-1  203 MB  trains a model on",
        "                    its own part of the",
        "                    data",
    ]


def test_a_table_with_words_that_do_not_fit_is_a_block_for_each_row() -> None:
    assert printed(60, lambda console: write_table(console, HEADINGS, ROWS)).splitlines() == [
        "device-0-1",
        "  memory        203 MB",
        "  what it does  trains a model on its own part of the data",
        "[edge]",
        "  memory        7 MB",
        f"  what it does  {PATH}",
    ]


def test_entries_stay_next_to_their_label() -> None:
    entries: list[tuple[str, Cell]] = [
        ("verdict", Text("pass", style="green")),
        ("", "the links were as slow as they should be"),
        ("at", PATH),
    ]
    assert printed(40, lambda console: write_entries(console, entries)).splitlines() == [
        "verdict  pass",
        "         the links were as slow as they",
        "         should be",
        f"at       {PATH}",
    ]


def test_lines_that_were_there_stay() -> None:
    assert printed(80, lambda console: write(console, "one\n\ntwo")) == "one\n\ntwo\n"


def test_without_a_terminal_there_is_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert open_console().width == UNLIMITED  # pytest has taken standard output
    assert open_console(120).width == 120
    monkeypatch.setenv("COLUMNS", "72")
    assert open_console().width == 72


WIDE = ("case", "accuracy", "seconds to target", "bytes")
CASES = [("a short one", "84.2 ± 1.1%", "12 s", "1 MB"), ("hierfavg", "79.0 ± 0.4%", "9 min 14 s ± 4 min", "3 MB")]


def test_a_wide_table_is_cut_between_columns() -> None:
    assert printed(43, lambda console: write_wide_table(console, WIDE, CASES, right={1, 2, 3})).splitlines() == [
        "case            accuracy",
        "─" * (11 + 2 + 11),
        "a short one  84.2 ± 1.1%",
        "hierfavg     79.0 ± 0.4%",
        "",
        "case          seconds to target  bytes",
        "─" * (11 + 2 + 18 + 2 + 5),
        "a short one                12 s   1 MB",
        "hierfavg     9 min 14 s ± 4 min   3 MB",
    ]


def test_a_wide_table_that_fits_is_one_table() -> None:
    whole = printed(80, lambda console: write_table(console, WIDE, CASES, right={1, 2, 3}))
    assert printed(80, lambda console: write_wide_table(console, WIDE, CASES, right={1, 2, 3})) == whole


def test_a_wide_table_with_a_column_that_does_not_fit_is_a_block_for_each_row() -> None:
    blocks = printed(28, lambda console: write_wide_table(console, WIDE, CASES, right={1, 2, 3})).splitlines()
    assert blocks[:2] == ["a short one", "  accuracy           84.2 ± 1.1%"]


def test_what_a_terminal_obeys_is_shown_as_a_sign(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("no node '\x1b[2J\x9b1m\u202e'\nsee ps")
    assert capsys.readouterr().err == "error: no node '␛[2J\ufffd1m\ufffd'\nsee ps\n"
    rows = [(Text("a\x1b]0;x", style="bold"), "\x9b2J", "")]
    shown = printed(60, lambda console: write_table(console, HEADINGS, rows))
    assert shown.splitlines()[-1] == "a␛]0;x  \ufffd2J"


def test_the_end_of_a_long_line_of_an_error_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("x" * 70_000 + "\nsee ps")
    first, second = capsys.readouterr().err.splitlines()
    assert (len(first), first[-1], second) == (5008, "…", "see ps")
