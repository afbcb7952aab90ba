"""Where an agent runs that makes namespaces. A driver's module says it with a function ``place``, which takes the words
after the name of the module in `python -m orchestrator.agent serve MODULE [WORD]...`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """``host``: the name of the agent's host. ``folder``: that of its files, which exists. ``runs``: the folder of all
    runs, which nodes do not see. ``settings``: the agent's `Settings` as a line; None if they are the first line of its
    input."""

    host: str
    folder: Path
    runs: Path
    settings: bytes | None = None
