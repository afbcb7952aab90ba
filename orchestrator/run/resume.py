"""The past of a continued run, from its record and its checkpoints. A fresh run has the past `NOTHING`."""

from __future__ import annotations

from dataclasses import dataclass

from node.errors import CheckpointError
from node.runtime.checkpoint import checkpoint_path, load
from orchestrator import text
from orchestrator.errors import RunError
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import COMPLETE, FaultSpan
from orchestrator.results.history import History
from orchestrator.results.traffic.volumes import bytes_by_device

_ENDINGS = {
    "killed": "its orchestrator had been killed",
    "interrupted": "it had been interrupted",
    "failed": "it had failed",
}


@dataclass(frozen=True)
class Past:
    """The past of a run.

    ``seconds`` is how long the run has lasted, ``training`` how long it has trained. ``round`` is the last round that a
    leading node has started. ``kept`` has the round after which each leading node continues. ``ended``: how the run
    ended. ``device_bytes``: that all devices together have sent and received in training.
    """

    seconds: float = 0.0
    training: float = 0.0
    round: int = 0
    kept: tuple[int, ...] = ()
    faults: tuple[FaultSpan, ...] = ()
    ended: str = ""
    wall_seconds: float = 0.0
    device_bytes: int = 0

    def notes(self) -> list[str]:
        """Notes for the readers of the report."""
        if not self.ended:
            return []
        first = min(self.kept)
        last = max(self.kept)
        rounds = f"round {first}"
        if first != last:
            rounds = f"rounds {first} to {last} of the leading nodes"
        return [
            f"continued after {rounds}, at {self.seconds:.1f} s, where {_ENDINGS[self.ended]}: nodes without "
            "a checkpoint restarted, and messages in transit were lost"
        ]

    @property
    def left(self) -> set[str]:
        """The nodes that have left for good."""
        return self._hit_by("leave")

    @property
    def joined(self) -> set[str]:
        """The nodes that have joined the run by a fault "join"."""
        return self._hit_by("join")

    def _hit_by(self, action: str) -> set[str]:
        nodes: set[str] = set()
        for span in self.faults:
            if span.action == action and span.start is not None:
                nodes.update(span.nodes)
        return nodes


NOTHING = Past()


def past_of(directory: RunDirectory) -> Past:
    """The past of a run that ended early. RunError if the run is complete or has no checkpoint."""
    with History.open(directory.path) as history:
        outcome = history.outcome
        ended = "killed"
        wall_seconds = None
        if outcome is not None:
            ended = outcome.ended
            wall_seconds = outcome.wall
        if outcome is not None and ended in (*COMPLETE, "calibrated"):
            rounds = text.count(history.rounds_done(), "round")
            raise RunError(f"{directory.run} is complete ({rounds}, ended by {ended}): nothing to continue")
        kept = _kept(directory, history.leaders, history.rounds_planned)
        rounds_begun = []
        for begun in history.rounds():
            if begun.node in history.leaders:
                rounds_begun.append(begun.round)
        seconds = history.seconds
        training_began = history.training_began
        training = 0.0
        if training_began is not None:
            training = seconds - training_began
        device_bytes = [sum(by_kind.values()) for by_kind in bytes_by_device(history).values()]
        return Past(
            seconds=seconds,
            training=training,
            round=max(rounds_begun, default=0),
            kept=kept,
            faults=tuple(history.faults()),
            ended=ended,
            wall_seconds=wall_seconds or 0.0,
            device_bytes=sum(device_bytes),
        )


def _kept(
    directory: RunDirectory,
    leaders: tuple[str, ...],
    rounds: int | None,
) -> tuple[int, ...]:
    """The round in each leading node's checkpoint, 0 without a checkpoint. RunError if no leading node has one."""
    checkpoints = []
    try:
        for node in leaders:
            path = checkpoint_path(directory.checkpoints_of(node), node)
            checkpoints.append(load(path, rounds))
    except (CheckpointError, OSError) as error:
        raise RunError(f"{directory.run} cannot be continued: {error}") from None
    if not any(checkpoints):
        raise RunError(
            f"{directory.run} cannot be continued: {text.some(leaders)} had no checkpoint yet; start its scenario "
            "again with `up`"
        )
    kept = []
    for checkpoint in checkpoints:
        kept.append(0 if checkpoint is None else checkpoint.round)
    return tuple(kept)
