"""What is to come in a run: its end, and the next planned fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from orchestrator import text


class TimeLeft(NamedTuple):
    """The seconds until a run ends: by the duration that its scenario allows, or at the pace of its latest rounds."""

    seconds: float
    of: Literal["time", "rounds"]

    def __str__(self) -> str:
        return f"{'about' if self.of == 'rounds' else 'at most'} {text.duration(self.seconds)} left"


class NextFault(NamedTuple):
    """The next planned fault, as in plan.json: it is due in so many ``seconds``, or in a ``round``."""

    planned: dict[str, Any]
    seconds: float | None
    round: int | None

    def __str__(self) -> str:
        return f"{fault_in_words(self.planned)} {self.when}"

    @property
    def when(self) -> str:
        return f"in round {self.round}" if self.seconds is None else f"in {text.duration(self.seconds)}"


def fault_in_words(fault: Mapping[str, Any]) -> str:
    """A fault of plan.json, without its time."""
    sides = " | ".join(text.some(side) for side in fault["between"] or ())
    return f"{fault['action']} {fault.get('node') or fault.get('medium') or sides}"
