"""The link engines that a scenario may ask for, and which of them it may get. A new engine is one entry here and one in
`orchestrator.fabric.engines`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

ENGINES: dict[str, tuple[str, ...]] = {
    "auto": ("kernel", "userspace"),
    "userspace": ("userspace",),
    "kernel": ("kernel",),
}
"""For each word the engines that may shape the links: the first of them that works on the host does."""

if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[tuple(ENGINES)]
