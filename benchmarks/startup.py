"""The time until N nodes are started and registered, against N Python processes that only import torch.

    python -m benchmarks.startup [N ...]        (default 25 101)

Prints one JSON object. The limit is measured in the same run; each of its processes ends after the import.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from orchestrator.results.history import History

SCENARIO = """\
# How long does it take to start {nodes} nodes?
name: startup
algorithm: {{name: hierfavg, rounds: 1, kappa1: 1, kappa2: 1}}
data: {{dataset: digits, partition: iid}}
model: cnn
topology: {{edges: 4, devices_per_edge: {devices}, cloud: true}}
probe: {{before: false}}
"""


def ours(nodes: int) -> dict[str, Any]:
    """Measure a whole run of one cloud, four edges, and devices; times count from the start of the command."""
    devices, rest = divmod(nodes - 5, 4)
    if rest:
        raise SystemExit(
            f"{nodes} nodes are not a cloud, four edges and equally many devices each: try {5 + 4 * devices}"
        )
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "startup.yaml"
        scenario.write_text(SCENARIO.format(nodes=nodes, devices=devices))
        began = time.time()
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "up", scenario, "--runs", folder, "--json"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,  # on a busy host the verdict is not a pass
        )
        run = Path(json.loads(done.stdout)["run"])
        with History.open(run) as history:
            registered = [state.t for state in history.states() if state.state == "registered"]
            before = (run / "plan.json").stat().st_mtime - began
            at_end = {each.node: each.pss for each in history.resources() if each.pss is not None}
    return {
        "registered_s": before + max(registered),
        "of_that_before_the_first_process_s": before,
        "pss_mb_a_node_after_training": sum(at_end.values()) / len(at_end) / 1e6 if at_end else None,
    }


def theirs(nodes: int) -> float:
    """The seconds until N processes have imported torch, one per core at a time: all at once is slower."""
    began = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda _: subprocess.run([sys.executable, "-c", "import torch"], check=True), range(nodes)))
    return time.perf_counter() - began


def main(sizes: list[int]) -> None:
    result = {}
    for nodes in sizes:
        mine, limit = ours(nodes), theirs(nodes)
        result[str(nodes)] = {**mine, "processes_importing_torch_s": limit, "ratio": mine["registered_s"] / limit}
    print(json.dumps({"benchmark": "startup", "nodes": result}))


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [25, 101])
