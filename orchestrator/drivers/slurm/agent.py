"""Where the agent of a job's step runs, see `orchestrator.drivers.hosts.agents.place`."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.drivers.hosts.agents.place import Place
from orchestrator.drivers.slurm.job import HOST, HOSTS
from orchestrator.record.directory import RunDirectory


def place(directory: str) -> Place:
    """``directory``: that of the run, which all hosts of the job share."""
    path = Path(directory)
    host = os.environ[HOST]
    folder = RunDirectory(path).nodes / HOSTS / host
    folder.mkdir(parents=True, exist_ok=True)
    return Place(host, folder, path.parent)
