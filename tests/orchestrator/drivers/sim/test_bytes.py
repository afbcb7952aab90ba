from __future__ import annotations

from pathlib import Path

from tests.orchestrator.drivers.sim.harness import simulate

SCENARIO = """\
seed: 7
algorithm: {name: fedavg, rounds: 200, learning_rate: 0.1}
data: {dataset: digits, samples_per_client: 20, evaluate_samples: 20}
model: {name: mlp, hidden: 8}
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 50ms, rate: 1mbit}}
stop: {bytes: 100kb}
"""


def test_a_simulation_ends_with_the_bytes_of_its_devices(tmp_path: Path) -> None:
    """Two directions of 1 Mbit/s to each of two devices carry at most 500 kB a second, and bytes are read once a
    second. The end is that of a time on the virtual clock, the same each time."""
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        run = simulate(folder, SCENARIO)
        assert (run.code, run.summary["ended"]) == (0, "bytes")
        found.append(run.summary["device_bytes"])
    assert found[0] == found[1]
    assert 100_000 <= sum(each["sent"] + each["received"] for each in found[0].values()) < 600_000
