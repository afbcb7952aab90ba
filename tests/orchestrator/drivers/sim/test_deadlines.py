"""The automatic deadline cuts no healthy client off, whatever the algorithm makes it do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.drivers.sim.harness import simulate

SLOW = "{class: raspberry-pi-3, speed: 0.0001}"
FLAT = "topology: {devices: 3}", f"hardware: {{device: {SLOW}, device-2: host}}"
EDGES = "topology: {edges: 3, devices_per_edge: 0}", f"hardware: {{edge: {SLOW}, edge-2: host}}"
TREE = (
    "topology: {edges: 2, devices_per_edge: 2}",
    f"hardware: {{device: {SLOW}, device-1-1: host, edge: host, edge-0: {SLOW}}}",
)
MESH = TREE[0].replace("{", "{cloud: false, "), TREE[1]
FEW = "profile: fast, batch_size: 10, embeddings: 20, docking_epochs: 1, decoder_epochs: 1"
RUNS = {
    **dict.fromkeys(("fedavg", "fedprox", "fednova", "fedfeat"), (FLAT, "epochs: 2")),
    **dict.fromkeys(("hierfavg", "onlyedge", "edgecloud", "phe-fl"), (TREE, "epochs: 2, kappa2: 2")),
    **dict.fromkeys(("feelpgen-minus", "feelpgen", "feelpgen-plus"), (MESH, "profile: fast, participation: 1")),
    "dffke": (EDGES, f"{FEW}, epochs: 1, first_epochs: 2"),
    "fededs": (EDGES, "profile: fast, epochs_max: 2, model_epochs: 1, encryptor_epochs: 2"),
    **dict.fromkeys(("fedproto", "lgfedavg", "fml", "feddistill", "fedkd", "fedgh", "fedtgp"), (FLAT, "epochs: 2")),
    **dict.fromkeys(("fedala", "fedgen", "scaffold", "masked-sum"), (FLAT, "epochs: 2")),
    "sdfeel": (MESH, "epochs: 2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_no_one_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without the allowance of 10 s, deadlines come from transfers and work alone."""
    monkeypatch.setattr("orchestrator.planning.learning.deadlines.ALLOWANCE", 0.0)
    (topology, hardware), params = RUNS[name]
    plugin = Path(__file__).parents[4] / "edgebed" / "baselines" / f"{name.replace('-', '_')}.py"
    run = simulate(
        tmp_path,
        f"""
{f"plugins: [edgebed.baselines.{plugin.stem}]" if plugin.exists() else ""}
algorithm: {{name: {name}, rounds: 2, learning_rate: 0.01, {params}}}
data: {{dataset: digits, samples_per_client: 40, evaluate_samples: 100}}
model: {{name: cnn, features: 16}}
{topology}
{hardware}
""",
    )
    assert run.summary.get("error", "") is None, run.errors
    with run.history() as history:
        late = [str(event) for event in history.events("unanswered", "late", "round_abandoned")]
        assert late == []
        assert history.seconds > 20  # rounds are long enough to tell
    assert {check["name"]: check["verdict"] for check in run.summary["checks"]}["participation"] == "pass"


OTHERS = "cross_traffic: [{on: cell, kind: poisson, rate: 20kbit}]"


@pytest.mark.parametrize(
    ("medium", "others"),
    [
        ("share: fair", ""),
        ("share: fair, duplex: half", OTHERS),
        ("share: fifo", OTHERS),
        ("share: airtime, rates: {device-2: 10kbit}", OTHERS),
        ("share: frames, rates: {device-2: 10kbit}", ""),
    ],
)
def test_no_member_of_a_slow_medium_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, medium: str, others: str
) -> None:
    """All members send at the same time, and none has more than its share."""
    monkeypatch.setattr("orchestrator.planning.learning.deadlines.ALLOWANCE", 0.0)
    run = simulate(
        tmp_path,
        f"""
algorithm: {{name: fedavg, rounds: 2}}
data: {{dataset: digits, samples_per_client: 40, evaluate_samples: 100}}
model: {{name: mlp, hidden: 8}}
topology: {{devices: 3}}
links: {{device-cloud: {{latency: 10ms}}}}
shared: {{cell: {{rate: 40kbit, members: [device-*], {medium}}}}}
{others}
""",
    )
    assert run.summary.get("error", "") is None, run.errors
    with run.history() as history:
        assert [str(event) for event in history.events("unanswered", "late", "round_abandoned", "lost")] == []
        assert history.seconds > 5
