"""The link engines that a scenario may name: plain data, without heavy imports.

A new engine is one entry here and one in `orchestrator.fabric.engines`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

ENGINES: dict[str, tuple[str, ...]] = {
    "auto": ("kernel", "userspace"),
    "userspace": ("userspace",),
    "kernel": ("kernel",),
}
"""The candidate engines for each value of ``engine``: the first that works on the host shapes the links."""


def candidate_engines(
    engine: str,
    beyond_kernel: str = "",
    *,
    media: bool = False,
) -> tuple[str, ...]:
    """The candidate engines for a value of ``engine``. ``beyond_kernel``: what the kernel engine cannot do, see
    `orchestrator.planning.kernel_engine`. ``media``: links share media; then auto is
    userspace, which has every rule and calibrated checks of media."""
    if engine == "auto" and media:
        return ("userspace",)
    candidates = ENGINES[engine]
    if beyond_kernel:
        return tuple(name for name in candidates if name != "kernel")
    return candidates


if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[tuple(ENGINES)]
