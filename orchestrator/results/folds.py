"""What follows from the rows of a record, folded row by row in the order of recording.

`orchestrator.results.history` folds the rows that it reads from a record when it is asked, `orchestrator.results.story`
folds each row when it comes. Both give the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Protocol

from orchestrator.record.events.nodes import Overrun, RoundAbandoned, RoundReached
from orchestrator.record.rows import Event, Metric, Round
from orchestrator.results.means import Bands, Counts


class EventFold(Protocol):
    """Takes all events of these names. It starts empty."""

    EVENTS: ClassVar[tuple[str, ...]]

    def __init__(self) -> None: ...

    def add(self, event: Event) -> None: ...


class Rounds:
    """The rounds of all coordinators in order of their start. One that a restart repeats is listed again."""

    EVENTS: ClassVar[tuple[str, ...]] = (RoundReached.NAME, RoundAbandoned.NAME)

    def __init__(self) -> None:
        self.all: list[Round] = []
        self._latest: dict[str, int] = {}  # by node, the place of its latest round

    def add(self, event: Event) -> None:
        if event.node is None or event.round is None:
            return
        index = self._latest.get(event.node)
        is_reached = event.name == RoundReached.NAME
        if is_reached and event.data.get("phase") == "start":
            self._latest[event.node] = len(self.all)
            started = Round(event.node, event.round, event.t, None, False, event.edge_round)
            self.all.append(started)
        elif index is not None and self.all[index].number == (event.round, event.edge_round):
            changed: Mapping[str, Any] = {"abandoned": True}
            if is_reached:
                changed = {"end": event.t}
            self.all[index] = self.all[index]._replace(**changed)

    def latest(self, node: str) -> Round | None:
        """The latest round that a coordinator has started."""
        index = self._latest.get(node)
        if index is None:
            return None
        return self.all[index]


class Overruns:
    """By node: its steps that took longer than configured, and the seconds that they took longer."""

    EVENTS: ClassVar[tuple[str, ...]] = (Overrun.NAME,)

    def __init__(self) -> None:
        self.by_node: dict[str, tuple[int, float]] = {}

    def add(self, event: Event) -> None:
        node = event.node or "?"
        overrun = Overrun.from_json(event.data)
        late = (overrun.taken or 0.0) - (overrun.asked or 0.0)
        steps, seconds = self.by_node.get(node, (0, 0.0))
        self.by_node[node] = steps + 1, seconds + late


class Reports:
    """The reports of a metric on one scope. ``by_node``: those of each node. ``bands``: those of many devices by round.

    ``many_devices``: the devices that figures show together. ``counts``: whether a node counts in means.
    ``keeps_all``: also the single reports of many devices are kept.
    """

    def __init__(self, many_devices: Collection[str], counts: Counts, *, keeps_all: bool) -> None:
        self.by_node: dict[str, list[Metric]] = {}
        self.bands = Bands()
        self._many_devices = many_devices
        self._counts = counts
        self._keeps_all = keeps_all

    def add(self, metric: Metric) -> None:
        is_one_of_many = metric.node in self._many_devices
        if self._keeps_all or not is_one_of_many:
            self.by_node.setdefault(metric.node, []).append(metric)
        if not is_one_of_many or metric.round is None:
            return
        if math.isfinite(metric.value) and self._counts(metric.node):
            self.bands.add(metric, metric.round)
