"""What Kubernetes says of the nodes and pods of a cluster (`kubectl get ... --output=json`). Pure."""

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
_UNITS |= {letter: 1000.0**power for power, letter in enumerate("kMGTPE", 1)}
_UNITS |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)}


def quantity(written: str) -> float:
    """A number of Kubernetes: "1500m" is 1.5, "2Ki" is 2048, "1e3" is 1000."""
    found = re.fullmatch(r"([\d.]+(?:[eE][+-]?\d+)?)(\D*)", written)
    if found is None:
        raise ValueError(f"{written!r} is not a quantity of Kubernetes")
    return float(found[1]) * _UNITS[found[2]]


def read_inventory(nodes: Iterable[Object]) -> Inventory:
    """The nodes of a cluster as hosts, with the cores and memory that they have for pods."""
    hosts = []
    left_out = {}
    for node in nodes:
        name = node["metadata"]["name"]
        spec = node["spec"]
        status = node["status"]
        architecture = status["nodeInfo"]["architecture"]
        labels = node["metadata"].get("labels", {})
        inside = (each["address"] for each in status.get("addresses", ()) if each["type"] == "InternalIP")
        address = next((each for each in inside if ":" not in each), "")
        taints = [each["key"] for each in spec.get("taints", ()) if each["effect"] != "PreferNoSchedule"]
        conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
        reasons = {
            "it is not ready": conditions.get("Ready") != "True",
            "it is cordoned": bool(spec.get("unschedulable")),
            f"it has the taint {', '.join(taints)}": bool(taints),
            f"its architecture is {architecture}": architecture not in ARCHITECTURES,
            "it has no IPv4 address": not address,
        }
        found = [reason for reason, applies in reasons.items() if applies]
        if found:
            left_out[name] = found[0]
        else:
            cores, memory = (quantity(status["allocatable"][what]) for what in ("cpu", "memory"))
            hosts.append(HostFacts(name, address, architecture, cores, int(memory), labels))
    return Inventory(tuple(hosts), left_out=left_out)


def read_pods(pods: Iterable[Object]) -> dict[str, str]:
    """The states of the pods of agents by their hosts, with the last words of those that failed."""
    states = {}
    for pod in pods:
        status = pod["status"]
        last = [each.get("lastState", {}).get("terminated", {}) for each in status.get("containerStatuses", ())]
        words = [status["phase"].lower(), reason_of(status), *(each.get("message", "") for each in last)]
        states[pod["metadata"]["annotations"][ON]] = ": ".join(each.strip() for each in words if each)
    return states


def reason_of(status: Object) -> str:
    """Why a pod waits or has failed; empty if it does not."""
    states = [each["state"] for each in status.get("containerStatuses", ())]
    details = [each.get("waiting") or each.get("terminated") or {} for each in states]
    reasons = [status.get("reason"), *(each.get("reason") for each in details)]
    reasons += [each.get("message") for each in status.get("conditions", ()) if each["status"] == "False"]
    return next((each for each in reasons if each not in (None, "Completed")), "")
