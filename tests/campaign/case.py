"""A case: a scenario, and when its run is interrupted and continued. As a file it is YAML that `up` takes."""

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
    """The orchestrator gets ``signal`` so many seconds ``after`` a ``round`` begins (0: the training), on the run's
    clock. Then the run is continued."""

    signal: signal.Signals
    after: float
    round: int

    def __str__(self) -> str:
        return f"{self.signal.name} {self.after} s after the beginning of round {self.round}"


@dataclass(frozen=True)
class Case:
    """``name`` is the seed that it was made of, or the name of its file."""

    name: str
    scenario: Mapping[str, Any]
    interruption: Interruption | None = None

    def written(self) -> str:
        """The case as YAML; its first comments name the case and the interruption."""
        lines = [f"# Case {self.name} of tests/campaign."]
        if self.interruption is not None:
            lines.append(f"# interrupted: {self.interruption}")
        text = yaml.safe_dump(dict(self.scenario), sort_keys=False, default_flow_style=None, width=110)
        return "\n".join(lines) + "\n" + text

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file of a case."""
        text = path.read_text(encoding="utf-8")
        found = _INTERRUPTED.search(text)
        interruption = Interruption(signal.Signals[found[1]], float(found[2]), int(found[3])) if found else None
        return cls(path.stem, yaml.safe_load(text), interruption)
