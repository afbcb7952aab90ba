"""Partitions by the partitioners of `flwr_datasets`: a stand-in, and the library itself if it is installed."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest

from node.catalogue.partitions import FromFlower
from node.extras import install_command
from node.learning.data.partition import Partition, divide
from node.learning.errors import PartitionError
from tests.fakes import flower
from tests.texts import containing

LABELS = np.repeat(np.arange(4), 50)
PEOPLE = np.tile(np.arange(5), 40)

pytestmark = pytest.mark.filterwarnings("default")  # the library's own


@pytest.fixture(params=["stand-in", "flwr_datasets"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "stand-in":
        for module in flower.modules().items():
            monkeypatch.setitem(sys.modules, *module)
    else:
        pytest.importorskip(name, reason=f"{name} is not installed: {install_command('flwr')}")
    return name


def made(partitioner: str, clients: int = 5, seed: int = 3, people: Any = None, **arguments: Any) -> Partition:
    return divide(FromFlower(partitioner=partitioner, arguments=arguments), LABELS, (clients,), seed, people)


def divide_by(
    partitioner: str, clients: int, seed: int, people: Any, min_samples: int = 0, **arguments: Any
) -> Partition:
    scheme = FromFlower(partitioner=partitioner, arguments=arguments, min_samples=min_samples)
    return divide(scheme, LABELS, (clients,), seed, people)


def test_each_client_has_an_equal_share_of_the_shuffled_samples() -> None:
    parts = made("IidPartitioner").parts
    assert [len(part) for part in parts] == [40] * 5
    assert sorted(np.concatenate(parts)) == list(range(200))
    assert all(len(np.unique(LABELS[part])) == 4 for part in parts)  # without shuffling, a part has one or two labels


def test_draws_follow_the_seed_of_the_scenario() -> None:
    first, again, other = (
        made("DirichletPartitioner", seed=seed, alpha=0.5, min_partition_size=0) for seed in (3, 3, 4)
    )
    assert first.sha256 == again.sha256 != other.sha256
    assert sorted(np.concatenate(first.parts)) == list(range(200))


def test_arguments_reach_the_partitioner() -> None:
    even, skewed = (made("DirichletPartitioner", alpha=alpha, min_partition_size=0) for alpha in (1e6, 0.01))
    least = [partition.label_counts(LABELS, 4).min() for partition in (even, skewed)]
    assert least[0] >= 2  # 10 expected of each label; in the stand-in, with a standard deviation of 2.8
    assert least[1] == 0


def test_people_are_a_column() -> None:
    parts = made("NaturalIdPartitioner", people=PEOPLE, partition_by="subject").parts
    assert sorted(PEOPLE[part].tolist() for part in parts) == [[person] * 40 for person in range(5)]


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_people_follow_the_order_of_the_data(seed: int) -> None:
    """Person 0 has the most samples. In shuffled columns, those with many samples occur first and are one group."""
    people = np.repeat([3, 0, 4, 1, 2, 5], [2, 140, 3, 40, 5, 10])
    parts = divide_by(
        "GroupedNaturalIdPartitioner", 3, seed, people, partition_by="subject", group_size=2, min_samples=1
    ).parts
    assert [sorted(set(people[part].tolist())) for part in parts] == [[0, 3], [1, 4], [2, 5]]


def test_people_are_kept_whole_and_left_out() -> None:
    people = np.repeat(np.arange(5), [100, 40, 30, 20, 10])
    natural = {"partitioner": "NaturalIdPartitioner", "arguments": {"partition_by": "subject"}}
    with pytest.raises(PartitionError, match=r"^2 clients.*min_samples 30 \(the fewest"):
        divide(FromFlower(**natural, min_samples=30), LABELS, (5,), 3, people)  # type: ignore[arg-type]
    leave_out = FromFlower(**natural, min_samples=30, few_samples="leave-out")  # type: ignore[arg-type]
    partition = divide(leave_out, LABELS, (3,), 3, people)
    assert sorted(len(part) for part in partition.parts) == [30, 40, 100]
    assert partition.whole_people
    assert partition.notes == (containing("2 of 5 people", "min_samples 30: no client"),)
    divided = FromFlower(partitioner="IidPartitioner", few_samples="join")
    with pytest.raises(PartitionError, match="few_samples: join moves or leaves out"):
        divide(divided, LABELS, (3,), 3, people)


def test_a_draw_with_small_clients_names_the_remedy() -> None:
    message = r"^DirichletPartitioner.*draws .*arguments.min_partition_size samples: set"
    with pytest.raises(PartitionError, match=message):
        made("DirichletPartitioner", clients=20, alpha=0.01)
    filled = divide_by("DirichletPartitioner", 20, 3, None, alpha=0.01, min_partition_size=0, min_samples=3)
    assert min(len(part) for part in filled.parts) == 3


def test_shuffling_has_a_seed_of_its_own() -> None:
    """Flower's own partition is that of its defaults, 42 and 42."""
    order = np.random.default_rng(42).permutation(200)
    for seed in (1, 2):
        scheme = FromFlower(partitioner="IidPartitioner", shuffle_seed=42)
        parts = divide(scheme, LABELS, (4,), seed).parts
        assert [part.tolist() for part in parts] == [sorted(part.tolist()) for part in np.array_split(order, 4)]


@pytest.mark.parametrize(
    ("partitioner", "arguments", "message"),
    [
        ("Dirichlet", {}, r"'Dirichlet'.*flwr_datasets \(known: .*DirichletPartitioner, .*Natural"),
        ("Partitioner", {}, "'Partitioner' is no partitioner of flwr_datasets"),
        ("DirichletPartitioner", {"alfa": 1}, r"DirichletPartitioner\(num_partitions, .* alpha, .*\): .*'alfa'"),
        ("DirichletPartitioner", {}, r"DirichletPartitioner\(num_partitions, .*\): .*missing.*'alpha'"),
        ("NaturalIdPartitioner", {"partition_by": "subject"}, r"NaturalIdPartitioner\(partition_by\): .*subject"),
        ("NaturalIdPartitioner", {}, "flwr made 4 parts for 5 clients"),
        ("IidPartitioner", {"num_partitions": 3}, "flwr made 3 parts for 5 clients"),
    ],
)
def test_mistakes(partitioner: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        made(partitioner, **arguments)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(PartitionError, match=f"^flwr needs flwr-datasets: {re.escape(install_command('flwr'))}$"):
        made("IidPartitioner")


def test_lists_of_lists_are_arrays(library: str) -> None:
    if library == "stand-in":
        pytest.skip("flwr_datasets is not installed: the stand-in has no partitioner that takes arrays")
    parts = made("DistributionPartitioner", 4, distribution_array=[[1.0]] * 4, num_unique_labels_per_partition=1,
                 preassigned_num_samples_per_label=0).parts  # fmt: skip
    assert [np.unique(LABELS[part]).tolist() for part in parts] == [[0], [1], [2], [3]]
