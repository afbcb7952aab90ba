"""A node for 64-bit Arm, emulated, in a scenario whose other nodes are containers for this machine."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.results.history import History
from tests.e2e import foreign
from tests.e2e.engine import Place, at
from tests.e2e.harness import traces_of, up

pytestmark = pytest.mark.e2e

EMULATED = "device-0-1"
SCENARIO = f"""\
# Does a board's image learn beside those of PCs?
name: foreign
driver: docker
algorithm: {{name: hierfavg, rounds: 2, kappa1: 2, kappa2: 1, learning_rate: 0.2}}
data: {{dataset: digits, partition: iid, samples_per_client: 100, evaluate_samples: 100}}
model: mlp
topology: {{edges: 1, devices_per_edge: 2, cloud: true}}
hardware: {{{EMULATED}: {{image: "{foreign.NAME}"}}}}
gathering: {{quorum: 100%, deadline: 2min, cloud_deadline: 5min}}
timeouts: {{beat: 1s, lost_after: 1min, lease: 1min}}
probe: {{before: false}}
"""

TIMEOUT = 600.0  # s; most of it the start of one node, whose imports are emulated


@pytest.fixture(scope="module")
def board(place: Place) -> Iterator[str]:
    """An image for 64-bit Arm in the Engine, and a kernel that can run it; where CI is set both must be had."""
    give_up = pytest.fail if "CI" in os.environ else pytest.skip
    if platform.machine() != "x86_64":
        pytest.skip(f"on {platform.machine()} an image for 64-bit Arm is none for another processor")
    if missing := [each for each in foreign.NEEDED if shutil.which(each) is None]:
        give_up(f"no image for another processor: that needs {' and '.join(missing)}")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(foreign.emulation())
        except (OSError, subprocess.CalledProcessError) as error:
            give_up(f"programs for 64-bit Arm cannot be emulated here: {error}")
        stack.enter_context(at(place.address))
        foreign.build()
        if place.daemon is None:  # one of our own goes with all it has
            engine = stack.enter_context(closing(Engine.connect()))
            stack.callback(engine.client.images.remove, foreign.NAME, force=True)
        yield foreign.NAME


def test_it_trains_with_nodes_for_this_machine(tmp_path: Path, engine: Engine, board: str) -> None:
    result = up(tmp_path, SCENARIO, timeout=TIMEOUT)
    assert result.summary.get("ended") == "rounds", result
    assert result.summary["verdict"] != "fail", result
    run = Path(result.summary["run"])
    assert engine.containers(run.name) == []
    assert traces_of(run.name) == []
    with History.open(run) as history:
        assert f"image {board} are emulated (arm64 on amd64)" in str(history.events("note"))
        losses = [each.value for each in history.metrics("loss", "train") if each.node == EMULATED]
        assert len(losses) == 2
        assert losses[1] < losses[0]
        sent = {row.kind: row.messages for row in history.traffic() if (row.node, row.direction) == (EMULATED, "sent")}
        assert sent["update"] == 2
