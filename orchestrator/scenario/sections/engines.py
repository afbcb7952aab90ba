"""The link engines that a scenario may request. A new engine is one entry here and one in
`orchestrator.fabric.engines`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

ENGINES: dict[str, tuple[str, ...]] = {
    "auto": ("kernel", "userspace"),
    "userspace": ("userspace",),
    "kernel": ("kernel",),
}
"""The candidate engines for each value of ``engine``: the first that works on the host shapes the links."""

if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[tuple(ENGINES)]
