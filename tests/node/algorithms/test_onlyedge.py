from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node.algorithms.parameters import FedAvg, OnlyEdge
from node.learning.data.datasets import Prepared
from node.testing import Federation, hierarchy, same

OPTIONS: dict[str, Any] = {"learning_rate": 0.1, "momentum": 0.9, "batch_size": 16}


def params(kappa2: int = 1) -> OnlyEdge:
    return OnlyEdge(kappa2=kappa2, **OPTIONS)


def test_an_edge_is_fedavg_with_its_devices(digits: Prepared, tmp_path: Path) -> None:
    """Equation 10 is FedAvg's mean: an only edge ends, to the last bit, where a cloud above its devices would."""
    flat = {"cloud": None} | {f"device-0-{k}": "cloud" for k in range(3)}
    avg = Federation(digits, flat, "fedavg", FedAvg(**OPTIONS), tmp_path / "avg", rounds=4).run()
    only = Federation(digits, hierarchy([3]), "onlyedge", params(2), tmp_path / "only", rounds=2).run()
    assert same(avg.state("cloud"), only.state("edge-0"))


def test_edges_do_not_meet(digits: Prepared, tmp_path: Path) -> None:
    run = Federation(digits, hierarchy([2, 2]), "onlyedge", params(), tmp_path, rounds=2).run()
    assert not same(run.state("edge-0"), run.state("edge-1"))


def test_with_or_without_a_cloud(digits: Prepared, tmp_path: Path) -> None:
    with_cloud, without = (
        Federation(digits, hierarchy([2, 1], cloud=cloud), "onlyedge", params(), tmp_path / str(cloud), rounds=2).run()
        for cloud in (True, False)
    )
    assert same(with_cloud.state("edge-1"), without.state("edge-1"))


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_the_cloud_is_not_needed(digits: Prepared, tmp_path: Path, start: float) -> None:
    """Cut off from the start, edges start with the same model by themselves. Later they continue without the cloud."""
    cut = {("cloud", edge): (start, 12.0) for edge in ("edge-0", "edge-1")}
    slow = {"device-0-0": 30.0, "device-1-0": 30.0}  # eight rounds of 1.9 s, from 8 s on if the cloud is given up first
    run, calm = (
        Federation(
            digits, hierarchy([2, 1]), "onlyedge", params(), tmp_path / name, rounds=8, slow=slow, cuts=cuts
        ).run()
        for name, cuts in (("cut", cut), ("calm", {}))
    )
    told = [(name, fields.get("peer")) for name, _, fields in run.journals["edge-0"].events]
    if start:
        assert ("lost", "cloud") in told
    else:
        assert told.index(("round", None)) < told.index(("joined", "cloud"))
    assert same(run.state("edge-0"), calm.state("edge-0"))


def test_reports(digits: Prepared, tmp_path: Path) -> None:
    run = Federation(digits, hierarchy([2, 2]), "onlyedge", params(2), tmp_path, rounds=3).run()
    edge = run.journals["edge-1"]
    assert list(edge.series("own")) == [1, 2, 3]
    assert edge.rounds("round") == [1, 1, 2, 2, 3, 3]
    assert list(run.journals["device-1-1"].series("train", "loss")) == [1, 2, 3]
    assert run.journals["cloud"].metrics == []
