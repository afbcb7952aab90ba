"""Fakes of a swarm: of `Cluster`, and of the Engine's API that it uses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from orchestrator.drivers.swarm.cluster import SwarmHost


class FakeCluster:
    """See `Cluster`, on the host "pc-1". Agents that were left running are there if they have labels.

    silent    hosts whose agents do not answer when they are to end
    running   runs in the swarm
    swept     hosts that were swept, and whether of data sets
    """

    def __init__(self, members: Sequence[SwarmHost] = (), labels: dict[str, str] | None = None) -> None:
        self.standing = labels
        self.silent: list[str] = []
        self.running: list[str] = []
        self.swept: list[tuple[list[str], bool]] = []
        self._members = list(members)

    def close(self) -> None:
        pass

    def id(self) -> str:
        return "s0"

    def here(self) -> tuple[str, str]:
        return "pc-1", "127.0.0.1"

    def members(self) -> list[SwarmHost]:
        return self._members

    def runs(self) -> dict[str, Path]:
        return {run: Path("/runs") / run for run in self.running}

    def labels(self, run: str) -> dict[str, str] | None:
        return self.standing

    def stop_agents(self, run: str) -> list[str]:
        self.standing = None
        return self.silent

    def sweep(self, run: str, directory: Path, hosts: Collection[str], *, data: bool) -> dict[str, str]:
        """See `orchestrator.drivers.swarm.leftovers.sweep`."""
        self.swept.append((list(hosts), data))
        return {}


class FakeSwarmApi:
    """As much of the Engine's API as Cluster uses."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.found = {each["ID"]: each for each in nodes}
        self.made: dict[str, Any] = {}
        self.service_list: list[dict[str, Any]] = []
        self.secret_list: list[dict[str, Any]] = []
        self.task_list: list[dict[str, Any]] = []

    def nodes(self) -> list[dict[str, Any]]:
        return list(self.found.values())

    def create_secret(self, name: str, data: bytes, labels: dict[str, str]) -> dict[str, Any]:
        self.secret_list.append({"ID": f"secret-{name}", "Spec": {"Name": name, "Labels": labels}, "Data": data})
        return {"ID": f"secret-{name}"}

    def create_service(self, template: dict[str, Any], **others: Any) -> None:
        self.made = {"template": template, **others}
        self.service_list.append({"ID": "service", "Spec": {"Labels": others["labels"]}})

    def services(self, filters: dict[str, str]) -> list[dict[str, Any]]:
        return list(self.service_list)

    def secrets(self, filters: dict[str, str]) -> list[dict[str, Any]]:
        return list(self.secret_list)

    def tasks(self, filters: dict[str, str]) -> list[dict[str, Any]]:
        return list(self.task_list)

    def remove_service(self, id: str) -> None:
        self.service_list.clear()

    def remove_secret(self, id: str) -> None:
        self.secret_list = [each for each in self.secret_list if each["ID"] != id]
