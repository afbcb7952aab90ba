"""The display of a run: a live picture in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator import text
from orchestrator.record.rows import COMPLETE
from orchestrator.results.checks.verdicts import Verdict
from orchestrator.run.display.snapshot import Clock, Snapshot, View
from orchestrator.text import visible

LINES = 6  # latest messages under the live picture
CURVE = 40  # rounds in the small curve of the main metric
LABEL, GAP = 8, 2  # columns of the labels, and between two columns
AROUND = LABEL + GAP + 2 * (1 + 2)  # columns that the labels, the border and its padding take
BLOCKS = "▁▂▃▄▅▆▇█"
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "pass": ("✓ all well", "green"),
    "unknown": ("? not everything could be checked", "yellow"),
    "fail": ("✕ a check does not pass", "red"),
}
ENDINGS = {
    "rounds": "all rounds done",
    "accuracy": "the accuracy is reached",
    "target": "the target is reached",
    "after": "the time is over",
    "bytes": "the devices' bytes are used up",
    "programs": "the programs are done",
}


def open_view(*, as_json: bool = False, virtual: bool = False, quiet: bool = False, plain: bool = False) -> View:
    """The live picture on a terminal, unless ``plain``; else plain lines, with ``--json`` on standard error; nothing if
    ``quiet``. ``virtual``: show the run's clock and the host's."""
    if quiet:
        return View()
    if as_json:
        return PlainView(sys.stderr, virtual=virtual)
    console = Console()
    live = console.is_terminal and not plain
    if live:
        return LiveView(console, virtual=virtual)
    return PlainView(sys.stdout, virtual=virtual)


class Stamp:
    """Formats the run's time: ``12.3 s``, or ``640.0 s virtual (2.1 s)`` on a ``virtual`` clock. The time in brackets
    is the host's, since this stamp was made. It is also the run's time until ``run`` is set."""

    def __init__(self, virtual: bool, host: Clock) -> None:
        self._virtual = virtual
        self._host = host
        self._began = host()
        self.run: Clock | None = None

    def __str__(self) -> str:
        elapsed = self._host() - self._began
        t = elapsed if self.run is None else self.run()
        return f"{t:8.1f} s virtual ({elapsed:6.1f} s)" if self._virtual else f"{t:7.1f} s"


class PlainView(View):
    """One line for each message and for each round, with the time."""

    def __init__(self, stream: TextIO, *, virtual: bool = False, host: Clock = time.monotonic) -> None:
        self._stream = stream
        self._stamp = Stamp(virtual, host)
        self._last: Snapshot | None = None

    def keep_time(self, clock: Clock) -> None:
        self._stamp.run = clock

    def update(self, snapshot: Snapshot) -> None:
        last = self._last
        self._last = snapshot
        if snapshot.round != (last.round if last else 0):
            self._write(_round_line(snapshot))
        failed, fails = (each is not None and each.verdict == "fail" for each in (last, snapshot))
        if fails and not failed:
            why = "; ".join(f"{name}: {said}" for name, said in snapshot.failed.items())
            self._write(f"so far a check does not pass, the verdict comes at the end{f' ({why})' if why else ''}")
        elif failed and not fails:
            self._write("so far all checks that are made during the run pass again")

    def line(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        self._stream.flush()

    def _write(self, text: str) -> None:
        print(f"[{self._stamp}] {visible(text)}", file=self._stream, flush=True)


def _round_line(snapshot: Snapshot) -> str:
    parts = [f"{snapshot.round_of_all} starts", *snapshot.value_so_far]
    if snapshot.left is not None:
        parts.append(f"about {text.duration(snapshot.left)} left")
    parts.append(f"{snapshot.nodes_up} of {text.count(snapshot.nodes_total, 'node')} up")
    return ", ".join(parts)


class LiveView(View):
    """A picture that is redrawn in place. The last picture stays when the run is over."""

    def __init__(self, console: Console, *, virtual: bool = False, host: Clock = time.monotonic) -> None:
        self._console = console
        self._stamp = Stamp(virtual, host)
        self._virtual = virtual
        self._lines: deque[tuple[str, str]] = deque(maxlen=LINES)
        self._curve: dict[int, float] = {}
        self._snapshot = Snapshot(t=0.0, round=0, rounds_total=None, nodes_up=0, nodes_total=0)
        self._live = Live(self._picture(), console=console, auto_refresh=False, redirect_stderr=False)
        self._live.start(refresh=True)

    def keep_time(self, clock: Clock) -> None:
        self._stamp.run = clock

    def update(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        if snapshot.value is not None and math.isfinite(snapshot.value):
            self._curve[snapshot.round] = snapshot.value
        self._refresh()

    def line(self, text: str) -> None:
        self._lines.append((str(self._stamp), visible(text)))
        self._refresh()

    def close(self) -> None:
        self._live.stop()

    def _refresh(self) -> None:
        self._live.update(self._picture(), refresh=True)

    def _picture(self) -> RenderableType:
        """The picture with as many of the latest messages as fit into the terminal, each whole."""
        for first in range(len(self._lines)):
            picture = self._with(list(self._lines)[first:])
            if len(self._console.render_lines(picture)) < self._console.height:
                return picture
        return self._with(list(self._lines)[-1:])

    def _with(self, lines: Sequence[tuple[str, str]]) -> RenderableType:
        table = Table.grid(padding=(0, GAP), expand=True)
        table.add_column(style="dim", width=LABEL, no_wrap=True)
        table.add_column(ratio=1)
        for label, content in _rows(self._snapshot, self._curve, self._console.width - AROUND, virtual=self._virtual):
            table.add_row(label, content)
        parts: list[RenderableType] = [table, Text()] if self._snapshot.nodes_total else []
        parts.append(_said(lines) if lines else Text("starting", style="dim"))
        virtual = " of virtual time" * self._virtual
        title = "[bold]edgebed[/]"
        if self._snapshot.nodes_total:  # before, only the lines tell the time
            title += f" [dim]·[/] {text.duration(self._snapshot.t)}{virtual}"
        ended = self._snapshot.ended
        if ended is not None:
            title += f" [dim]·[/] ended: {ENDINGS.get(ended, ended)}"
        border = "blue" if ended is None else "green" if ended in COMPLETE else "red"
        panel = Panel(Group(*parts), title=title, title_align="left", border_style=border, padding=(1, 2, 0, 2))
        return Group(panel, Text())  # the cursor stands in an empty line, where the ^C of a terminal moves nothing


def _rows(
    snapshot: Snapshot, curve: Mapping[int, float], room: int, *, virtual: bool
) -> list[tuple[str, RenderableType]]:
    """The labels of the picture, and the content beside each, in ``room`` columns."""
    rows: list[tuple[str, RenderableType]] = []
    if snapshot.nodes_total:
        rows += [("rounds", _progress(snapshot, room)), ("nodes", _nodes(snapshot))]
    if snapshot.left is not None:
        here = f" of virtual time, {text.duration(snapshot.left_here)} here" * virtual
        rows.append(("left", Text(f"about {text.duration(snapshot.left)}{here}")))
    if snapshot.value is not None:
        rows.append((snapshot.metric, _curve(snapshot, curve, room)))
    rows += _links(snapshot) if snapshot.ended is None else ()
    if snapshot.faults_total or snapshot.faults_by_hand:
        coming = f"   [dim]next:[/] {escape(snapshot.next_fault)}" if snapshot.next_fault else ""
        by_hand = f"   {snapshot.faults_by_hand} [dim]manual[/]" if snapshot.faults_by_hand else ""
        done = f"{snapshot.faults_done} [dim]of[/] {snapshot.faults_total}{by_hand}{coming}"
        rows.append(("faults", Text.from_markup(done)))
    if snapshot.verdict is not None:
        saying, style = VERDICTS[snapshot.verdict]
        rows.append(("checks", Text(saying + " so far" * (snapshot.ended is None), style=style)))
        rows += [("", Text(visible(f"{name}: {said}"), style=style)) for name, said in snapshot.failed.items()]
    return rows


def _progress(snapshot: Snapshot, room: int) -> RenderableType:
    if snapshot.rounds_total is None:
        return Text(str(snapshot.round))
    done = Text.from_markup(f"{snapshot.round} [dim]of[/] {snapshot.rounds_total}")
    grid = Table.grid(padding=(0, GAP))
    bar = ProgressBar(
        total=max(1, snapshot.rounds_total),
        completed=snapshot.round if snapshot.ended == "rounds" else max(0, snapshot.round - 1),  # this one goes on
        width=max(1, min(CURVE, room - GAP - done.cell_len)),
        style="dim",
        complete_style="blue",
        finished_style="green",
    )
    grid.add_row(bar, done)
    return grid


def _nodes(snapshot: Snapshot) -> Text:
    parts = []
    for tier, (up, total) in snapshot.tiers.items():
        style = "green" if up == total else "yellow" if up else "red"
        parts.append(f"[{style}]{up}[/] [dim]of {text.count(total, tier)}[/]")
    line = "   ".join(parts) or f"{snapshot.nodes_up} [dim]of[/] {snapshot.nodes_total}"
    return Text.from_markup(line + "   [dim]ended in order[/]" * (snapshot.ended is not None))


def _curve(snapshot: Snapshot, curve: Mapping[int, float], room: int) -> Text:
    """The main metric with its small curve: of a fraction up to 1, of another up to its highest value."""
    latest = text.metric(snapshot.metric, snapshot.value)
    if text.is_fraction(snapshot.metric):
        top = 1.0
    else:
        top = max((0.0, *curve.values())) or 1.0
    values = list(curve.values())[-max(1, min(CURVE, room - GAP - len(latest))) :]
    marks = "".join(BLOCKS[min(len(BLOCKS) - 1, int(max(0.0, value) / top * len(BLOCKS)))] for value in values)
    loss = f"   [dim]loss[/] {text.number(snapshot.loss)}" if snapshot.loss is not None else ""
    covered = f"   [dim]{snapshot.covered}[/]" if snapshot.covered else ""
    return Text.from_markup(f"[bold]{latest}[/]  [cyan]{marks}[/]{loss}{covered}")


def _links(snapshot: Snapshot) -> Iterator[tuple[str, RenderableType]]:
    """A row for each kind of links."""
    kinds = dict.fromkeys([*(kind for kind, _ in snapshot.traffic), *["real"] * bool(snapshot.real)])
    for kind in kinds:
        rates = {name: f"{text.size(rate)}/s" for (own, name), rate in snapshot.traffic.items() if own == kind}
        rates |= snapshot.real if kind == "real" else {}
        yield (
            kind,
            Text.from_markup("   ".join(f"[dim]{escape(name)}[/] {escape(said)}" for name, said in rates.items())),
        )


def _said(lines: Sequence[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, GAP))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for stamp, said in lines:
        grid.add_row(stamp, Text(said))
    return grid
