"""The versions that a bug report needs."""

from __future__ import annotations

import platform
import sys

from orchestrator.record.versions import installed_version

PACKAGES = ("pyzmq", "msgpack", "numpy", "pydantic", "docker", "pandas", "starlette", "uvicorn")
LEARNING_PACKAGES = ("torch", "torchvision")


def versions() -> dict[str, str]:
    """The versions of edgebed, Python, the system and the packages that edgebed is built on. ``-``: not installed."""
    found = {name: installed_version(name) or "-" for name in ("edgebed", *PACKAGES, *LEARNING_PACKAGES)}
    system = {"python": f"{platform.python_version()} ({sys.executable})", "system": platform.platform()}
    return {"edgebed": found["edgebed"]} | system | found
