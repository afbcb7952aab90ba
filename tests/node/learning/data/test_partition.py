from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from node.catalogue.partitions import IID, BySubject, Dirichlet, LabelShards, LabelsPerEdge, PartitionParameters
from node.learning.data.labels import apportion, take_in_proportion
from node.learning.data.partition import (
    LabelMove,
    Partition,
    divide,
    edge_proportions,
    own_test,
    own_test_of,
    set_apart,
    top_up,
)
from node.learning.errors import PartitionError

TEN_BY_TEN = (10,) * 10


def labels_of(classes: int, each: int) -> NDArray[np.int64]:
    return np.random.default_rng(3).permutation(np.repeat(np.arange(classes), each))


SCHEMES: list[PartitionParameters] = [
    IID(),
    Dirichlet(alpha=0.1),
    Dirichlet(alpha=0.1, variant="class-uncapped"),
    Dirichlet(alpha=0.1, variant="client"),
    Dirichlet(alpha=0.1, variant="client-prior"),
    LabelShards(shard_size="auto"),
    LabelsPerEdge(pattern="D3"),
]


@given(
    scheme=st.sampled_from(SCHEMES),
    groups=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    classes=st.integers(2, 10),
    seed=st.integers(0, 2**63 - 1),
)
def test_parts_are_disjoint_ascending_and_as_large_as_asked(
    scheme: PartitionParameters, groups: list[int], classes: int, seed: int
) -> None:
    labels = labels_of(classes, each=100)
    scheme = replace(scheme, min_samples=4)
    try:
        partition = divide(scheme, labels, groups, seed)
    except PartitionError:
        # With few classes and edges, D3 may have fewer slots than devices need samples; all others always can.
        assert isinstance(scheme, LabelsPerEdge)
        return
    together = np.concatenate(partition.parts)
    assert len(partition.parts) == sum(groups)
    assert len(np.unique(together)) == len(together)
    assert all((np.diff(part) > 0).all() for part in partition.parts)
    assert min(len(part) for part in partition.parts) >= 4
    if isinstance(scheme, IID | Dirichlet):
        assert len(together) == len(labels)
    assert divide(scheme, labels, groups, seed).sha256 == partition.sha256


def test_hash_is_of_the_index_lists() -> None:
    # Length and members of each list, 8 bytes little-endian each, through sha256sum: 2, 0, 2, 1, 1.
    assert Partition((np.array([0, 2]), np.array([1]))).sha256 == (
        "5898622a490e730015de81a97a9333637dfed42dc2332fae0d064b5e2fb43943"
    )


def test_seeds_give_different_partitions() -> None:
    labels = labels_of(10, 100)
    assert divide(IID(), labels, (10,), 1).sha256 != divide(IID(), labels, (10,), 2).sha256


def test_iid_sizes_differ_by_one_at_most() -> None:
    sizes = [len(part) for part in divide(IID(), labels_of(10, 101), (3, 4), 0).parts]
    assert sorted(set(sizes)) == [144, 145]


def test_dirichlet_with_small_alpha_gives_few_labels_and_with_large_alpha_all() -> None:
    labels = labels_of(10, 1000)
    for variant in ("class", "class-uncapped", "client"):
        held = {
            alpha: (divide(Dirichlet(alpha=alpha, variant=variant), labels, (20,), 5).label_counts(labels, 10) > 9)
            .sum(axis=1)
            .mean()
            for alpha in (0.05, 1000.0)
        }
        assert held[0.05] < 5
        assert held[1000.0] == 10


def test_dirichlet_cap_keeps_clients_small() -> None:
    labels = labels_of(10, 1000)
    capped, free = (
        max(len(part) for part in divide(Dirichlet(alpha=0.1, variant=variant), labels, (20,), 5).parts)
        for variant in ("class", "class-uncapped")
    )
    # A client below 500 may still get one class more, 1,000 samples; without the rule there is no bound.
    assert capped < 1500
    assert capped < free


def test_dirichlet_by_client_gives_equal_sizes() -> None:
    sizes = {len(part) for part in divide(Dirichlet(alpha=0.1, variant="client"), labels_of(10, 100), (20,), 5).parts}
    assert sizes == {50}


@pytest.mark.parametrize("alpha", [0.01, 0.1])
@pytest.mark.parametrize("variant", ["class", "class-uncapped", "client"])
def test_the_place_of_a_client_does_not_count(variant: str, alpha: float) -> None:
    """Classes of the last client and of all, over 40 seeds: at most four standard errors of about 2 / sqrt(40) apart.
    Cumulated shares that are cut off give the last client 5.9 and 8.7 of ten classes; clients that are served in order
    leave it 1.6 of 4.8."""
    labels = labels_of(10, 1000)
    held = []
    for seed in range(40):
        counts = divide(Dirichlet(alpha=alpha, variant=variant, min_samples=0), labels, (50,), seed).label_counts(
            labels, 10
        )
        held.append((counts > 0).sum(axis=1))
    mean = np.mean(held, axis=0)
    assert abs(mean[-1] - mean.mean()) < 4 * 2 / np.sqrt(40)


# Classes of a client, and the share of its largest, in the splits that Google published for CIFAR-10 (100 clients of
# 500 samples, "federated_vision_datasets") after Hsu et al. (2019).
PUBLISHED = {0.1: (1.54, 0.936), 1.0: (4.78, 0.685), 10.0: (9.28, 0.304)}


@pytest.mark.parametrize(("alpha", "published"), PUBLISHED.items())
def test_client_prior_is_the_published_split(alpha: float, published: tuple[float, float]) -> None:
    labels = labels_of(10, 5000)
    counts = divide(Dirichlet(alpha=alpha, variant="client-prior"), labels, (100,), 1).label_counts(labels, 10)
    assert (counts > 0).sum(axis=1).mean() == pytest.approx(published[0], abs=0.5)
    assert (counts.max(axis=1) / 500).mean() == pytest.approx(published[1], abs=0.06)


def test_client_prior_follows_the_shares_of_the_classes() -> None:
    """At a large α every client has the shares of the whole: 60, 30 and 10 %; a class without samples has none."""
    labels = np.repeat([0, 1, 3], [600, 300, 100])
    counts = divide(Dirichlet(alpha=1e6, variant="client-prior"), labels, (4,), 1).label_counts(labels, 4)
    assert counts.sum(axis=0).tolist() == [600, 300, 0, 100]
    # Standard deviation of a share in 250 samples: at most sqrt(0.24 / 250) = 0.03.
    np.testing.assert_allclose(counts / 250, [[0.6, 0.3, 0, 0.1]] * 4, atol=0.12)


def test_dirichlet_over_edges_makes_an_edge_skewed_and_its_clients_alike() -> None:
    labels = labels_of(10, 1000)
    counts = divide(Dirichlet(alpha=0.1, over="edges"), labels, (4, 4, 4), 5).label_counts(labels, 10)
    edges = counts.reshape(3, 4, 10)
    assert ((edges.sum(axis=1) > 100).sum(axis=1) < 9).all()
    for clients in edges:
        assert np.ptp(clients.sum(axis=1)) <= 1
        share = clients / clients.sum(axis=1, keepdims=True)
        # A label's share in some 800 samples of a client: at most four standard deviations, 4 sqrt(0.25 / 800), apart.
        assert np.ptp(share, axis=0).max() < 2 * 0.07


def test_dirichlet_over_edges_wants_edges() -> None:
    with pytest.raises(PartitionError, match="set over to clients"):
        divide(Dirichlet(over="edges"), labels_of(10, 100), (12,), 5)


def test_two_hundred_clients_at_small_alpha_end() -> None:
    """The setting at which retrying until every client has 10 samples never ends."""
    labels = labels_of(10, 6000)
    partition = divide(Dirichlet(alpha=0.03), labels, (20,) * 10, 1)
    assert min(len(part) for part in partition.parts) == 10
    assert partition.moves


def test_shards_hold_two_labels_and_leave_the_rest() -> None:
    labels = labels_of(10, 600)
    partition = divide(LabelShards(shard_size=300), labels, (5,), 0)
    assert [len(part) for part in partition.parts] == [600] * 5
    assert ((partition.label_counts(labels, 10) > 0).sum(axis=1) <= 2).all()


def test_shards_hold_all_samples_if_no_size_is_given() -> None:
    partition = divide(LabelShards(), labels_of(10, 600), (5,), 0)
    assert [len(part) for part in partition.parts] == [1200] * 5


def test_shards_say_when_the_data_does_not_suffice() -> None:
    with pytest.raises(PartitionError, match=r"1000 samples make 3 shards of 300, and 10 clients .* need 20: set"):
        divide(LabelShards(shard_size=300), labels_of(10, 100), (10,), 0)


# PHE-FL, Table III: percentages of the labels 0-9 at edges 1, 3 and 10 in D3; Table II for the others.
TABLE_III = {
    0: [30, 10, 10, 10, 10, 10, 10, 10, 0, 0],
    2: [0, 0, 30, 10, 10, 10, 10, 10, 10, 10],
    9: [10, 10, 10, 10, 10, 10, 10, 0, 0, 30],
}


@pytest.mark.parametrize(("edge", "percent"), TABLE_III.items())
def test_d3_is_table_iii(edge: int, percent: list[int]) -> None:
    assert [100 * share for share in edge_proportions("D3", edge, 10)] == percent


@pytest.mark.parametrize(
    ("pattern", "labels_per_edge", "predominant"), [("D1", 1, 100), ("D2", 5, 20), ("D3", 8, 30), ("D4", 10, 10)]
)
def test_patterns_are_table_ii_and_devices_have_one_label(pattern: str, labels_per_edge: int, predominant: int) -> None:
    labels = labels_of(10, 600)
    partition = divide(LabelsPerEdge(pattern=pattern), labels, TEN_BY_TEN, 0)
    devices = partition.label_counts(labels, 10)
    assert sum(len(part) for part in partition.parts) == 6000
    assert ((devices > 0).sum(axis=1) == 1).all()
    assert (devices.sum(axis=1) == 60).all()
    assert ((devices > 0).sum(axis=0) == 10).all()  # ten devices share each label
    edges = devices.reshape(10, 10, 10).sum(axis=1)
    assert ((edges > 0).sum(axis=1) == labels_per_edge).all()
    assert (edges.max(axis=1) == 6 * predominant).all()
    if pattern == "D3":
        assert all((edges[edge] == 6 * np.array(percent)).all() for edge, percent in TABLE_III.items())


def test_edges_of_five_devices_have_the_data_of_ten() -> None:
    labels = labels_of(10, 600)
    for pattern in ("D1", "D2", "D3", "D4"):
        ten = divide(LabelsPerEdge(pattern=pattern), labels, TEN_BY_TEN, 0).label_counts(labels, 10)
        five = divide(LabelsPerEdge(pattern=pattern), labels, (5,) * 10, 0).label_counts(labels, 10)
        assert (ten.reshape(10, 10, 10).sum(axis=1) == five.reshape(10, 5, 10).sum(axis=1)).all()


def test_edges_that_hold_data_and_other_numbers_of_classes() -> None:
    labels = labels_of(6, 700)
    counts = divide(LabelsPerEdge(pattern="D3"), labels, (1, 1, 1), 0).label_counts(labels, 6)
    # Five of six labels, the first 30 %, the others 17.5 % each.
    shares = counts / counts.sum(axis=1, keepdims=True)
    assert shares[0] == pytest.approx([0.3, 0.175, 0.175, 0.175, 0.175, 0], abs=0.005)
    assert shares[2] == pytest.approx([0.175, 0, 0.3, 0.175, 0.175, 0.175], abs=0.005)


def test_people_stay_whole() -> None:
    subjects = np.repeat(np.arange(1, 8), 20)
    labels = np.tile(np.arange(2), 70)
    partition = divide(BySubject(), labels, (2, 1), 4, subjects)
    people = [set(subjects[part]) for part in partition.parts]
    assert sorted(len(each) for each in people) == [2, 2, 3]
    assert set.union(*people) == set(range(1, 8))
    with pytest.raises(PartitionError, match=r"7 people.*8 clients: take fewer"):
        divide(BySubject(), labels, (8,), 4, subjects)
    with pytest.raises(PartitionError, match="names people"):
        divide(BySubject(), labels, (2,), 4)


def test_top_up_takes_from_the_largest_holder_and_records_it() -> None:
    labels = np.array([0] * 6 + [1] * 4)
    parts = [np.arange(0, 7), np.empty(0, dtype=np.int64), np.arange(7, 10)]  # 6 zeros and a one, nothing, 3 ones
    repaired, moves = top_up(parts, labels, 3)
    assert moves == [LabelMove(source=0, target=1, label=0, count=3)]
    assert [part.tolist() for part in repaired] == [[3, 4, 5, 6], [0, 1, 2], [7, 8, 9]]
    assert top_up(repaired, labels, 3)[1] == []


def test_top_up_takes_from_several_where_one_is_not_enough() -> None:
    labels = np.array([0] * 4 + [1] * 4)
    parts = [np.arange(0, 4), np.arange(4, 8), np.empty(0, dtype=np.int64)]
    _, moves = top_up(parts, labels, 2)
    assert moves == [LabelMove(0, 2, 0, 2)]
    _, moves = top_up([np.arange(0, 3), np.arange(4, 7), np.empty(0, dtype=np.int64)], labels, 2)
    assert moves == [LabelMove(0, 2, 0, 1), LabelMove(1, 2, 1, 1)]
    with pytest.raises(PartitionError, match="min_samples 3"):
        top_up(parts, labels, 3)


def test_too_little_data_is_refused() -> None:
    with pytest.raises(PartitionError, match=r"20 samples.*3 clients min_samples 10"):
        divide(Dirichlet(), labels_of(2, 10), (3,), 0)


def test_samples_per_client_keeps_proportions() -> None:
    labels = labels_of(10, 600)
    partition = divide(LabelsPerEdge(pattern="D3", samples_per_client=20), labels, (1,) * 10, 0)
    assert partition.label_counts(labels, 10)[0].tolist() == [6, 2, 2, 2, 2, 2, 2, 2, 0, 0]


def test_own_test_has_the_training_distribution() -> None:
    test_labels = labels_of(10, 100)
    d3 = [3, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    # All 100 of label 0 and, in proportion, 33 of each other one: 333 samples.
    chosen = own_test(test_labels, d3, seed=1)
    counts = np.bincount(test_labels[chosen], minlength=10)
    assert counts.sum() == 333
    assert (np.abs(counts - 333 * np.array(d3) / 10) < 1).all()
    assert np.bincount(test_labels[own_test(test_labels, d3, 1, limit=100)]).tolist() == [30, *[10] * 7]
    # PHE-FL, Table IV: all test samples of the labels that the edge has.
    assert np.bincount(test_labels[own_test(test_labels, d3, 1, balanced=True)]).tolist() == [100] * 8
    assert (own_test(test_labels, d3, 1) == chosen).all()
    assert (own_test(test_labels, d3, 2) != chosen).any()


def test_own_test_without_samples_of_a_label() -> None:
    test_labels = np.array([0, 0, 1, 1])
    assert own_test(test_labels, [5, 0, 5], 0).tolist() == [0, 1]
    assert own_test(test_labels, [0, 0, 5], 0).tolist() == []


def test_apportion_gives_largest_remainders() -> None:
    # 0.5, 0.3, 0.2 of 7 are 3.5, 2.1, 1.4: floors sum to 6, the largest remainder is the first.
    assert apportion(np.array([0.5, 0.3, 0.2]), 7).tolist() == [4, 2, 1]
    assert apportion(np.array([1 / 3, 1 / 3, 1 / 3]), 10).tolist() == [4, 3, 3]


def test_take_in_proportion() -> None:
    labels = np.array([0] * 90 + [1] * 10)
    taken = take_in_proportion(labels, 20, np.random.default_rng(0))
    assert np.bincount(labels[taken]).tolist() == [18, 2]
    assert len(take_in_proportion(labels, 1000, np.random.default_rng(0))) == 100


def test_a_share_is_set_apart() -> None:
    """15 % of 20 samples are 3; together they are all, and none is in both."""
    samples = np.arange(100, 120)
    apart, rest = set_apart(samples, 0.15, seed=3)
    assert (len(apart), len(rest)) == (3, 17)
    assert sorted([*apart, *rest]) == samples.tolist()
    assert apart.tolist() == sorted(apart)
    assert (set_apart(samples, 0.15, seed=3)[0] == apart).all()
    assert (set_apart(samples, 0.15, seed=4)[0] != apart).any()
    assert len(set_apart(samples, 0.0, seed=3)[0]) == 0


def test_the_test_samples_of_people() -> None:
    """Person p has 30 + p samples; label 2 is rare."""
    subjects = np.repeat(np.arange(5), 30 + np.arange(5))
    labels = np.where(np.arange(len(subjects)) % 11 == 0, 2, np.arange(len(subjects)) % 2)
    for person in range(5):
        mine = own_test_of(np.array([person]), subjects, labels, seed=1)
        assert mine.tolist() == np.flatnonzero(subjects == person).tolist()
    assert len(own_test_of(np.array([1, 3]), subjects, labels, seed=1)) == 31 + 33
    balanced = own_test_of(np.array([1, 3]), subjects, labels, seed=1, balanced=True)
    assert set(subjects[balanced]) <= {1, 3}
    rare = np.count_nonzero(labels[np.isin(subjects, [1, 3])] == 2)
    assert np.bincount(labels[balanced]).tolist() == [rare] * 3
    assert len(own_test_of(np.array([9]), subjects, labels, seed=1)) == 0
    many = own_test_of(np.array([0]), np.zeros(4000, int), np.arange(4000) % 4, seed=1)
    assert np.bincount(many % 4).tolist() == [250] * 4
