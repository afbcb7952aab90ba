"""The versions that a bug report needs."""

from __future__ import annotations

import platform
import sys

from orchestrator.record.versions import installed_version

PACKAGES = ("pyzmq", "msgpack", "numpy", "pydantic", "docker", "pandas", "starlette", "uvicorn")
LEARNING_PACKAGES = ("torch", "torchvision")


def versions() -> dict[str, str]:
    """The versions of edgebed, Python, the system and the packages that edgebed is built on. ``-``: not installed."""
    python = f"{platform.python_version()} ({sys.executable})"
    listed = {"edgebed": _version("edgebed")}
    listed["python"] = python
    listed["system"] = platform.platform()
    for package in (*PACKAGES, *LEARNING_PACKAGES):
        listed[package] = _version(package)
    return listed


def _version(package: str) -> str:
    return installed_version(package) or "-"
