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

SHARE_MEDIA = frozenset({"userspace"})
"""The engines whose links can share media, see `orchestrator.fabric.base.SharesMedia`."""


def candidates(engine: str, *, media: bool) -> tuple[str, ...]:
    """The candidate engines for a value of ``engine``. ``media``: only those whose links can share media."""
    return tuple(name for name in ENGINES[engine] if not media or name in SHARE_MEDIA)


if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[tuple(ENGINES)]
