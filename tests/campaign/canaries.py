"""Planted defects, at least one for each invariant. They test that the campaign detects defects."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Canary:
    """A defect. ``plant`` puts it into this process; ``found_by`` names the invariant that must detect it."""

    found_by: str
    plant: Callable[[], None]


def _keys_stay() -> None:
    """The folder of the nodes' secret keys is not removed."""
    from orchestrator.record.directory import RunDirectory

    RunDirectory.remove_keys = lambda self: shutil.rmtree(self.control, ignore_errors=True)  # type: ignore[method-assign]


def _never_awaited() -> None:
    """A coroutine is created and never awaited."""
    from orchestrator.run.monitor import Monitor

    Monitor.glance = lambda self: self.sample() and None  # type: ignore[assignment, method-assign]


def _wrong_code() -> None:
    """A run that passes ends with the exit code of a failed check."""
    import orchestrator.report.judgement

    orchestrator.report.judgement.EXIT_CODE_OF_VERDICT["pass"] = 3


def _time_goes_back() -> None:
    """Some events are recorded a second early."""
    from orchestrator.record.writer import Record

    event = Record.event

    def early(self: Record, t: float, node: str | None, name: str, *rest: Any) -> None:
        event(self, t - (name == "round"), node, name, *rest)

    Record.event = early  # type: ignore[assignment, method-assign]


def _round_swallowed() -> None:
    """The second round of a coordinator is not reported."""
    from node.role import Role

    in_round = Role.in_round

    def silent(self: Role, t: int) -> Any:
        told = in_round(self, t)
        if t != 2:
            return told

        def nothing() -> Iterator[None]:
            yield

        import contextlib

        return contextlib.contextmanager(nothing)()

    Role.in_round = silent  # type: ignore[assignment, method-assign]


def _fault_without_end() -> None:
    """A fault is not undone at its end."""
    from orchestrator.run.control.injection import FaultInjector

    async def nothing(*_: object) -> None: ...

    FaultInjector._end = nothing  # type: ignore[assignment, method-assign]


def _restore_lost() -> None:
    """The fabric ignores every restore: a link that was cut stays cut."""
    from orchestrator.drivers.sim.virtual_fabric import ModelFabric

    async def nothing(*_: object) -> None: ...

    ModelFabric.restore = nothing  # type: ignore[assignment, method-assign]


def _told_twice() -> None:
    """A node is told to begin twice."""
    from orchestrator.run.nodes.processes import NodeProcesses

    go = NodeProcesses._start_training

    async def twice(self: NodeProcesses, state: Any) -> None:
        await go(self, state)
        await go(self, state)

    NodeProcesses._start_training = twice  # type: ignore[method-assign]


def _half_counted() -> None:
    """Only half of the sent bytes are counted."""
    from node.messaging.memory import MemoryTransport

    count = MemoryTransport._count

    def half(self: MemoryTransport, peer: str, kind: str, direction: Any, size: int) -> None:
        count(self, peer, kind, direction, size // 2 if direction == "sent" else size)

    MemoryTransport._count = half  # type: ignore[method-assign]


def _more_than_all() -> None:
    """An accuracy is recorded in percent, not as a fraction."""
    from orchestrator.record.writer import Record

    metric = Record.metric

    def wrong(self: Record, t: float, node: str, round: int | None, scope: str, name: str, value: float) -> None:
        metric(self, t, node, round, scope, name, 100 * value if name == "accuracy" else value)

    Record.metric = wrong  # type: ignore[method-assign]


def _check_breaks() -> None:
    """A check raises an exception."""
    from orchestrator.results.checks.registry import CHECKS

    def broken(_: object) -> Any:
        raise KeyError("links")

    CHECKS["links over time"] = broken


def _by_hash() -> None:
    """A seed depends on Python's hash, which differs between processes."""
    import numpy as np

    from node.learning.training import Learner

    def random(self: Learner, purpose: str, round: int) -> np.random.Generator:
        return np.random.default_rng(abs(hash((purpose, round))))

    Learner.random = random  # type: ignore[method-assign]


CANARIES: dict[str, Canary] = {
    "keys-stay": Canary("ends", _keys_stay),
    "never-awaited": Canary("has_no_defect", _never_awaited),
    "wrong-code": Canary("has_its_code", _wrong_code),
    "time-goes-back": Canary("time_goes_on", _time_goes_back),
    "round-swallowed": Canary("rounds_rise", _round_swallowed),
    "fault-without-end": Canary("faults_are_told", _fault_without_end),
    "restore-lost": Canary("peers_meet_again", _restore_lost),
    "told-twice": Canary("states_follow", _told_twice),
    "half-counted": Canary("bytes_add_up", _half_counted),
    "more-than-all": Canary("figures_are_numbers", _more_than_all),
    "check-breaks": Canary("is_judged", _check_breaks),
    "by-hash": Canary("repeats", _by_hash),
}
