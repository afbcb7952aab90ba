"""A case: a scenario, and the time at which its run is interrupted and continued. Its file is YAML for `up`."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

_INTERRUPTED = re.compile(r"^# interrupted: (\S+) (\S+) s after the beginning of round (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Interruption:
    """An interruption: the orchestrator gets ``signal`` ``after`` seconds of the run's clock from the start of a
    ``round`` (0: the training). Then the run is continued."""

    signal: signal.Signals
    after: float
    round: int

    def __str__(self) -> str:
        return f"{self.signal.name} {self.after} s after the beginning of round {self.round}"


@dataclass(frozen=True)
class Case:
    """A case. ``name`` is its seed, or the name of its file."""

    name: str
    scenario: Mapping[str, Any]
    interruption: Interruption | None = None

    def written(self) -> str:
        """The case as YAML; the first comments name the case and the interruption."""
        lines = [f"# Case {self.name} of tests/campaign."]
        if self.interruption is not None:
            lines.append(f"# interrupted: {self.interruption}")
        text = yaml.safe_dump(dict(self.scenario), sort_keys=False, default_flow_style=None, width=110)
        return "\n".join(lines) + "\n" + text

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a case from a file."""
        text = path.read_text(encoding="utf-8")
        found = _INTERRUPTED.search(text)
        interruption = Interruption(signal.Signals[found[1]], float(found[2]), int(found[3])) if found else None
        return cls(path.stem, yaml.safe_load(text), interruption)
