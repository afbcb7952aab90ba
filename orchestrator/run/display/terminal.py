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
LABEL = 8  # columns of the labels
GAP = 2  # columns between two columns
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


def open_view(
    *,
    as_json: bool = False,
    virtual: bool = False,
    quiet: bool = False,
    plain: bool = False,
) -> View:
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
        if self._virtual:
            return f"{t:8.1f} s virtual ({elapsed:6.1f} s)"
        return f"{t:7.1f} s"


class PlainView(View):
    """One line for each message and for each round, with the time."""

    def __init__(
        self,
        stream: TextIO,
        *,
        virtual: bool = False,
        host: Clock = time.monotonic,
    ) -> None:
        self._stream = stream
        self._stamp = Stamp(virtual, host)
        self._last: Snapshot | None = None

    def keep_time(self, clock: Clock) -> None:
        self._stamp.run = clock

    def update(self, snapshot: Snapshot) -> None:
        last = self._last
        self._last = snapshot
        last_round = last.round if last else 0
        if snapshot.round != last_round:
            self._write(_round_line(snapshot))
        failed = last is not None and last.verdict == "fail"
        fails = snapshot.verdict == "fail"
        if fails and not failed:
            reasons = [f"{check}: {reason}" for check, reason in snapshot.failed.items()]
            listed = f" ({'; '.join(reasons)})" if reasons else ""
            self._write(f"so far a check does not pass, the verdict comes at the end{listed}")
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
    nodes = text.count(snapshot.nodes_total, "node")
    parts.append(f"{snapshot.nodes_up} of {nodes} up")
    return ", ".join(parts)


class LiveView(View):
    """A picture that is redrawn in place. The last picture stays when the run is over."""

    def __init__(
        self,
        console: Console,
        *,
        virtual: bool = False,
        host: Clock = time.monotonic,
    ) -> None:
        self._console = console
        self._stamp = Stamp(virtual, host)
        self._virtual = virtual
        self._lines: deque[tuple[str, str]] = deque(maxlen=LINES)
        self._curve: dict[int, float] = {}
        self._snapshot = Snapshot(
            t=0.0,
            round=0,
            rounds_total=None,
            nodes_up=0,
            nodes_total=0,
        )
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
        stamp = str(self._stamp)
        self._lines.append((stamp, visible(text)))
        self._refresh()

    def close(self) -> None:
        self._live.stop()

    def _refresh(self) -> None:
        self._live.update(self._picture(), refresh=True)

    def _picture(self) -> RenderableType:
        """The picture with as many of the latest messages as fit into the terminal, each whole."""
        lines = list(self._lines)
        for first in range(len(lines)):
            picture = self._with(lines[first:])
            height = len(self._console.render_lines(picture))
            if height < self._console.height:
                return picture
        return self._with(lines[-1:])

    def _with(self, lines: Sequence[tuple[str, str]]) -> RenderableType:
        snapshot = self._snapshot
        parts: list[RenderableType] = []
        if snapshot.nodes_total:
            parts += [self._table(), Text()]
        if lines:
            parts.append(_messages(lines))
        else:
            parts.append(Text("starting", style="dim"))
        panel = Panel(
            Group(*parts),
            title=self._title(),
            title_align="left",
            border_style=_border(snapshot.ended),
            padding=(1, 2, 0, 2),
        )
        return Group(panel, Text())  # the cursor stands in an empty line, where the ^C of a terminal moves nothing

    def _table(self) -> Table:
        table = Table.grid(padding=(0, GAP), expand=True)
        table.add_column(style="dim", width=LABEL, no_wrap=True)
        table.add_column(ratio=1)
        room = self._console.width - AROUND
        rows = _rows(self._snapshot, self._curve, room, virtual=self._virtual)
        for label, content in rows:
            table.add_row(label, content)
        return table

    def _title(self) -> str:
        title = "[bold]edgebed[/]"
        if self._snapshot.nodes_total:  # before, only the lines show the time
            title += f" [dim]·[/] {text.duration(self._snapshot.t)}"
            if self._virtual:
                title += " of virtual time"
        ended = self._snapshot.ended
        if ended is not None:
            ending = ENDINGS.get(ended, ended)
            title += f" [dim]·[/] ended: {ending}"
        return title


def _border(ended: str | None) -> str:
    if ended is None:
        return "blue"
    return "green" if ended in COMPLETE else "red"


def _rows(
    snapshot: Snapshot,
    curve: Mapping[int, float],
    room: int,
    *,
    virtual: bool,
) -> list[tuple[str, RenderableType]]:
    """The labels of the picture, and the content next to each, in ``room`` columns."""
    rows: list[tuple[str, RenderableType]] = []
    if snapshot.nodes_total:
        rows.append(("rounds", _progress(snapshot, room)))
        rows.append(("nodes", _nodes(snapshot)))
    if snapshot.left is not None:
        left = f"about {text.duration(snapshot.left)}"
        if virtual:
            left += f" of virtual time, {text.duration(snapshot.left_here)} here"
        rows.append(("left", Text(left)))
    if snapshot.value is not None:
        rows.append((snapshot.metric, _curve(snapshot, curve, room)))
    if snapshot.ended is None:
        rows += _links(snapshot)
    if snapshot.faults_total or snapshot.faults_by_hand:
        rows.append(("faults", _faults(snapshot)))
    if snapshot.verdict is not None:
        words, style = VERDICTS[snapshot.verdict]
        if snapshot.ended is None:
            words += " so far"
        rows.append(("checks", Text(words, style=style)))
        for check, reason in snapshot.failed.items():
            failure = visible(f"{check}: {reason}")
            rows.append(("", Text(failure, style=style)))
    return rows


def _faults(snapshot: Snapshot) -> Text:
    line = f"{snapshot.faults_done} [dim]of[/] {snapshot.faults_total}"
    if snapshot.faults_by_hand:
        line += f"   {snapshot.faults_by_hand} [dim]manual[/]"
    if snapshot.next_fault:
        line += f"   [dim]next:[/] {escape(snapshot.next_fault)}"
    return Text.from_markup(line)


def _progress(snapshot: Snapshot, room: int) -> RenderableType:
    if snapshot.rounds_total is None:
        return Text(str(snapshot.round))
    done = Text.from_markup(f"{snapshot.round} [dim]of[/] {snapshot.rounds_total}")
    completed = snapshot.round
    if snapshot.ended != "rounds":
        completed = max(0, snapshot.round - 1)  # the present round is not complete
    available = room - GAP - done.cell_len
    bar = ProgressBar(
        total=max(1, snapshot.rounds_total),
        completed=completed,
        width=max(1, min(CURVE, available)),
        style="dim",
        complete_style="blue",
        finished_style="green",
    )
    grid = Table.grid(padding=(0, GAP))
    grid.add_row(bar, done)
    return grid


def _nodes(snapshot: Snapshot) -> Text:
    parts = []
    for tier, (up, total) in snapshot.tiers.items():
        if up == total:
            style = "green"
        elif up:
            style = "yellow"
        else:
            style = "red"
        parts.append(f"[{style}]{up}[/] [dim]of {text.count(total, tier)}[/]")
    line = "   ".join(parts) or f"{snapshot.nodes_up} [dim]of[/] {snapshot.nodes_total}"
    if snapshot.ended is not None:
        line += "   [dim]ended in order[/]"
    return Text.from_markup(line)


def _curve(snapshot: Snapshot, curve: Mapping[int, float], room: int) -> Text:
    """The main metric with its small curve: of a fraction up to 1, of another up to its highest value."""
    latest = text.metric(snapshot.metric, snapshot.value)
    values = list(curve.values())
    top = 1.0
    if not text.is_fraction(snapshot.metric):
        top = max((0.0, *values)) or 1.0
    available = room - GAP - len(latest)
    width = max(1, min(CURVE, available))
    blocks = [_block(value, top) for value in values[-width:]]
    line = f"[bold]{latest}[/]  [cyan]{''.join(blocks)}[/]"
    if snapshot.loss is not None:
        line += f"   [dim]loss[/] {text.number(snapshot.loss)}"
    if snapshot.covered:
        line += f"   [dim]{snapshot.covered}[/]"
    return Text.from_markup(line)


def _block(value: float, top: float) -> str:
    """The block for a value from 0 to ``top``."""
    share = max(0.0, value) / top
    height = int(share * len(BLOCKS))
    highest = len(BLOCKS) - 1
    return BLOCKS[min(highest, height)]


def _links(snapshot: Snapshot) -> Iterator[tuple[str, RenderableType]]:
    """A row for each kind of links."""
    kinds: dict[str, dict[str, str]] = {}
    for (link_kind, link_class), rate in snapshot.traffic.items():
        rates = kinds.setdefault(link_kind, {})
        rates[link_class] = f"{text.size(rate)}/s"
    if snapshot.real:
        kinds.setdefault("real", {}).update(snapshot.real)
    for kind, values in kinds.items():
        parts = [f"[dim]{escape(name)}[/] {escape(value)}" for name, value in values.items()]
        yield kind, Text.from_markup("   ".join(parts))


def _messages(lines: Sequence[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, GAP))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for stamp, message in lines:
        grid.add_row(stamp, Text(message))
    return grid
