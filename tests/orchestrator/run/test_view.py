from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from orchestrator.run.view import LiveView, PlainView, Snapshot, open_view

START = Snapshot(t=0.0, round=0, rounds_total=20, nodes_up=16, nodes_total=16)
LATER = Snapshot(
    t=54.5,
    round=12,
    rounds_total=20,
    nodes_up=14,
    nodes_total=16,
    tiers={"cloud": (1, 1), "edge": (3, 3), "device": (10, 12)},
    accuracy=0.838,
    loss=0.432,
    traffic={"device-edge": 2_340_000.0, "edge-cloud": 0.0},
    next_fault="partition edge-0 | cloud in 12 s",
    faults_done=7,
    faults_total=21,
    verdict="pass",
)


def clock(*times: float) -> Callable[[], float]:
    """A clock that shows these times one after the other."""
    return iter(times).__next__


def live(width: int = 100) -> tuple[LiveView, Console]:
    console = Console(file=io.StringIO(), width=width, height=30, force_terminal=True)
    return LiveView(console, host=clock(100.0, 103.0, 104.0)), console


def shown(view: LiveView, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(view._picture())
    return console.export_text()


def test_plain_lines_have_the_time_since_the_view_was_opened() -> None:
    stream = io.StringIO()
    view = PlainView(stream, host=clock(100.0, 100.5, 112.25))
    view.line("starting 16 nodes")
    view.line("training")
    assert stream.getvalue().splitlines() == ["[    0.5 s] starting 16 nodes", "[   12.2 s] training"]


def test_lines_have_the_runs_own_time_which_may_begin_late() -> None:
    stream = io.StringIO()
    view = PlainView(stream, host=clock(100.0, 100.5, 102.5, 104.0))
    view.line("looking at this host")
    view.keep_time(clock(61.0, 61.0))  # a run that goes on, and whose clock stands still until all is set up again
    view.line("starting 16 nodes")
    view.line("training")
    assert stream.getvalue().splitlines() == [
        "[    0.5 s] looking at this host",
        "[   61.0 s] starting 16 nodes",
        "[   61.0 s] training",
    ]


def test_two_clocks_where_the_runs_is_virtual() -> None:
    stream = io.StringIO()
    view = PlainView(stream, virtual=True, host=clock(100.0, 100.5, 102.2))
    view.keep_time(clock(0.0, 640.0))
    view.line("starting 16 nodes")
    view.line("training")
    assert stream.getvalue().splitlines() == [
        "[     0.0 s (   0.5 s)] starting 16 nodes",
        "[   640.0 s (   2.2 s)] training",
    ]


def test_the_picture_has_the_runs_time_too() -> None:
    view, _ = live()
    view.keep_time(clock(61.0))
    view.line("starting 16 nodes")
    assert "61.0 s  starting 16 nodes" in shown(view)
    view.close()


def test_plain_view_tells_each_round_once() -> None:
    stream = io.StringIO()
    view = PlainView(stream, host=clock(0.0, 1.0, 2.0))
    for snapshot in (START, START, LATER, LATER):
        view.update(snapshot)
    view.close()
    assert stream.getvalue().splitlines() == [
        "[    1.0 s] round 12 of 20 begins, accuracy 83.8% so far, 14 of 16 nodes up"
    ]


def test_plain_view_tells_when_a_check_fails() -> None:
    stream = io.StringIO()
    view = PlainView(stream, host=clock(0.0, 1.0, 2.0))
    failed = Snapshot(t=1.0, round=0, rounds_total=20, nodes_up=16, nodes_total=16, verdict="fail")
    for snapshot in (START, failed, failed, START, START):
        view.update(snapshot)
    assert stream.getvalue().splitlines() == [
        "[    1.0 s] a check fails: do not rely on the results of this run",
        "[    2.0 s] no check fails any more",
    ]


def test_live_view_shows_how_the_run_stands() -> None:
    view, _ = live()
    view.update(LATER)
    view.line("fault: crash device-1-2")
    picture = shown(view)
    for words in (
        *("54.5 s", "12 of 20", "1 of 1 cloud", "10 of 12 devices", "83.8%", "loss 0.432", "2.34 MB/s", "0 B/s"),
        *("7 of 21", "next: partition edge-0 | cloud in 12 s", "all well so far", "3.0 s  fault: crash device-1-2"),
    ):
        assert words in picture
    view.close()


def test_live_view_before_anything_is_known() -> None:
    view, _ = live()
    assert "starting" in shown(view)
    view.line("starting 16 nodes")
    assert "starting 16 nodes" in shown(view)
    view.close()


def test_live_view_takes_words_as_they_are() -> None:
    view, _ = live()
    view.line("[red]device-0-0[/red] ended [/oops")
    assert "[red]device-0-0[/red] ended [/oops" in shown(view)
    view.close()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_live_view_fits_the_terminal(width: int) -> None:
    view, console = live(width)
    view.update(LATER)
    view.line("x" * 300)
    picture = shown(view, width).splitlines()
    assert max(len(line) for line in picture) <= width
    assert len(picture) < console.height
    assert sum(line.count("x") for line in picture) >= 300  # all of it
    assert "12 of 20" in "\n".join(picture)
    view.close()
    assert isinstance(console.file, io.StringIO)
    assert "83.8%" in console.file.getvalue()


def test_where_rows_are_few_the_latest_lines_are_shown_whole() -> None:
    console = Console(file=io.StringIO(), width=60, height=24, force_terminal=True)
    view = LiveView(console, host=lambda: 0.0)
    view.update(LATER)
    names = [f"device-{number}-{number} ended unexpectedly ({'and so on ' * 8}device-{number})" for number in range(6)]
    for name in names:
        view.line(name)
    picture = shown(view, 60)
    assert len(picture.splitlines()) < 24
    words = " ".join(picture.replace("│", "").split())
    assert names[-1] in words
    assert names[0] not in words
    assert "…" not in picture
    view.close()


def test_without_a_terminal_lines_go_to_standard_output_and_under_json_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for as_json in (False, True):
        view = open_view(as_json=as_json)
        view.line(f"as_json={as_json}")
        view.close()
    told = capsys.readouterr()
    assert told.out.endswith("as_json=False\n")
    assert told.err.endswith("as_json=True\n")
