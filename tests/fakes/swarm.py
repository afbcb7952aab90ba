"""Fakes of a swarm: of `Cluster`, and of the Engine's API that it uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.drivers.swarm.cluster import STANDING, SwarmHost
from orchestrator.drivers.swarm.standing import NAME
from orchestrator.errors import HostError
from orchestrator.host.docker_socket import DIRECTORY, RUN


class FakeCluster:
    """See `Cluster`, on the host "pc-1". tests/conformance runs the suite of clusters over it.

    silent    hosts whose agents do not answer when they are to end
    swept     hosts that were swept, and whether of data sets
    """

    def __init__(self, members: Sequence[SwarmHost] = (), standing: dict[str, str] | None = None) -> None:
        self.silent: list[str] = []
        self.swept: list[tuple[list[str], bool]] = []
        self._members = sorted(members, key=lambda each: each.name)
        self._labels: dict[str, dict[str, str]] = {} if standing is None else {NAME: standing}
        self._marks: dict[str, Path] = {}

    @property
    def standing(self) -> dict[str, str] | None:
        """The labels of agents that were left running."""
        return self._labels.get(NAME)

    @standing.setter
    def standing(self, labels: dict[str, str]) -> None:
        self._labels[NAME] = labels

    def close(self) -> None:
        pass

    def id(self) -> str:
        return "s0"

    def here(self) -> tuple[str, str]:
        return "pc-1", "127.0.0.1"

    def members(self) -> list[SwarmHost]:
        return self._members

    def start_agents(
        self,
        run: str,
        directory: Path,
        *_: Any,
        hosts: Collection[str] | None = None,
        further: Mapping[str, str] | None = None,
        **__: Any,
    ) -> None:
        if missing := set(hosts or ()) - {each.name for each in self._members}:
            raise HostError(f"the swarm has no host {', '.join(sorted(missing))}")
        self._labels[run] = {RUN: run, DIRECTORY: str(directory), **(further or {})}

    def mark(self, run: str, directory: Path) -> None:
        self._marks[run] = directory

    def runs(self) -> dict[str, Path]:
        of_agents = {run: Path(of[DIRECTORY]) for run, of in self._labels.items() if STANDING not in of and run != NAME}
        return of_agents | self._marks

    def labels(self, run: str) -> dict[str, str] | None:
        return self._labels.get(run)

    def stop_agents(self, run: str) -> list[str]:
        self._labels.pop(run, None)
        self._marks.pop(run, None)
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
