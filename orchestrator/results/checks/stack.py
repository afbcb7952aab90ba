"""The check that nodes with TCP settings of their own had them."""

from __future__ import annotations

from orchestrator import text
from orchestrator.fabric.namespaces.tcp import STACK, refused
from orchestrator.results.checks.verdicts import Assessment, missing
from orchestrator.results.facts import Facts


def stack_as_configured(history: Facts) -> Assessment | None:
    """Check that the settings of `stack` were in force in the nodes' namespaces; None without any."""
    configured = {name: node["stack"] for name, node in history.nodes.items() if node.get("stack")}
    if not configured:
        return None
    if history.simulated:
        return "modelled", "the model of TCP has these settings"
    in_force = [event.data for event in history.events(STACK) if event.node is None]
    if not in_force:
        return missing(history, "no node with settings of its own was started")
    wrong = [f"{found['node']} has {each}" for found in in_force for each in refused(configured[found["node"]], found)]
    if wrong:
        return "fail", f"the kernel refused a setting of `stack`: {text.some(dict.fromkeys(wrong))}"
    return "pass", f"the settings of `stack` are in force at {text.count(len({f['node'] for f in in_force}), 'node')}"
