"""Which sample goes where, and the file of it."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from node.catalogue.datasets import Form
from node.extras import install_command
from node.learning.data.datasets import Prepared
from orchestrator.errors import PlanError
from orchestrator.planning.learning.shards import PreparedLabels, Shards, make_shards
from orchestrator.scenario.reading import parse
from tests.fakes import flower
from tests.orchestrator.labels import prepared

Array = NDArray[Any]


def read(folder: Path, name: str, x: Array, y_train: Array, y_test: Array) -> PreparedLabels:
    """What a plan reads of a data set in a folder of its own."""
    directory = folder / name
    directory.mkdir()
    for part, y in (("train", y_train), ("test", y_test)):
        np.save(directory / f"x_{part}.npy", x[: len(y)])
        np.save(directory / f"y_{part}.npy", y)
    return PreparedLabels.read(Prepared(directory, name, (8,), 3, (), (0.0,), (1.0,), "", "0" * 64))


PICTURES = np.zeros((9, 8), np.float32)


def test_a_constant_prediction_of_numbers_is_their_median(tmp_path: Path) -> None:
    """The medians are 2 and 20. The errors of four samples are 2, 1, 0 and 0, of both numbers together, so the mean is
    0.75, the variance (1.25² + 0.25² + 0.75² + 0.75²) / 4, and the variance of the mean a quarter of that."""
    y_train = np.array([[1, 10], [2, 20], [9, 90]], np.float32)
    y_test = np.array([[2, 24], [4, 20], [2, 20], [2, 20]], np.float32)
    made = read(tmp_path, "numbers", PICTURES, y_train, y_test)
    assert made.guess == pytest.approx((0.75, math.sqrt(2.75 / 4 / 4)))
    assert made.sample_bytes == 8 * 4
    assert made.test_tokens is None


def test_a_constant_prediction_of_several_labels_is_their_most_frequent_set(tmp_path: Path) -> None:
    """Three of four samples have the same set: 0.75, with a variance of 0.75 · 0.25 / 4."""
    labels = np.array([[1, 0], [1, 0], [0, 1], [1, 0]], np.uint8)
    assert read(tmp_path, "labels", PICTURES, labels, labels).guess == (0.75, math.sqrt(0.75 * 0.25 / 4))


def test_classes_and_tokens_need_no_guess(tmp_path: Path) -> None:
    classes = np.array([0, 1, 2], np.int64)
    of_classes = read(tmp_path, "classes", PICTURES, classes, classes)
    assert (of_classes.guess, of_classes.test_tokens) == (None, None)
    tokens = np.array([[0, 1, 2], [2, 1, 0]], np.int64)
    of_tokens = read(tmp_path, "tokens", tokens, tokens, tokens)
    assert of_tokens.guess is None
    np.testing.assert_array_equal(of_tokens.test_tokens, tokens)


def shards(text: str) -> Shards:
    return make_shards(parse(text, "f.yaml"), prepared())


def test_iid_gives_every_sample_to_one_device() -> None:
    made = shards("algorithm: hierfavg\ntopology: {edges: 2, devices_per_edge: [2, 3]}")
    assert list(made.train) == ["device-0-0", "device-0-1", "device-1-0", "device-1-1", "device-1-2"]
    assert sorted(np.concatenate(list(made.train.values()))) == list(range(1000))


def test_an_edge_counts_what_its_devices_hold() -> None:
    made = shards("algorithm: hierfavg\ntopology: {edges: 2, devices_per_edge: [2, 3]}")
    below = np.array([made.counts["device-0-0"], made.counts["device-0-1"]])
    assert made.counts["edge-0"] == tuple(below.sum(axis=0))
    assert sum(made.counts["edge-0"]) + sum(made.counts["edge-1"]) == 1000


def test_edges_without_devices_hold_the_data() -> None:
    made = shards("algorithm: fedavg\ntopology: {edges: 4, devices_per_edge: 0}")
    assert list(made.train) == ["edge-0", "edge-1", "edge-2", "edge-3"]
    own_labels = shards(
        "algorithm: fedavg\ndata: {partition: labels-per-edge}\ntopology: {edges: 3, devices_per_edge: 0}"
    )
    assert [counts[edge] for edge, counts in enumerate(own_labels.counts.values())] == [100, 100, 100]


def test_data_without_classes_is_not_divided_by_class() -> None:
    train, test = np.zeros(1000, np.int64), np.zeros(200, np.int64)
    data = replace(prepared(), form=Form((8,), 1, task="regression"), train=train, test=test)
    text = "algorithm: hierfavg\ntopology: {edges: 2, devices_per_edge: 2}\ndata: {partition: %s}"
    assert {len(counts) for counts in make_shards(parse(text % "iid", "f.yaml"), data).counts.values()} == {1}
    with pytest.raises(PlanError, match="dirichlet divides by class, and digits"):
        make_shards(parse(text % "{dirichlet: 0.3}", "f.yaml"), data)


FLOWER = """
algorithm: {name: fedavg, rounds: 2}
seed: %s
topology: {devices: 3}
data: {partition: {flwr: {partitioner: DirichletPartitioner, arguments: {alpha: 0.5}}}}
"""


def test_a_partitioner_of_flower_divides_over_the_topology_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in flower.modules().items():
        monkeypatch.setitem(sys.modules, *module)
    first, again, other = (shards(FLOWER % seed) for seed in (1, 1, 2))
    assert list(first.train) == ["device-0", "device-1", "device-2"]
    assert sorted(np.concatenate(list(first.train.values()))) == list(range(1000))
    assert first.sha256 == again.sha256 != other.sha256


def test_without_flwr_datasets_its_partition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    remedy = re.escape(install_command("flwr"))
    with pytest.raises(PlanError, match=f"^data.partition: flwr needs flwr-datasets: {remedy}$"):
        shards(FLOWER % 1)


def test_all_tokens_of_test_sequences_are_counted() -> None:
    tokens = np.array([[0, 1, 2], [2, 2, 1], [0, 0, 0]])
    data = replace(prepared(test=3), test=tokens[:, -1], form=Form((3,), 10, labels=(3,)), test_tokens=tokens)
    assert data.test_counts()[:4] == (4, 2, 3, 0)
    assert data.test_counts(np.array([1]))[:4] == (0, 1, 2, 0)


def test_a_single_holder_has_everything() -> None:
    """Samples that were left out since they have no label matter only to lists of indices."""
    scenario = parse("algorithm: fedavg\ntopology: {devices: 1}", "f.yaml")
    made = make_shards(scenario, replace(prepared(), unlabelled=3))
    assert len(made.train["device-0"]) == 1000


def test_labels_go_to_edges() -> None:
    """D1: each edge one label, edge e the label e; a hundred samples of each in the data."""
    made = shards("algorithm: hierfavg\ndata: {partition: labels-per-edge}\ntopology: {edges: 3, devices_per_edge: 2}")
    assert made.counts["edge-1"] == (0, 100, 0, 0, 0, 0, 0, 0, 0, 0)
    assert made.counts["device-1-0"] == (0, 50, 0, 0, 0, 0, 0, 0, 0, 0)


def test_own_tests_have_the_labels_of_the_training_data() -> None:
    made = shards("algorithm: hierfavg\ndata: {partition: labels-per-edge}\ntopology: {edges: 3, devices_per_edge: 2}")
    labels = prepared().test
    assert set(made.own_test) == set(made.counts)
    assert set(labels[made.own_test["edge-2"]]) == {2}
    assert set(labels[made.own_test["device-0-1"]]) == {0}


def test_balanced_tests_have_equal_shares() -> None:
    text = "algorithm: hierfavg\ndata: {partition: {labels-per-edge: D3}, test: %s}\ntopology: {edges: 3}\n"
    labels = prepared().test
    balanced = np.bincount(labels[shards(text % "balanced").own_test["edge-0"]], minlength=10)
    assert list(balanced) == [20] * 8 + [0, 0]  # all 20 test samples of each of the edge's eight labels
    skewed = np.bincount(labels[shards(text % "proportional").own_test["edge-0"]], minlength=10)
    assert skewed[0] == 20  # D3: 30 % of the first label, of which there are 20, and 10 % of seven others
    assert sorted(set(skewed[1:8])) == [6, 7]


def test_repairs_name_the_nodes() -> None:
    made = shards(
        "algorithm: fedavg\ntopology: {devices: 20}\ndata: {partition: {dirichlet: {alpha: 0.02, min_samples: 20}}}"
    )
    assert made.moves
    assert all(source in made.train and target in made.train for source, target, _, _ in made.moves)
    assert min(len(part) for part in made.train.values()) >= 20


def test_the_file_holds_every_array_and_depends_on_nothing_else(tmp_path: Path) -> None:
    made = shards("algorithm: hierfavg")
    for name in ("one.npz", "two.npz"):
        made.write(tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(tmp_path / "one.npz", allow_pickle=False) as file:
        assert sorted(file) == sorted(made.arrays())
        np.testing.assert_array_equal(file["device-0-0.train"], made.train["device-0-0"])
        np.testing.assert_array_equal(file["edge-1.test"], made.own_test["edge-1"])


def test_a_node_is_given_the_keys_of_what_it_has() -> None:
    made = shards("algorithm: phe-fl\ndata: {partition: labels-per-edge}\ntopology: {edges: 2, devices_per_edge: 2}\n")
    assert made.keys("device-0-0") == {"train_key": "device-0-0.train", "own_test_key": "device-0-0.test"}
    assert made.keys("edge-0") == {"own_test_key": "edge-0.test", "personal_key": "edge-0.personal"}
    assert made.keys("cloud") == {}


def test_edges_set_a_share_of_their_tests_apart_alike_for_every_algorithm() -> None:
    """D1: an edge has the 20 test samples of its label, of which 15 % are 3; devices keep all of theirs."""
    text = "algorithm: %s\ndata: {partition: labels-per-edge%s}\ntopology: {edges: 2, devices_per_edge: 2}\n"
    ours, theirs, plain = (
        shards(text % each) for each in (("phe-fl", ""), ("onlyedge", ", personalisation: 15%"), ("onlyedge", ""))
    )
    assert [len(ours.personal[edge]) for edge in ("edge-0", "edge-1")] == [3, 3]
    assert set(ours.personal) == {"edge-0", "edge-1"}
    for edge in ("edge-0", "edge-1"):
        np.testing.assert_array_equal(ours.personal[edge], theirs.personal[edge])
        np.testing.assert_array_equal(ours.own_test[edge], theirs.own_test[edge])
        assert sorted([*ours.personal[edge], *ours.own_test[edge]]) == list(plain.own_test[edge])
    assert len(ours.own_test["device-0-0"]) == 20
    assert not plain.personal
    assert "edge-0.personal" in ours.arrays()


PEOPLE = """\
algorithm: hierfavg
data: {{dataset: har, partition: {partition}, test: {test}}}
topology: {{edges: 2, devices_per_edge: 2}}
"""


def of_people(offset: int = 0, partition: str = "by-subject", test: str = "proportional") -> tuple[Shards, Shards]:
    """Data of eight people, with and without the names of those whose test samples it has."""
    data = replace(prepared(), subjects=np.arange(1000) % 8)
    scenario = parse(PEOPLE.format(partition=partition, test=test), "f.yaml")
    named = replace(data, test_subjects=np.arange(200) // 10 % 8 + offset)
    return make_shards(scenario, named), make_shards(scenario, data)


def test_own_tests_are_of_the_same_people() -> None:
    """Of 200 test samples, person p has those whose tens are p modulo 8: 30 for p < 4 and 20 for others."""
    made, _ = of_people()
    train_of, test_of = np.arange(1000) % 8, np.arange(200) // 10 % 8
    for node in ("device-0-0", "device-0-1", "device-1-0", "device-1-1"):
        people = set(train_of[made.train[node]])
        assert len(people) == 2
        assert list(made.own_test[node]) == [i for i in range(200) if test_of[i] in people]
    for edge in ("edge-0", "edge-1"):
        below = np.concatenate([made.own_test[edge.replace("edge", "device") + f"-{i}"] for i in range(2)])
        assert list(made.own_test[edge]) == sorted(below)
        assert sum(made.test_counts[edge]) == len(below)


CASE = """\
algorithm: fedavg
data: {{dataset: har, partition: {{by-subject: {{min_samples: 30, few_samples: {few}}}}}}}
topology: {{devices: {devices}}}
"""


@pytest.mark.parametrize("few", ["join", "leave-out"])
def test_own_tests_are_of_the_people_of_the_client_however_few_their_samples(few: str) -> None:
    """Ten writers with 200 to 4 samples, and test samples of the same writers; three have fewer than 30 samples."""
    writers = np.repeat(np.arange(10), [200, 150, 120, 90, 60, 40, 30, 12, 6, 4])
    test_writers = np.repeat(np.arange(10), [40, 30, 24, 18, 12, 8, 6, 3, 2, 2])
    data = replace(prepared(len(writers), len(test_writers)), subjects=writers, test_subjects=test_writers)
    made = make_shards(parse(CASE.format(few=few, devices=7), "f.yaml"), data)
    for node, mine in made.train.items():
        assert len(mine) >= 30
        people = sorted(set(writers[mine]))
        assert sorted(set(test_writers[made.own_test[node]])) == people
    assert sum(len(own) for own in made.own_test.values()) == {"join": 145, "leave-out": 138}[few]
    with pytest.raises(PlanError, match=r"^data.partition.*min_samples 30 \(the fewest"):
        make_shards(parse(CASE.format(few="refuse", devices=10), "f.yaml"), data)


def test_balanced_own_tests_of_people() -> None:
    """Each label is once in ten samples that follow one another, so the own test sets are balanced already."""
    (proportional, _), (balanced, _) = of_people(), of_people(test="balanced")
    for node, chosen in balanced.own_test.items():
        np.testing.assert_array_equal(chosen, proportional.own_test[node])


@pytest.mark.parametrize(("offset", "partition"), [(8, "by-subject"), (0, "iid")])
def test_own_tests_are_drawn_if_people_are_divided_or_others(offset: int, partition: str) -> None:
    made, drawn = of_people(offset, partition)
    assert list(made.own_test) == list(drawn.own_test)
    for node, chosen in made.own_test.items():
        np.testing.assert_array_equal(chosen, drawn.own_test[node])
