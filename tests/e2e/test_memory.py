"""A node that needs more memory than its hardware has, in whole runs."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.host.kernel.cgroups import writable_hierarchies
from orchestrator.results.history import History
from tests.e2e.harness import THREE, up

pytestmark = pytest.mark.e2e

GREEDY = """\
import edgebed
from node.algorithms import fedavg


class Device(fedavg.Client):
    async def answer(self, w, t):
        await self.checkpoint(t, w)  # after the last one is written
        if self.name == "device-0" and t == 2 and self.restored is None:  # not after its restart
            b"x" * (600 << 20)
        await super().answer(w, t)


ROLES = fedavg.ROLES | {"device": Device}
PLUGIN = edgebed.Plugin(algorithms=[edgebed.Algorithm("greedy", flat=True)])
"""


PROGRAMS = f"""
topology: {{cloud: true, edges: 0, devices: 1}}
hardware: {{device: {{class: host, memory: 64mib}}}}
programs:
  cloud: {{command: sleep 3, ends_the_run: true}}
  device: {{command: [{sys.executable}, -c, "b'x' * (600 << 20)"]}}
restart: never
probe: {{before: false}}
"""


def needs_control_groups() -> None:
    if not any("memory" in hierarchy.controllers for hierarchy in writable_hierarchies()):
        pytest.skip("control groups for memory cannot be made here: that needs root")


def exhaust(tmp_path: Path, driver: str) -> None:
    """Run it, and check that the restart rule, the record and the verdict know what happened."""
    (tmp_path / "greedy.py").write_text(GREEDY)
    scenario = THREE.replace("name: fedavg", "name: greedy") + (
        f"plugins: [greedy.py]\ndriver: {driver}\nhardware: {{device: {{class: host, memory: 512mib}}}}\n"
        "probe: {before: false}\n"
    )
    result = up(tmp_path, scenario, timeout=300)
    assert (result.code, result.summary["rounds"]) == (3, 3), result.errors
    with closing(History.open(Path(result.summary["run"]))) as history:
        states = [each.state for each in history.states() if each.node == "device-0"]
        (event,) = history.events("out of memory")
    assert (event.node, event.data) == ("device-0", {"limit": 512 << 20})
    end = states.index("crashed")
    assert states[end : end + 3] == ["crashed", "restarting", "starting"]
    (check,) = [each for each in result.summary["checks"] if each["name"] == "no unplanned failures"]
    assert check["verdict"] == "fail"
    assert "device-0 at" in check["detail"]
    assert "(out of memory: its limit is 512mib)" in check["detail"]


def test_a_process_out_of_memory_is_restarted_and_the_verdict_names_it(tmp_path: Path) -> None:
    needs_control_groups()
    exhaust(tmp_path, "namespaces")


def test_a_program_out_of_memory_takes_its_node_down(tmp_path: Path) -> None:
    needs_control_groups()
    result = up(tmp_path, PROGRAMS)
    with closing(History.open(Path(result.summary["run"]))) as history:
        (detail,) = [each.detail for each in history.states() if each.state == "crashed"]
    assert detail.startswith("out of memory: its limit is")
    assert "on device-0 ended (out of memory)" in detail


def test_a_container_out_of_memory_is_restarted_and_the_verdict_names_it(tmp_path: Path, engine: Engine) -> None:
    exhaust(tmp_path, "docker")
