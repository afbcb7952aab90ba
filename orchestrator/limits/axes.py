"""The axes of a study: what is made worse, from where to where, and the changes of the scenario for one value.

A value of an axis becomes overrides of the scenario, as `--set` takes them, so every run of a study is a run that a
user can repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netem.units import format_duration
from orchestrator.limits.scale import Scale
from orchestrator.scenario.schema import Scenario

DIRECTIONS = ("up", "down")
START_SHARE = 1 / 3  # of the unimpaired training, after which a fault without a time of its own starts

Changes = dict[str, Any]
"""Values by the paths of the keys."""


@dataclass(frozen=True)
class Axis:
    """One axis. Exactly one of these is set:

    key     the key of a link; ``links`` is the class or pair of links, ``direction`` up, down or None for both
    fault   the keys of a fault; the value is its duration
    absent  the value is the number of devices that lose their links for good

    ``start``: {"at": …} or {"round": …} of the fault; empty: after a third of the unimpaired training. ``required``:
    the value that must survive. ``by_chance``: whether the same value may survive in one run and not in another.
    """

    name: str
    scale: Scale
    key: str | None = None
    links: str = ""
    direction: str | None = None
    fault: Mapping[str, Any] = field(default_factory=dict)
    absent: bool = False
    start: Mapping[str, Any] = field(default_factory=dict)
    by_chance: bool = False
    required: float | None = None

    @property
    def lasts(self) -> bool:
        """Whether the value is the duration of a fault."""
        return bool(self.fault)

    def written(self, value: float) -> str:
        """A value as users write it."""
        written = self.scale.written(value)
        if self.absent:
            return f"{written} of the devices"
        return written

    def changes(self, value: float, data: Mapping[str, Any], unimpaired: float) -> Changes:
        """The changes of a scenario for a value. ``data``: the scenario as it is written. ``unimpaired``: the seconds
        of its unimpaired training."""
        if self.key is not None:
            return self._of_links(self.key, value, data)
        if self.absent and value == 0:
            return {}
        fault = dict(self.fault)
        if self.absent:
            fault = {"of": "devices", "count": int(value), "action": "disconnect"}
        fault |= self.start or {"at": format_duration(_rounded(unimpaired * START_SHARE))}
        if not self.absent:
            fault["for"] = self.scale.written(value)
        before = data.get("faults") or []
        return {"faults": [*before, fault]}

    def _of_links(self, key: str, value: float, data: Mapping[str, Any]) -> Changes:
        written = self.scale.written(value)
        path = f"links.{self.links}"
        if self.direction is not None:
            return {f"{path}.{self.direction}.{key}": written}
        changes: Changes = {f"{path}.{key}": written}
        settings = (data.get("links") or {}).get(self.links)
        if isinstance(settings, Mapping):
            for direction in DIRECTIONS:
                if settings.get(direction) is not None:  # which would replace the value
                    changes[f"{path}.{direction}.{key}"] = written
        return changes


def _rounded(seconds: float) -> float:
    """Seconds in whole tenths, at least one: runs of one study have the same faults."""
    return max(0.1, round(seconds, 1))


def link_classes(scenario: Scenario) -> list[str]:
    """The classes of links that a scenario has, those nearest to the devices first."""
    classes = {pair.link_class for pair in scenario.pairs}
    order = ("device-edge", "device-cloud", "edge-cloud", "edge-edge")
    return [name for name in order if name in classes]


def device_names(scenario: Scenario) -> list[str]:
    """The devices of a scenario, or its edges if it has none."""
    members = scenario.members
    devices = [member.name for member in members if member.tier == "device"]
    return devices or [member.name for member in members if member.tier == "edge"]


def first_leader(scenario: Scenario) -> str:
    """The node that a restart hits: the first that leads, or the topmost one."""
    leaders = scenario.leaders
    if leaders:
        return leaders[0]
    return scenario.members[0].name
