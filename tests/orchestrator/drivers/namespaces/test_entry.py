from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from node.assignment import Assignment, Keypair, PluginSource
from orchestrator.drivers.namespaces.entry import first_to_train
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared

DIRECTORY = RunDirectory(Path("/runs/small-1"))
TEXT = """\
algorithm: {name: hierfavg, rounds: 4}
topology: {edges: 2, devices_per_edge: 2}
"""


def small() -> Plan:
    return make_plan(parse(TEXT, "f.yaml"), prepared())


def test_the_fork_server_gets_the_first_assignment_of_a_device_without_secrets() -> None:
    first = Assignment.from_json(first_to_train(small(), DIRECTORY))
    assert (first.node, first.data.train_key) == ("device-0-0", "device-0-0.train")
    assert (first.keys, first.control_key, first.peers) == (Keypair(public="", secret=""), "", ())


def test_the_fork_server_rehearses_neither_plug_ins_nor_accelerators() -> None:
    """It is not confined, as nodes are, and a fork of a process that has used an accelerator cannot use it."""
    plan = small()
    plugin = PluginSource("mine", "mine", "/mine.py", "")
    on_gpu = tuple(replace(node, device="cuda:0") for node in plan.nodes)
    assert first_to_train(replace(plan, plugins=(plugin,)), DIRECTORY) == ""
    assert first_to_train(replace(plan, nodes=on_gpu), DIRECTORY) == ""
