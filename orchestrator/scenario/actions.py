"""The actions of faults. The command line offers them, so this module imports little."""

from __future__ import annotations

from typing import Literal, get_args

Action = Literal[
    "crash",
    "power-off",
    "pause",
    "disconnect",
    "partition",
    "degrade",
    "slow",
    "join",
    "leave",
    "handover",
    "new-address",
    "move",
]
ACTIONS: tuple[str, ...] = get_args(Action)
