"""Partitions that keep people whole: a client's samples are those of its people, however few they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from node.catalogue.partitions import (
    BySubject,
    FromFile,
    PartitionParameters,
    PartitionScheme,
)
from node.learning.data.partition import Partition, divide
from node.learning.data.people import first_divided
from node.learning.errors import PartitionError
from node.parameters import word
from tests.texts import containing

COUNTS = [200, 150, 120, 90, 60, 40, 30, 12, 6, 4]  # samples of ten writers; seven have 30 or more
WRITERS = np.repeat(np.arange(10), COUNTS)
LABELS = np.arange(len(WRITERS)) % 3


def divided(clients: int, seed: int = 1, **params: object) -> Partition:
    return divide(BySubject(**params), LABELS, (clients,), seed, WRITERS)  # type: ignore[arg-type]


def samples_of(partition: Partition, subjects: NDArray[np.int64]) -> dict[int, int]:
    """Samples of each person; each is at one client."""
    assert first_divided(partition.parts, subjects) is None
    people, counts = np.unique(subjects[np.concatenate(partition.parts)], return_counts=True)
    return dict(zip(people.tolist(), counts.tolist(), strict=True))


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(PartitionError, match=r"^3 clients.*min_samples 30 \(the fewest"):
        divided(10, min_samples=30)
    assert samples_of(divided(10, min_samples=4), WRITERS) == dict(enumerate(COUNTS))


def test_people_with_few_samples_are_left_out() -> None:
    for clients in (7, 5, 1):
        partition = divided(clients, min_samples=30, few_samples="leave-out")
        assert samples_of(partition, WRITERS) == dict(enumerate(COUNTS[:7]))
        assert partition.notes == (containing("3 of 10 people", "min_samples 30: no client"),)
    with pytest.raises(PartitionError, match=r"^7 people.*authors with min_samples 30"):
        divided(8, min_samples=30, few_samples="leave-out")
    assert divided(7, min_samples=4, few_samples="leave-out").notes == ()


@pytest.mark.parametrize("seed", range(20))
def test_people_join_whole(seed: int) -> None:
    """Seven clients of 30: the three writers with 12, 6 and 4 samples share clients, whatever the seed draws."""
    partition = divided(7, seed, min_samples=30, few_samples="join")
    assert samples_of(partition, WRITERS) == dict(enumerate(COUNTS))
    assert min(len(part) for part in partition.parts) >= 30


def test_who_cannot_join_is_refused() -> None:
    with pytest.raises(PartitionError, match=r"^few_samples join: 10 people.*712 samples"):
        divided(8, min_samples=30, few_samples="join")


def test_no_one_moves_where_all_suffice() -> None:
    plain, joined = divided(2, min_samples=30), divided(2, min_samples=30, few_samples="join")
    assert plain.sha256 == joined.sha256
    assert plain.notes == joined.notes == ()


@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=30),
    clients=st.integers(1, 6),
    least=st.integers(0, 30),
    few=st.sampled_from(["refuse", "leave-out", "join"]),
    seed=st.integers(0, 1000),
)
def test_no_one_is_at_two_clients_and_each_client_has_enough(
    counts: list[int], clients: int, least: int, few: str, seed: int
) -> None:
    people = np.repeat(np.arange(len(counts)), counts)
    params = BySubject(min_samples=least, few_samples=few)
    try:
        partition = divide(params, np.zeros(len(people), np.int64), (clients,), seed, people)
    except PartitionError:
        return
    found = samples_of(partition, people)
    assert min(len(part) for part in partition.parts) >= least
    kept = {person: count for person, count in enumerate(counts) if few != "leave-out" or count >= least}
    assert found == kept


@dataclass(frozen=True, kw_only=True)
class Wards(PartitionParameters):
    """Two people at each client, as a plug-in divides."""


@dataclass(frozen=True, kw_only=True)
class Hospitals(PartitionParameters):
    """The same, with few_samples."""

    few_samples: str = word("refuse", "refuse", "leave-out", "join")


def in_pairs(labels: NDArray[np.int64], groups: Sequence[int], params: Any, random: Any) -> list[NDArray[np.int64]]:
    return [np.flatnonzero(client == WRITERS // 2) for client in range(sum(groups))]


def in_halves(labels: NDArray[np.int64], groups: Sequence[int], params: Any, random: Any) -> list[NDArray[np.int64]]:
    return np.array_split(np.arange(len(labels)), sum(groups))


KNOWN = {
    "wards": PartitionScheme("wards", Wards, divide=in_pairs, subjects=True),
    "hospitals": PartitionScheme("hospitals", Hospitals, divide=in_pairs, subjects=True),
}


def test_a_plugin_that_declares_whole_people_keeps_them_whole() -> None:
    """Pairs have 350, 210, 100, 42 and 10 samples."""
    with pytest.raises(PartitionError, match=r"^1 client.*fewer than min_samples 30"):
        divide(Wards(min_samples=30), LABELS, (5,), 1, WRITERS, known=KNOWN)
    joined = divide(Hospitals(min_samples=30, few_samples="join"), LABELS, (5,), 1, WRITERS, known=KNOWN)
    assert samples_of(joined, WRITERS) == dict(enumerate(COUNTS))
    # The client with writers 8 and 9 lacks 20 samples: writer 6 has the fewest that suffice, and 12 of writer 7 do not
    # suffice for the client that stays; writer 5 leaves 60 behind.
    assert [len(part) for part in joined.parts] == [350, 210, 60, 42, 50]
    with pytest.raises(PartitionError, match=r"^1 client has .*min_samples$"):
        divide(Hospitals(min_samples=30, few_samples="leave-out"), LABELS, (5,), 1, WRITERS, known=KNOWN)


def test_a_plugin_that_divides_people_does_not_declare_them_whole() -> None:
    declared = {"wards": PartitionScheme("wards", Wards, divide=in_halves, subjects=True)}
    with pytest.raises(PartitionError, match="wards declares subjects=True, and person 2"):
        divide(Wards(), LABELS, (2,), 1, WRITERS, known=declared)
    undeclared = {"wards": PartitionScheme("wards", Wards, divide=in_halves)}
    assert not divide(Wards(), LABELS, (2,), 1, WRITERS, known=undeclared).whole_people


def test_lists_that_keep_people_whole_are_not_filled_up() -> None:
    whole = [np.flatnonzero(WRITERS < 9), np.flatnonzero(WRITERS == 9)]
    params = FromFile(path="lists.json", min_samples=30)
    with pytest.raises(PartitionError, match=r"person .*: take fewer clients"):
        divide(params, LABELS, (2,), 1, WRITERS, whole)
    halves = [np.arange(700), np.arange(700, 712)]
    assert [len(part) for part in divide(params, LABELS, (2,), 1, WRITERS, halves).parts] == [682, 30]
