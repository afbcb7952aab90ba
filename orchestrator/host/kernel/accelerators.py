"""The accelerators of a host, by what its kernel shows. It shows neither whether containers can use them, nor whether
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
        return tuple(map(_model, cards))
    for file in JETSON:
        if (root / file).exists():
            return (JETSON_GPU,)
    files = root.glob("dev/nvidia*")
    numbered = [file for file in files if re.fullmatch(r"nvidia\d+", file.name)]
    return (CARD,) * len(numbered)


def device_files(root: Path = Path("/")) -> tuple[str, ...]:
    """The device files by which a process uses NVIDIA's accelerators, in order."""
    files: set[Path] = set()
    for pattern in DEVICE_FILES:
        files.update(root.glob(pattern))
    return tuple(f"/{file.relative_to(root)}" for file in sorted(files))


def _model(information: Path) -> str:
    """The name in the line "Model:"; a driver that is about to end may not show it."""
    text = text_of(information) or ""
    line = re.search(r"^Model:\s*(.*?)\s*$", text, re.MULTILINE)
    if line is None or not line[1]:
        return CARD
    return line[1]
