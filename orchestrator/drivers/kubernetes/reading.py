"""The nodes and pods of a cluster as Kubernetes shows them (`kubectl get ... --output=json`). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.drivers.kubernetes.manifest import ON
from orchestrator.planning.hosts.inventory import ARCHITECTURES, HostFacts, Inventory

Object = Mapping[str, Any]

_UNITS = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
}
for _power, _letter in enumerate("kMGTPE", 1):
    _UNITS[_letter] = 1000.0**_power
for _power, _letter in enumerate("KMGTPE", 1):
    _UNITS[f"{_letter}i"] = 1024.0**_power


def quantity(written: str) -> float:
    """A number of Kubernetes: "1500m" is 1.5, "2Ki" is 2048, "1e3" is 1000."""
    parts = re.fullmatch(r"([\d.]+(?:[eE][+-]?\d+)?)(\D*)", written)
    if parts is None:
        raise ValueError(f"{written!r} is not a quantity of Kubernetes")
    number, unit = parts.groups()
    return float(number) * _UNITS[unit]


def read_inventory(nodes: Iterable[Object]) -> Inventory:
    """The nodes of a cluster as hosts, with the cores and memory that they have for pods."""
    hosts = []
    left_out = {}
    for node in nodes:
        metadata = node["metadata"]
        name = metadata["name"]
        status = node["status"]
        address = _address_of(status)
        refusal = _refusal(node, address)
        if refusal is not None:
            left_out[name] = refusal
            continue
        allocatable = status["allocatable"]
        host = HostFacts(
            name,
            address,
            status["nodeInfo"]["architecture"],
            quantity(allocatable["cpu"]),
            int(quantity(allocatable["memory"])),
            metadata.get("labels", {}),
        )
        hosts.append(host)
    return Inventory(tuple(hosts), left_out=left_out)


def _address_of(status: Object) -> str:
    """The IPv4 address of a node inside the cluster; empty if it has none."""
    for row in status.get("addresses", ()):
        if row["type"] != "InternalIP":
            continue
        address = str(row["address"])
        if ":" not in address:
            return address
    return ""


def _refusal(node: Object, address: str) -> str | None:
    """Why a node cannot be a host; None if it can."""
    spec = node["spec"]
    status = node["status"]
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    if conditions.get("Ready") != "True":
        return "it is not ready"
    if spec.get("unschedulable"):
        return "it is cordoned"
    taints = []
    for taint in spec.get("taints", ()):
        if taint["effect"] != "PreferNoSchedule":
            taints.append(taint["key"])
    if taints:
        return f"it has the taint {', '.join(taints)}"
    architecture = status["nodeInfo"]["architecture"]
    if architecture not in ARCHITECTURES:
        return f"its architecture is {architecture}"
    if not address:
        return "it has no IPv4 address"
    return None


def read_pods(pods: Iterable[Object]) -> dict[str, str]:
    """The states of the pods of agents by their hosts, with the last words of those that failed."""
    states = {}
    for pod in pods:
        status = pod["status"]
        words = [status["phase"].lower(), reason_of(status)]
        for container in status.get("containerStatuses", ()):
            last = container.get("lastState", {}).get("terminated", {})
            words.append(last.get("message", ""))
        host = pod["metadata"]["annotations"][ON]
        states[host] = ": ".join(word.strip() for word in words if word)
    return states


def reason_of(status: Object) -> str:
    """Why a pod waits or has failed; empty if it does not."""
    reasons = [status.get("reason")]
    messages = []
    for container in status.get("containerStatuses", ()):
        state = container["state"]
        details = state.get("waiting") or state.get("terminated") or {}
        reasons.append(details.get("reason"))
    for condition in status.get("conditions", ()):
        if condition["status"] == "False":
            messages.append(condition.get("message"))
    for reason in [*reasons, *messages]:
        if reason not in (None, "Completed"):
            return str(reason)
    return ""
