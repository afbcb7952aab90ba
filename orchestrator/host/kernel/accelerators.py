"""The accelerators of a host, by what its kernel shows. It tells neither whether containers can use them, nor whether
they work.

The driver of NVIDIA's cards lists them in /proc (its README, "Using the /proc File System Interface"). The GPU of a
Jetson is none of them. It has device files (NVIDIA's container runtime has them in its devices.csv).
"""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.host.kernel.small_files import text_of

JETSON = "dev/nvhost-gpu", "dev/nvmap"
DEVICE_FILES = "dev/nvidia*", "dev/nvhost-*", "dev/nvmap", "dev/nvgpu", "dev/nvsciipc"
"""Cards have the first, Jetsons the others; ``nvidia-caps`` and ``nvgpu`` are folders."""

JETSON_GPU = "NVIDIA GPU of a Jetson"
CARD = "NVIDIA GPU"


def accelerators(root: Path = Path("/")) -> tuple[str, ...]:
    """The names of the accelerators below ``root``, which holds dev and proc; equal ones again and again."""
    cards = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    if cards:
        return tuple(_model(card) for card in cards)
    if any((root / each).exists() for each in JETSON):
        return (JETSON_GPU,)
    return tuple(CARD for each in root.glob("dev/nvidia*") if re.fullmatch(r"nvidia\d+", each.name))


def device_files(root: Path = Path("/")) -> tuple[str, ...]:
    """The device files by which a process uses NVIDIA's accelerators, in order."""
    found = {each for pattern in DEVICE_FILES for each in root.glob(pattern)}
    return tuple(f"/{each.relative_to(root)}" for each in sorted(found))


def _model(information: Path) -> str:
    """The line "Model:"; a driver that is about to end may not tell it."""
    found = re.search(r"^Model:\s*(.*?)\s*$", text_of(information) or "", re.MULTILINE)
    return found[1] if found and found[1] else CARD
