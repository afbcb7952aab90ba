"""Events of the run itself: its training, its hosts, manual faults, notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from orchestrator import text
from orchestrator.record.events.base import RecordedEvent


@dataclass(frozen=True)
class Training(RecordedEvent):
    """Training starts, or restarts in a continued run."""

    NAME = "training"


@dataclass(frozen=True)
class Continued(RecordedEvent):
    """An ended run is resumed after the round of the event. ``ended``: how it had ended."""

    NAME = "continued"

    ended: str | None = None


@dataclass(frozen=True)
class Note(RecordedEvent):
    """A sentence for readers of the results."""

    NAME = "note"

    text: str = ""


@dataclass(frozen=True)
class ProcessorUse(RecordedEvent):
    """The use of this host's processors during training, in seconds: ``busy``, ``idle``, and ``own`` of the
    orchestrator and the link engine."""

    NAME = "host load"

    seconds: float
    busy: float
    idle: float
    own: float


@dataclass(frozen=True)
class Gap(RecordedEvent):
    """A time in which the orchestrator did not monitor, from ``since`` on. ``stood_still``: the seconds of it in which
    its process did not run at all."""

    NAME = "gap"

    since: float
    seconds: float
    stood_still: float


@dataclass(frozen=True)
class HostChanged(RecordedEvent):
    """A host of several is "lost", "back", or "unusable": available, but of no use."""

    NAME = "host"

    host: str = ""
    state: str = ""
    reason: str = ""

    def __str__(self) -> str:
        match self.state:
            case "lost":
                return f"the host {self.host} is lost: {self.reason}"
            case "back":
                return f"the host {self.host} is there again"
            case "unusable":
                return f"the host {self.host} cannot be used again: {self.reason}"
        return f"the host {self.host} is {self.state}: {self.reason}"


@dataclass(frozen=True)
class NodeMoved(RecordedEvent):
    """A node with a lost host starts on another one, the ``target``; None: on none. ``checkpoint``: its age in seconds;
    None if there is none."""

    NAME = "moved"
    KEYS: ClassVar[Mapping[str, str]] = {"source": "from", "target": "to"}

    node: str | None = None
    source: str | None = None
    target: str | None = None
    reason: str | None = None
    checkpoint: float | None = None

    def __str__(self) -> str:
        if self.target is None:
            return f"{self.node} cannot move from {self.source}: {self.reason}"
        if isinstance(self.checkpoint, int | float):
            checkpoint = f"its checkpoint of {text.duration(self.checkpoint)} before"
        else:
            checkpoint = "no checkpoint"
        return f"{self.node} moves from {self.source} to {self.target}, with {checkpoint}: {self.reason}"


@dataclass(frozen=True)
class Checked(RecordedEvent):
    """The result of a plug-in's check when the run has ended: "pass", "fail" or "unknown", and a sentence."""

    NAME = "checked"

    name: str
    verdict: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Injected(RecordedEvent):
    """A manual fault starts. ``via``: the tool of the user. ``written``: the rule of a scenario that repeats it.
    ``planned``: what plan.json would have of it."""

    NAME = "injected"

    fault: int
    user: str
    uid: int | None = None
    via: str = ""
    written: dict[str, Any] | None = None
    planned: dict[str, Any]


@dataclass(frozen=True)
class AddressChanged(RecordedEvent):
    """A node has new addresses."""

    NAME = "new address"
    KEYS: ClassVar[Mapping[str, str]] = {
        "former": "from",
        "present": "to",
        "former_ipv6": "from_ipv6",
        "present_ipv6": "to_ipv6",
    }

    node: str
    former: str
    present: str
    former_ipv6: str
    present_ipv6: str


@dataclass(frozen=True)
class EdgeChanged(RecordedEvent):
    """A device has moved to another edge."""

    NAME = "new edge"
    KEYS: ClassVar[Mapping[str, str]] = {"former": "from", "present": "to"}

    node: str
    former: str
    present: str


@dataclass(frozen=True)
class StackInForce(RecordedEvent):
    """The settings of a node's `stack` as its kernel has them, by name. In the record they are next to the ``node``."""

    NAME = "stack"

    node: str
    settings: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, **self.settings}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        settings = {name: value for name, value in data.items() if name != "node"}
        return cls(data["node"], settings)

    def refused(self, configured: Mapping[str, str]) -> list[str]:
        """In a few words, each configured setting that is not in force."""
        refused = []
        for name, value in configured.items():
            in_force = self.settings.get(name)
            if in_force is None:
                refused.append(f"{name} unknown and not {value}")
            elif in_force != value:
                refused.append(f"{name} {in_force} and not {value}")
        return refused
