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


def candidates(engine: str, beyond_kernel: str = "", *, media: bool = False) -> tuple[str, ...]:
    """The candidate engines for a value of ``engine``. ``beyond_kernel``: what the kernel engine cannot do of the
    scenario's media, see `orchestrator.scenario.media.kernel`. ``media``: links share media; then auto is userspace,
    which has every rule, and whose checks of media were calibrated."""
    if engine == "auto" and media:
        return ("userspace",)
    return tuple(name for name in ENGINES[engine] if not (beyond_kernel and name == "kernel"))


if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[tuple(ENGINES)]
