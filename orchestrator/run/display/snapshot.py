"""The state of a run that a view shows. The views need libraries for terminals
(`orchestrator.run.display.terminal`)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator import text
from orchestrator.results.checks.verdicts import Verdict
from orchestrator.scenario.sections.drivers import LinkKind

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of a run ``t`` seconds after it started.

    ``tiers`` has (up, all) of each tier, ``traffic`` the bytes per second that each kind and class of links delivers
    now, ``real`` the latest measurement between hosts that real links join, in words. ``left`` is how many seconds the
    run still takes, ``left_here`` the same on the host's clock; they differ if the run's clock is virtual.
    ``faults_done``: how many of the planned ``faults_total`` have taken effect.
    ``value``, of the main ``metric``, and ``loss`` are a leading node's latest report; ``covered`` describes the value
    if it is a mean over fewer clients than the run has. ``verdict`` is the worst verdict
    so far of the checks that are possible during a run; None if there is none. ``failed``: the checks that have failed,
    with their reasons.
    ``ended``: why the run ended, in the last snapshot; nodes that ended in order then count as up.
    """

    t: float
    round: int
    rounds_total: int | None
    nodes_up: int
    nodes_total: int
    tiers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    metric: str = "accuracy"
    value: float | None = None
    covered: str = ""
    loss: float | None = None
    traffic: Mapping[tuple[LinkKind, str], float] = field(default_factory=dict)
    real: Mapping[str, str] = field(default_factory=dict)
    next_fault: str | None = None
    faults_done: int = 0
    faults_total: int = 0
    faults_by_hand: int = 0
    verdict: Verdict | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    left: float | None = None
    left_here: float | None = None
    ended: str | None = None

    @property
    def round_of_all(self) -> str:
        """The round and, if it is known, the number of rounds: "round 3 of 10"."""
        if self.rounds_total is None:
            return f"round {self.round}"
        return f"round {self.round} of {self.rounds_total}"

    @property
    def value_so_far(self) -> list[str]:
        """The value of the main metric, if it is known: "accuracy 61.0% so far (mean of 3 of 4 clients)"."""
        if self.value is None:
            return []
        covered = f" ({self.covered})" if self.covered else ""
        value = text.metric(self.metric, self.value)
        return [f"{self.metric} {value} so far{covered}"]


class View:
    """Shows a run; this one shows nothing. ``update`` is called a few times a second, ``line`` for every message."""

    def keep_time(self, clock: Clock) -> None:
        """Stamp lines with this clock from now on: the run's clock, which does not start at 0 in a continued run."""

    def update(self, snapshot: Snapshot) -> None: ...
    def line(self, text: str) -> None: ...
    def close(self) -> None: ...


def safely(what: str, act: Callable[[], object]) -> bool:
    """Do something that only shows a run. An error is a warning on standard error; returns whether there was none."""
    try:
        act()
    except Exception as error:
        with contextlib.suppress(Exception):
            why = text.visible(f"{type(error).__name__}: {error}")
            print(f"warning: {what} has failed ({why}); the run continues", file=sys.stderr)
        return False
    return True


class SafeView(View):
    """The view that ``make`` returns, until it fails: then the run continues without a view."""

    def __init__(self, make: Callable[[], View]) -> None:
        self._view: View | None = None

        def open_view() -> None:
            self._view = make()

        safely("the display of this run", open_view)

    def keep_time(self, clock: Clock) -> None:
        self._do(lambda view: view.keep_time(clock))

    def update(self, snapshot: Snapshot) -> None:
        self._do(lambda view: view.update(snapshot))

    def line(self, text: str) -> None:
        self._do(lambda view: view.line(text))

    def close(self) -> None:
        self._do(lambda view: view.close())

    def _do(self, act: Callable[[View], object]) -> None:
        view = self._view
        if view is None:
            return
        shown = safely("the display of this run", lambda: act(view))
        if not shown:
            self._view = None
            with contextlib.suppress(Exception):
                view.close()  # a terminal gets its cursor back
