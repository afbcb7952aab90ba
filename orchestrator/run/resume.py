"""What a run that is continued has behind it, from its record and its checkpoints; nothing, for one that begins."""

from __future__ import annotations

from dataclasses import dataclass

from node.errors import CheckpointError
from node.runtime.checkpoint import checkpoint_path, load
from orchestrator import text
from orchestrator.errors import RunError
from orchestrator.host.directory import RunDirectory
from orchestrator.results.history import History
from orchestrator.results.rows import COMPLETE, FaultSpan

_ENDINGS = {
    "killed": "its orchestrator had been killed",
    "interrupted": "it had been interrupted",
    "failed": "it had failed",
}


@dataclass(frozen=True)
class Past:
    """``seconds`` the run has lasted, of which it has trained for ``training``; ``round`` is the last one that a
    leading node has begun, ``kept`` are those after which they go on. ``ended`` says how it came to its end."""

    seconds: float = 0.0
    training: float = 0.0
    round: int = 0
    kept: tuple[int, ...] = ()
    faults: tuple[FaultSpan, ...] = ()
    ended: str = ""
    wall_seconds: float = 0.0

    def notes(self) -> list[str]:
        """What whoever reads the report should know."""
        if not self.ended:
            return []
        first, last = min(self.kept), max(self.kept)
        rounds = f"round {first}" if first == last else f"rounds {first} to {last} of the leading nodes"
        return [
            f"continued after {rounds}, at {self.seconds:.1f} s, where {_ENDINGS[self.ended]}: nodes without "
            "a checkpoint began anew, and what was on its way was lost"
        ]

    @property
    def left(self) -> set[str]:
        """The nodes that have left for good."""
        return self._hit_by("leave")

    @property
    def joined(self) -> set[str]:
        """The nodes that came later, and are there now."""
        return self._hit_by("join")

    def _hit_by(self, action: str) -> set[str]:
        hit = [span for span in self.faults if span.action == action and span.start is not None]
        return {node for span in hit for node in span.nodes}


NOTHING = Past()


def past_of(directory: RunDirectory) -> Past:
    """The past of a run that ended early. RunError if there is nothing to continue, or nothing to continue from."""
    with History.open(directory.path) as history:
        outcome = history.outcome
        if outcome is not None and outcome.ended in (*COMPLETE, "calibrated"):
            rounds = text.count(history.rounds_done(), "round")
            raise RunError(f"{directory.run} is complete ({rounds}, ended by {outcome.ended}): nothing to continue")
        kept = _kept(directory, history.leaders, history.rounds_planned)
        begun = [each for each in history.rounds() if each.node in history.leaders]
        seconds, began_at = history.seconds, history.training_began
        return Past(
            seconds=seconds,
            training=0.0 if began_at is None else seconds - began_at,
            round=max((each.round for each in begun), default=0),
            kept=kept,
            faults=tuple(history.faults()),
            ended=outcome.ended if outcome is not None else "killed",
            wall_seconds=(outcome.wall if outcome is not None else None) or 0.0,
        )


def _kept(directory: RunDirectory, leaders: tuple[str, ...], rounds: int | None) -> tuple[int, ...]:
    """The round that each leading node's checkpoint holds, 0 without one. RunError if none has one."""
    try:
        checkpoints = [load(checkpoint_path(directory.checkpoints_of(node), node), rounds) for node in leaders]
    except (CheckpointError, OSError) as error:
        raise RunError(f"{directory.run} cannot be continued: {error}") from None
    if not any(checkpoints):
        raise RunError(
            f"{directory.run} cannot be continued: {text.some(leaders)} had no checkpoint yet; `up` its scenario anew"
        )
    return tuple(0 if checkpoint is None else checkpoint.round for checkpoint in checkpoints)
