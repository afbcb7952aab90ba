from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator.run.display.snapshot import SafeView, Snapshot
from orchestrator.run.display.terminal import LiveView, PlainView, open_view
from orchestrator.scenario.sections.drivers import LinkKind
from tests.texts import containing

START = Snapshot(t=0.0, round=0, rounds_total=20, nodes_up=16, nodes_total=16)
LATER = Snapshot(
    t=54.5,
    round=12,
    rounds_total=20,
    nodes_up=14,
    nodes_total=16,
    tiers={"cloud": (1, 1), "edge": (3, 3), "device": (10, 12)},
    value=0.838,
    loss=0.432,
    traffic={("emulated", "device-edge"): 2_340_000.0, ("emulated", "edge-cloud"): 0.0},
    next_fault="partition edge-0 | cloud in 12 s",
    faults_done=7,
    faults_total=21,
    verdict="pass",
)


def clock(*times: float) -> Callable[[], float]:
    """A clock that shows these times one after the other."""
    return iter(times).__next__


def live(width: int = 100, *, virtual: bool = False) -> tuple[LiveView, Console]:
    console = Console(file=io.StringIO(), width=width, height=30, force_terminal=True)
    return LiveView(console, virtual=virtual, host=clock(100.0, 103.0, 104.0)), console


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


def test_lines_have_the_runs_own_time_which_may_start_late() -> None:
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
        "[     0.0 s virtual (   0.5 s)] starting 16 nodes",
        "[   640.0 s virtual (   2.2 s)] training",
    ]


def test_the_picture_has_the_runs_time_too() -> None:
    view, _ = live()
    view.keep_time(clock(61.0))
    view.line("starting 16 nodes")
    assert "61.0 s  starting 16 nodes" in shown(view)
    view.close()


def test_plain_view_reports_each_round_once() -> None:
    stream = io.StringIO()
    view = PlainView(stream, host=clock(0.0, 1.0, 2.0))
    for snapshot in (START, START, LATER, LATER):
        view.update(snapshot)
    view.close()
    assert stream.getvalue().splitlines() == [
        "[    1.0 s] round 12 of 20 starts, accuracy 83.8% so far, 14 of 16 nodes up"
    ]


def test_plain_view_reports_when_a_check_fails() -> None:
    stream = io.StringIO()
    view = PlainView(stream, host=clock(0.0, 1.0, 2.0))
    failed = Snapshot(t=1.0, round=0, rounds_total=20, nodes_up=16, nodes_total=16, verdict="fail")
    for snapshot in (START, failed, failed, START, START):
        view.update(snapshot)
    assert stream.getvalue().splitlines() == [
        containing("1.0 s] so far a check"),
        containing("2.0 s] so far all checks"),
    ]


def test_plain_view_says_why_a_check_fails_and_how_long_the_run_takes() -> None:
    stream = io.StringIO()
    view = PlainView(stream, host=clock(0.0, 1.0, 2.0))
    view.update(replace(LATER, verdict="fail", failed={"links on time": "7 packets lost"}, left=32.0))
    assert stream.getvalue().splitlines() == [
        "[    1.0 s] round 12 of 20 starts, accuracy 83.8% so far, about 32 s left, 14 of 16 nodes up",
        containing("2.0 s] so far a check", "7 packets lost"),
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
    assert "0 s" not in shown(view)
    view.line("starting 16 nodes")
    assert "starting 16 nodes" in shown(view)
    view.close()


def test_the_cursor_stands_in_an_empty_line() -> None:
    """Where a terminal shows ^C at the end of a full line, the next picture begins a line too low."""
    view, console = live()
    view.update(LATER)
    assert [segment.text for segment in console.render_lines(view._picture())[-1] if segment.text.strip()] == []
    view.close()


def test_live_view_takes_words_as_they_are() -> None:
    view, _ = live()
    view.line("[red]device-0-0[/red] ended [/oops")
    assert "[red]device-0-0[/red] ended [/oops" in shown(view)
    view.close()


def test_live_view_distinguishes_kinds_of_links() -> None:
    view, _ = live()
    traffic: dict[tuple[LinkKind, str], float] = {
        ("emulated", "device-edge"): 2_340_000.0,
        ("real", "device-edge"): 500.0,
        ("real", "edge-cloud"): 0.0,
    }
    view.update(replace(LATER, traffic=traffic, real={"a – b": "round trip 0.4 ms"}))
    picture = shown(view)
    assert "  emulated  device-edge 2.34 MB/s  " in picture
    assert "  real      device-edge 500 B/s   edge-cloud 0 B/s   a – b round trip 0.4 ms  " in picture
    view.close()


def test_live_view_shows_the_time_left_on_both_clocks() -> None:
    view, _ = live()
    view.update(replace(LATER, left=32.0, left_here=32.0))
    assert "left      about 32 s  " in shown(view)
    view.close()
    view, _ = live(virtual=True)
    view.update(replace(LATER, left=640.0, left_here=2.5))
    picture = shown(view)
    assert "left      about 10 min 40 s of virtual time, 2.5 s here" in picture
    assert "54.5 s of virtual time" in picture.splitlines()[0]
    view.close()


def test_live_view_names_the_checks_that_have_failed() -> None:
    view, _ = live()
    view.update(replace(LATER, verdict="fail", failed={"links on time": "7 packets lost [a]"}))
    picture = shown(view)
    assert "check does not pass so far" in picture
    assert "links on time: 7 packets lost [a]" in picture
    view.close()


@pytest.mark.parametrize(("ended", "said"), [("rounds", "ended: all rounds done"), ("failed", "ended: failed")])
def test_the_last_picture_says_how_the_run_ended(ended: str, said: str) -> None:
    view, _ = live()
    view.update(replace(LATER, round=20, tiers={"cloud": (1, 1), "device": (11, 12)}, next_fault=None, ended=ended))
    picture = shown(view)
    assert said in picture.splitlines()[0]
    assert "1 of 1 cloud   11 of 12 devices   ended in order" in picture
    assert "20 of 20" in picture
    assert "MB/s" not in picture  # nothing flows any more
    assert "all well" in picture
    assert "so far" not in picture
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


class BrokenView(PlainView):
    """Fails at every update."""

    closed = False

    def update(self, snapshot: Snapshot) -> None:
        raise UnicodeEncodeError("latin-1", "─", 0, 1, "ordinal not in range(256)")

    def close(self) -> None:
        self.closed = True


def test_a_view_that_fails_is_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    broken = BrokenView(io.StringIO())
    view = SafeView(lambda: broken)
    for _ in range(3):
        view.update(LATER)
        view.line("a line")
    view.close()
    assert capsys.readouterr().err.count("has failed (UnicodeEncodeError") == 1
    assert broken.closed


def test_a_view_that_cannot_be_opened_is_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> PlainView:
        raise OSError("no terminal")

    view = SafeView(fails)
    view.update(LATER)
    view.close()
    assert capsys.readouterr().err.count("warning") == 1


def test_what_a_terminal_obeys_is_shown_as_a_sign(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    PlainView(stream).line("cloud: \x1b[2J")
    assert "cloud: ␛[2J" in stream.getvalue()
    view, _ = live()
    view.line("cloud: \x1b[2J")
    view.update(replace(LATER, verdict="fail", failed={"finished": "\x1b[2J"}))
    assert "cloud: ␛[2J" in shown(view)
    assert "finished: ␛[2J" in shown(view)
