"""A whole run: its nodes are containers of a Docker Engine, its links are shaped by the kernel's netem."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import permutations
from pathlib import Path

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.results.record.history import History
from orchestrator.results.traffic import volumes
from tests.e2e.engine import Place, at, own_daemon, with_image
from tests.e2e.harness import traces_of, up
from tests.lab.conftest import IMAGE, RESULTS
from tests.lab.image import mount_image
from tests.lab.inside.chance import by_chance

pytestmark = pytest.mark.e2e

SCENARIO = """\
# Do containers learn over links that the kernel shapes?
name: containers
seed: 7
algorithm: {name: fedavg, rounds: 2, epochs: 2, learning_rate: 0.2}
data: {dataset: digits, partition: iid}
model: mlp
topology: {devices: 1, cloud: true}
links:
  device-cloud: {latency: 100ms, loss: 3%}
driver: docker
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A Docker Engine with an image of nodes; in a guest, one whose files are the host's."""
    if RESULTS not in os.environ:
        with with_image() as found:
            yield found
        return
    with own_daemon() as daemon:
        found = Place(daemon.address, "edgebed-test:lab", daemon)
        with at(found.address), closing(Engine.connect()) as engine:
            mount_image(engine.client, found.image, Path(os.environ[RESULTS], IMAGE))
        yield found


def interfaces() -> set[str]:
    shown = subprocess.run(["ip", "-json", "link", "show"], capture_output=True, text=True, check=True).stdout
    return {each["ifname"] for each in json.loads(shown)}


@by_chance  # each loss that is probed may be judged wrongly once in a hundred times
def test_containers_learn_over_links_of_the_kernel(
    tmp_path: Path, engine: Engine, note: Callable[[str, object, object], None]
) -> None:
    before = interfaces()
    result = up(tmp_path, SCENARIO, timeout=240)
    summary = result.summary
    assert summary, result.errors
    assert [check for check in summary["checks"] if check["verdict"] != "pass"] == [], result.errors
    assert (result.code, summary["verdict"]) == (0, "pass")
    assert (summary["driver"], summary["links"]) == ("docker", "kernel")  # as the tryout found
    assert (summary["ended"], summary["rounds"]) == ("rounds", 2)
    assert summary["accuracy"]["global"] > 0.5  # ten classes: guessing gives 0.1

    run = Path(summary["run"])
    with closing(History.open(run)) as history:
        (rtt,) = [each for each in history.probes() if each.quantity == "rtt"]
        counted = {(each.source, each.target): each for each in volumes.link_counters(history)}
    assert rtt.measured is not None
    assert rtt.measured == pytest.approx(0.2, abs=0.005)
    links = list(permutations(("cloud", "device-0"), 2))
    assert sorted(counted) == sorted(links)
    lost, offered = (sum(getattr(each, key) for each in counted.values()) for key in ("lost", "offered"))
    assert 0 < lost < 0.1 * offered
    note("containers: round trip (ms)", 200, f"{rtt.measured * 1e3:.3f}")
    note(f"containers: lost of {offered}", "3 %", f"{lost}, {lost / offered:.1%}")

    assert engine.containers(run.name) == []
    assert traces_of(run.name) == []
    assert interfaces() == before
