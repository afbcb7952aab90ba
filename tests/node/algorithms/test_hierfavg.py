from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from node.algorithms.hierfavg import edge_rounds
from node.algorithms.parameters import FedAvg, HierFAVG
from node.assignment import Gathering, derive_seed
from node.catalogue.partitions import IID, LabelShards
from node.learning.aggregation import State, weighted_mean
from node.learning.data.datasets import Prepared
from node.learning.models import ModelPool, build
from node.learning.training import Learner
from node.testing import Federation, hierarchy, same

OPTIONS: dict[str, Any] = {"learning_rate": 0.1, "momentum": 0.9, "batch_size": 16}
NEVER = 1e5  # slowness of a device that does not answer before any deadline


def params(kappa2: int, kappa1: int | None = None) -> HierFAVG:
    return HierFAVG(kappa1=kappa1, kappa2=kappa2, **OPTIONS)


def learners_of(run: Federation) -> dict[str, Learner]:
    shards = np.load(run.folder / "shards.npz")
    model = build(run.model, run.data.shape, 10, derive_seed(7, "model"))
    return {name: Learner(ModelPool(lambda: model), run.data, 7, name, shards[f"{name}/train"]) for name in run.samples}


def edge_model(learners: dict[str, Learner], devices: list[str], w: State, rounds: range, p: HierFAVG) -> State:
    """The edge's lines of Algorithm 1, written out."""
    for r in rounds:
        trained = [learners[name].train(w, p.of_device, r) for name in devices]
        w = weighted_mean([each.weights for each in trained], [each.samples for each in trained])
    return w


def test_two_cloud_rounds_are_algorithm_1(digits: Prepared, tmp_path: Path) -> None:
    p = params(kappa2=2, kappa1=3)
    run = Federation(digits, hierarchy([2, 1]), "hierfavg", p, tmp_path, rounds=2).run()
    learners = learners_of(run)
    w = learners["device-0-0"].get()
    for rounds in (range(1, 3), range(3, 5)):
        first = edge_model(learners, ["device-0-0", "device-0-1"], w, rounds, p)
        second = edge_model(learners, ["device-1-0"], w, rounds, p)
        w = weighted_mean([first, second], [120, 60])
    assert same(run.state("cloud"), w)


def test_a_share_of_the_devices_takes_part_and_others_each_time(digits: Prepared, tmp_path: Path) -> None:
    p = HierFAVG(kappa2=3, participation=0.5, **OPTIONS)
    run = Federation(digits, hierarchy([5]), "hierfavg", p, tmp_path, rounds=1).run()
    learners = learners_of(run)
    w = learners["device-0-0"].get()
    asked = []
    for r in (1, 2, 3):
        order = np.random.default_rng(derive_seed(7, "edge-0", "devices", str(r))).permutation(5)
        asked.append([f"device-0-{k}" for k in sorted(order[:3])])  # of five, half is three
        w = edge_model(learners, asked[-1], w, range(r, r + 1), p)
    assert len({tuple(devices) for devices in asked}) > 1
    assert same(run.state("cloud"), w)


def test_statistics_left_out_of_averages_stay_as_they_were(digits: Prepared, tmp_path: Path) -> None:
    p = HierFAVG(kappa2=2, statistics="left-out", **OPTIONS)
    run = Federation(digits, hierarchy([2]), "hierfavg", p, tmp_path, rounds=1, model="cnn").run()
    learners = learners_of(run)
    began = learners["device-0-0"].get()
    w = began
    for r in (1, 2):
        trained = edge_model(learners, ["device-0-0", "device-0-1"], w, range(r, r + 1), p)
        assert any((trained[name] != w[name]).any() for name in w if "running" in name)
        w = {name: began[name] if "running" in name or "batches" in name else trained[name] for name in w}
    assert same(run.state("cloud"), w)


def test_numbers_of_edge_rounds_do_not_meet_again() -> None:
    assert [list(edge_rounds(t, 3)) for t in (1, 2)] == [[1, 2, 3], [4, 5, 6]]


def test_kappa1_is_steps() -> None:
    assert params(2, kappa1=7).of_device.steps == 7
    assert params(2).of_device.steps is None


def test_one_edge_is_fedavg_with_kappa2_times_the_rounds(digits: Prepared, tmp_path: Path) -> None:
    flat = {"cloud": None} | {f"device-0-{k}": "cloud" for k in range(3)}
    avg = Federation(digits, flat, "fedavg", FedAvg(**OPTIONS), tmp_path / "avg", rounds=4).run()
    hier = Federation(digits, hierarchy([3]), "hierfavg", params(2), tmp_path / "hier", rounds=2).run()
    assert same(avg.state("cloud"), hier.state("cloud"))


def test_kappa2_one_is_fedavg_but_for_rounding(digits: Prepared, tmp_path: Path) -> None:
    """A mean of means with the right weights is the mean, here with unequal edges and devices."""
    tree = hierarchy([1, 3])
    flat = {"cloud": None} | dict.fromkeys([name for name in tree if name.startswith("device")], "cloud")
    unequal = LabelShards(shard_size="auto", shards_per_client=2)
    avg, hier = (
        Federation(digits, shape, name, p, tmp_path / name, rounds=1, partition=unequal).run()
        for shape, name, p in ((flat, "fedavg", FedAvg(**OPTIONS)), (tree, "hierfavg", params(1)))
    )
    for name, values in avg.state("cloud").items():
        np.testing.assert_allclose(hier.state("cloud")[name], values, rtol=1e-4, atol=1e-6)


def test_weights_are_those_of_the_participants(digits: Prepared, tmp_path: Path) -> None:
    """device-0-1 never answers: edge-0 counts 60 samples, edge-1 120."""
    p, rule = params(1), Gathering(quorum=0.5, deadline=5)
    run = Federation(
        digits, hierarchy([2, 2]), "hierfavg", p, tmp_path, rounds=1, gathering=rule, slow={"device-0-1": NEVER}
    ).run()
    learners = learners_of(run)
    w = learners["device-0-0"].get()
    first = edge_model(learners, ["device-0-0"], w, range(1, 2), p)
    second = edge_model(learners, ["device-1-0", "device-1-1"], w, range(1, 2), p)
    assert same(run.state("cloud"), weighted_mean([first, second], [60, 120]))


def test_an_edge_without_devices_has_no_say(digits: Prepared, tmp_path: Path) -> None:
    p, rule = params(2), Gathering(quorum=0.5, deadline=5)
    run = Federation(
        digits, hierarchy([1, 1]), "hierfavg", p, tmp_path, rounds=1, gathering=rule, slow={"device-0-0": NEVER}
    ).run()
    learners = learners_of(run)
    only = edge_model(learners, ["device-1-0"], learners["device-1-0"].get(), range(1, 3), p)
    assert same(run.state("cloud"), only)
    assert run.journals["edge-0"].rounds("round_abandoned") == [1, 1]
    assert run.journals["edge-0"].edge_rounds("round_abandoned") == [1, 2]


def test_reports(digits: Prepared, tmp_path: Path) -> None:
    run = Federation(digits, hierarchy([2, 2]), "hierfavg", params(2), tmp_path, rounds=3).run()
    assert list(run.journals["cloud"].series("global")) == [1, 2, 3]
    assert list(run.journals["edge-1"].series("own")) == [1, 2, 3]
    assert list(run.journals["device-1-1"].series("train", "loss")) == [1, 2, 3]
    assert run.journals["edge-1"].rounds("round") == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]  # start and end, kappa2 = 2
    assert run.journals["edge-1"].edge_rounds("round") == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert run.journals["cloud"].edge_rounds("round") == [None] * 6


def test_a_late_update_is_reported_with_its_round_and_its_edge_round(digits: Prepared, tmp_path: Path) -> None:
    """Two edge rounds make a round. device-0-1 needs more than the deadline for each."""
    rule = Gathering(quorum=0.5, deadline=5)
    shape, slow = hierarchy([2]), {"device-0-1": 120.0}
    run = Federation(digits, shape, "hierfavg", params(2), tmp_path, rounds=4, gathering=rule, slow=slow).run()
    late = [(t, fields["edge_round"]) for name, t, fields in run.journals["edge-0"].events if name == "late"]
    assert late
    assert all(t is not None and r in edge_rounds(t, 2) for t, r in late)


def test_accuracy_floor(digits: Prepared, tmp_path: Path) -> None:
    everything = IID(samples_per_client=230)
    run = Federation(digits, hierarchy([3, 3]), "hierfavg", params(2), tmp_path, rounds=4, partition=everything).run()
    assert run.journals["cloud"].series("global")[4] > 0.9
