"""Where the agent of a pod runs, see `orchestrator.drivers.hosts.agents.place`."""

from __future__ import annotations

import os
import shutil

from orchestrator.drivers.hosts.agents.place import Place
from orchestrator.drivers.hosts.agents.settings import HOST
from orchestrator.drivers.kubernetes.manifest import FILES, SECRET


def place() -> Place:
    """The orchestrator has put the settings into a secret of this pod."""
    folder = FILES / "agent"
    shutil.rmtree(folder, ignore_errors=True)  # an agent that was killed has left it
    folder.mkdir()
    return Place(os.environ[HOST], folder, FILES, SECRET.read_bytes())
