"""What a run has in a cluster: a Secret, and a DaemonSet for each host (``agent.yaml``). Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import yaml

from orchestrator.drivers.hosts.agents.settings import FILE, Settings
from orchestrator.planning.hosts.inventory import HostFacts

RUN = "edgebed-run"
ON = "edgebed-host"
"""The label of all objects of a run, and the annotation of a pod with the name of its host, too long for a label."""
FILES = Path("/var/lib/edgebed")  # of the agent
SECRET = Path("/run/secrets/edgebed") / FILE


def objects(hosts: Sequence[HostFacts], settings: Settings, image: str) -> dict[str, Any]:
    """All objects of a run. The pod of a host requests half of its cores and memory, and may use all."""
    run = settings.run
    labels = {RUN: run}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": run, "labels": labels},
        "stringData": {FILE: settings.to_json().decode()},
    }
    path = Path(__file__).with_name("agent.yaml")
    agent = Template(path.read_text())
    sets = []
    for number, host in enumerate(hosts):
        values = {
            "name": f"{run}-{number}",
            "run": run,
            "number": str(number),
            "host": host.name,
            "image": image,
            "cores": f"{host.cores * 1000:.0f}m",
            "half_cores": f"{host.cores * 500:.0f}m",
            "memory": str(host.memory),
            "half_memory": str(host.memory // 2),
            "processors": str(max(1, int(host.cores))),
        }
        in_json = {key: json.dumps(value) for key, value in values.items()}
        manifest = agent.substitute(in_json)
        sets.append(yaml.safe_load(manifest))
    return {"apiVersion": "v1", "kind": "List", "items": [secret, *sets]}
