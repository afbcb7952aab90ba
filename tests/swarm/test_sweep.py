"""A sweep as a job of a swarm of three hosts."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import ROOT, SMALL, command, wait_for
from tests.swarm.engines import IMAGE, Engines

pytestmark = pytest.mark.e2e

PLUGIN = """\
import edgebed

PLUGIN = edgebed.Plugin(profiles={"slow": {"latency": "30ms", "rate": "5mbit"}})
"""
SWEEP = """\
scenario: small.yaml
cases:
  small: {}
  slow: {links.device-edge: slow}
seeds: [1, 2]
target: {accuracy: 50%}
"""


def words(*arguments: str) -> list[str]:
    return command("sweep", "mine.yaml", "--driver", "sim", "--json", *arguments)


def table(said: str) -> list[dict[str, Any]]:
    """The cases without the figures that a host's own clock tells."""
    return [
        {
            "case": case["case"],
            "figures": {name: spread for name, spread in case["figures"].items() if name != "wall_seconds"},
            "verdicts": [each["verdict"] for each in case["runs"]],
        }
        for case in json.loads(said)["cases"]
    ]


@pytest.mark.usefixtures("on_engines")
def test_tasks_on_three_hosts_give_the_table_of_one_though_an_engine_is_killed(
    tmp_path: Path, engines: Engines
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL.replace("links:", "plugins: [links.py]\nlinks:"))
    (tmp_path / "links.py").write_text(PLUGIN)
    (tmp_path / "mine.yaml").write_text(SWEEP)
    manager = [*engines.manager.enter(), "env", f"--chdir={tmp_path}", f"PYTHONPATH={ROOT}"]
    lost, killed, lines = engines.hosts[2], False, list[str]()
    on_swarm = [*manager, *words("--on", "swarm", "--image", IMAGE)]
    with subprocess.Popen(on_swarm, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
        assert sweep.stderr is not None
        assert sweep.stdout is not None
        for line in sweep.stderr:
            lines.append(line)
            if line.endswith("running on c\n") and not killed:
                killed = True
                lost.daemon.kill()
                lost.daemon.start()  # Swarm repeats the task when its host is back
        said = sweep.stdout.read()
    assert sweep.returncode == 0, "".join(lines)
    assert killed, lines
    here = subprocess.run([*manager, *words("--runs", "here")], capture_output=True, text=True, check=True)
    assert table(said) == table(here.stdout)
    (name,) = re.findall(r"`docker service rm (\S+)` ends it", lines[0])
    subprocess.run([*manager, "docker", "service", "rm", name], capture_output=True, check=True)
    with closing(engines.manager.daemon.client()) as client:
        wait_for(lambda: not client.services.list() or None, "the end of the job")
