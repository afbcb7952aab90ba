"""What a link engine offers the run: attach a node, shape a link, cut it, count what crossed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from netem.profile import LinkProfile
from orchestrator.planning.plan import LinkPlan, NodePlan

LinkRow = dict[str, int | float | str]  # source, target, the record's COUNTERS, and what of the losses was asked for


@dataclass(frozen=True)
class Handle:
    """Where one life of a node is, as its driver knows it: process ``pid`` of ``host``, this one where that is empty.

    The fabric finds the node's network namespace by it; for everybody else it only tells a node's lives apart. ``pid``
    is 0 where the process ended before anybody could see it.
    """

    pid: int
    host: str = ""


@dataclass(frozen=True)
class LinkChange:
    """One thing to do to a link: give it another ``profile``, or ``cut`` it (True), or undo that (False)."""

    source: str
    target: str
    profile: LinkProfile | None = None
    cut: bool | None = None


NO_COUNTS = ("source", "target", "others_too")


def since(row: LinkRow, before: LinkRow | None) -> LinkRow:
    """What a link counted since an earlier reading; all of it if the link has begun anew since then."""
    if before is None or int(row["offered"]) < int(before["offered"]):
        return row
    return {key: value if key in NO_COUNTS else _difference(value, before[key]) for key, value in row.items()}


def _difference(now: int | float | str, before: int | float | str) -> int | float:
    assert not isinstance(now, str)
    assert not isinstance(before, str)
    return now - before


@dataclass(frozen=True)
class Counted:
    """Cumulative counters of links, all that have changed at least, and how well the engine itself keeps up.

    forwarded    packets the engine has sent
    late         of them, since the last reading, how many left more than `netem.switch.LATE` late
    late_max     seconds, the latest since the last reading
    drops        packets the engine has lost though nobody asked for it, by where
    cpu_seconds  that the engine has used
    """

    links: Sequence[LinkRow]
    forwarded: int = 0
    late: int = 0
    late_max: float = 0.0
    drops: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0


class Fabric(Protocol):
    """A link engine. Links are directed; a pair with no link exchanges nothing."""

    engine: str

    def notes(self) -> list[str]:
        """What of the links' settings this engine could not honour here, in words for the record."""

    async def attach(self, node: NodePlan, handle: Handle) -> None:
        """Give the network namespace of a node its interface data0; again after a restart."""

    async def detach(self, node: NodePlan) -> None:
        """Forget a node that is gone."""

    async def shape(self, links: Sequence[LinkPlan]) -> None:
        """Make these links, or change them in place where they exist."""

    async def alter(self, changes: Sequence[LinkChange]) -> list[Exception | None]:
        """Do all of this at one moment, in order; for each what went wrong, None if nothing did.

        A change of profile is in place: it loses nothing that is in flight. A cut lets nothing cross, and drops what is
        in flight.
        """

    async def change(self, source: str, target: str, profile: LinkProfile) -> None:
        """``alter`` one link's profile. Calls at the same time become one ``alter``; so for ``cut`` and ``restore``."""

    async def cut(self, source: str, target: str) -> None:
        """Let nothing cross from source to target until ``restore``."""

    async def restore(self, source: str, target: str) -> None:
        """Undo ``cut``."""

    async def counters(self) -> Counted:
        """Read the counters."""

    async def watch(self) -> None:
        """Wait until something breaks that the engine cannot do without, and raise that as OrchestratorError."""

    async def close(self) -> None:
        """Take everything down."""
