from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from node.algorithms.parameters import FedAvg, FedNova, FedProx
from node.assignment import Gathering, derive_seed
from node.catalogue.partitions import IID
from node.learning.aggregation import weighted_mean
from node.learning.data.datasets import Prepared
from node.learning.models import ModelPool, build
from node.learning.training import Learner
from node.testing import Federation, same, star

PARAMS = FedAvg(learning_rate=0.1, momentum=0.9, batch_size=16)


def test_two_rounds_are_algorithm_1(digits: Prepared, tmp_path: Path) -> None:
    """The protocol's result, to the last bit, is that of the paper's two lines written out."""
    run = Federation(digits, star(3), "fedavg", PARAMS, tmp_path, rounds=2, model="cnn").run()
    shards = np.load(tmp_path / "shards.npz")
    learners = [
        Learner(
            ModelPool(lambda: build("cnn", digits.shape, 10, derive_seed(7, "model"))),
            digits,
            7,
            node,
            shards[f"{node}/train"],
        )
        for node in ("device-0", "device-1", "device-2")
    ]
    w = learners[0].get()
    for t in (1, 2):
        w = weighted_mean([k.train(w, PARAMS, t).weights for k in learners], [k.samples for k in learners])
    assert same(run.state("cloud"), w)


def test_reports(digits: Prepared, tmp_path: Path) -> None:
    run = Federation(digits, star(2, "edge"), "fedavg", PARAMS, tmp_path, rounds=3).run()
    cloud, edge = run.journals["cloud"], run.journals["edge-0"]
    assert list(cloud.series("global")) == list(cloud.series("global", "loss")) == [1, 2, 3]
    assert list(edge.series("train", "loss")) == list(edge.series("own")) == [1, 2, 3]
    assert not cloud.series("own")
    assert not edge.series("global")
    assert cloud.rounds("round") == [1, 1, 2, 2, 3, 3]
    losses = list(edge.series("train", "loss").values())
    assert losses[2] < losses[0]


def test_accuracy_floor(digits: Prepared, tmp_path: Path) -> None:
    everything = IID(samples_per_client=280)
    run = Federation(digits, star(5), "fedavg", PARAMS, tmp_path, rounds=6, partition=everything).run()
    assert run.journals["cloud"].series("global")[6] > 0.9


def test_stops_at_the_accuracy(digits: Prepared, tmp_path: Path) -> None:
    run = Federation(digits, star(3), "fedavg", PARAMS, tmp_path, rounds=20, accuracy=0.85).run()
    accuracies = list(run.journals["cloud"].series("global").values())
    assert accuracies[-1] >= 0.85 > max(accuracies[:-1])
    assert run.roles["cloud"].ended_by == "accuracy"


def test_a_client_that_never_answers_costs_only_the_deadline(digits: Prepared, tmp_path: Path) -> None:
    rule = Gathering(quorum=0.5, deadline=5)
    run = Federation(
        digits, star(3), "fedavg", PARAMS, tmp_path, rounds=2, gathering=rule, slow={"device-2": 1e4}
    ).run()
    assert list(run.journals["cloud"].series("global")) == [1, 2]
    assert not run.journals["cloud"].rounds("round_abandoned")


def test_an_abandoned_round_keeps_the_model(digits: Prepared, tmp_path: Path) -> None:
    rule = Gathering(quorum=1.0, deadline=5)
    run = Federation(
        digits, star(2), "fedavg", PARAMS, tmp_path, rounds=2, gathering=rule, slow={"device-1": 1e4}
    ).run()
    assert run.journals["cloud"].rounds("round_abandoned") == [1, 2]
    accuracies = run.journals["cloud"].series("global")
    assert accuracies[1] == accuracies[2]


def test_a_round_in_which_no_one_had_samples_is_abandoned(digits: Prepared, tmp_path: Path) -> None:
    run = Federation(digits, star(2), "fedavg", PARAMS, tmp_path, rounds=1)
    nothing: dict[str, Any] = dict.fromkeys(run.keys, np.empty(0, np.int64))
    np.savez(tmp_path / "shards.npz", **nothing)
    run.run()
    assert (
        run.journals["cloud"].events.count(
            ("round_abandoned", 1, {"kind": "update", "have": 0, "need": 1, "peers": []})
        )
        == 1
    )
    assert ("round", 1, {"phase": "end", "gatherings": 1, "abandoned": 1}) in run.journals["cloud"].events


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fednova"])
def test_training_that_diverges_does_not_reach_the_model(digits: Prepared, tmp_path: Path, algorithm: str) -> None:
    """At a learning rate of 10^6 weights overflow in the first round; the cloud keeps the model it had."""
    params = {"fedavg": FedAvg, "fedprox": FedProx, "fednova": FedNova}[algorithm](learning_rate=1e6, epochs=20)
    run = Federation(digits, star(2), algorithm, params, tmp_path, rounds=2).run()
    for device in ("device-0", "device-1"):
        events = [(round, data["what"]) for name, round, data in run.journals[device].events if name == "not_finite"]
        assert {round for round, _ in events} == {1, 2}
        assert "loss" in {what for _, what in events}
    refused = [data["peer"] for name, _, data in run.journals["cloud"].events if name == "not_finite"]
    assert refused == ["device-0", "device-1"] * 2
    assert run.journals["cloud"].rounds("round_abandoned") == [1, 2]
    assert all(np.isfinite(values).all() for values in run.state("cloud").values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "params"),
    [
        ("fedavg", FedAvg(learning_rate=0.1, participation=0.4)),
        ("fedprox", FedProx(learning_rate=0.1, participation=0.4)),
        ("fednova", FedNova(learning_rate=0.1, participation=0.4)),
    ],
)
def test_a_share_of_the_available_clients_takes_part(
    algorithm: str, params: FedAvg, digits: Prepared, tmp_path: Path
) -> None:
    """0.4 of five clients are two; of the four that are there for a while, 1.6 are two as well. A round waits for these
    two only."""
    slow, cuts = dict.fromkeys(star(5), 20.0), {("cloud", "device-3"): (0.5, 100.0)}
    everybody = Gathering(quorum=1.0, deadline=30)
    run = Federation(
        digits, star(5), algorithm, params, tmp_path, rounds=120, gathering=everybody, cuts=cuts, slow=slow
    ).run()
    events = run.journals["cloud"].events
    ends = [
        place for place, (name, _, f) in enumerate(events) if f.get("peer") == "device-3" and name in ("lost", "joined")
    ]
    assert [events[place][0] for place in ends] == ["joined", "lost", "joined"]
    selected = {t: f["nodes"] for name, t, f in events if name == "selected"}
    away = [f["nodes"] for name, _, f in events[ends[1] : ends[2]] if name == "selected"]
    assert list(selected) == list(range(1, 121))
    assert {len(set(nodes)) for nodes in selected.values()} == {2}
    assert len(away) >= 5
    assert {node for nodes in away for node in nodes} == {f"device-{k}" for k in (0, 1, 2, 4)}
    for t, nodes in selected.items():
        trained = {node for node in run.samples if t in run.journals[node].series("train", "loss")}
        assert trained <= set(nodes)
    assert sum("device-3" in nodes for nodes in selected.values()) > 5


def test_selection_is_drawn_by_the_seed_alone(digits: Prepared, tmp_path: Path) -> None:
    runs = [
        Federation(digits, star(6), "fedavg", FedAvg(participation=0.5), tmp_path / str(k), rounds=4, slow=slow).run()
        for k, slow in enumerate(({}, {"device-1": 4.0}))
    ]
    chosen = [[f["nodes"] for name, _, f in run.journals["cloud"].events if name == "selected"] for run in runs]
    assert chosen[0] == chosen[1]
    assert len({tuple(nodes) for nodes in chosen[0]}) > 1
    assert same(runs[0].state("cloud"), runs[1].state("cloud"))
