"""The versions that a bug report needs."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

from orchestrator.verbs.doctor import PACKAGES


def versions() -> dict[str, str]:
    """The versions of edgebed, Python, the system and the packages that edgebed is built on. ``-``: not installed."""
    found = {"edgebed": _version("edgebed"), "python": f"{platform.python_version()} ({sys.executable})"}
    return (
        found | {"system": platform.platform()} | {name: _version(name) for name in (*PACKAGES, "torch", "torchvision")}
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "-"
