"""Partitions that keep each person's samples at one client, and clients with too few samples of their people."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from node.arrays import Integers
from node.learning.data.shards import Indices
from node.learning.errors import PartitionError


def first_divided(parts: Sequence[Indices], subjects: Integers) -> int | None:
    """The first person with samples in more than one part, or None. `subjects` (N,): the person of each sample."""
    people_of_parts = [np.unique(subjects[part]) for part in parts]
    held = np.concatenate(people_of_parts)
    people, counts = np.unique(held, return_counts=True)
    divided = people[counts > 1]
    if not len(divided):
        return None
    return int(divided[0])


def of_people_with(least: int, subjects: Integers) -> Indices:
    """The ascending indices of the samples of people who have at least ``least`` of them. ``subjects`` (N,)."""
    _, person, counts = np.unique(subjects, return_inverse=True, return_counts=True)
    enough = counts[person] >= least
    return np.flatnonzero(enough).astype(np.int64)


def dealt(few_samples: str, min_samples: int, subjects: Integers) -> Indices:
    """The ascending indices of the samples that are dealt: without those of people that ``leave-out`` leaves out."""
    if few_samples == "leave-out":
        return of_people_with(min_samples, subjects)
    return np.arange(len(subjects))


REMEDY = (
    "take fewer clients, lower min_samples, or set few_samples to join (whole people move to these clients) or "
    "leave-out (people with fewer samples are at no client)"
)


def refuse_short(
    name: str,
    parts: Sequence[Indices],
    min_samples: int,
    remedy: str,
) -> None:
    """PartitionError with the ``remedy`` if a client has fewer than ``min_samples`` samples."""
    short = [len(part) for part in parts if len(part) < min_samples]
    if not short:
        return
    if len(short) == 1:
        clients = "1 client has"
    else:
        clients = f"{len(short)} clients have"
    raise PartitionError(
        f"{clients} fewer than min_samples {min_samples} (the fewest: {min(short)}), and {name} keeps all samples of a "
        f"person at one client: {remedy}"
    )


def join(
    parts: Sequence[Indices],
    subjects: Integers,
    min_samples: int,
    random: np.random.Generator,
) -> tuple[list[Indices], int]:
    """Move whole people between clients until each client has ``min_samples`` samples.

    A client gives away a person only if it has enough samples without them. If no such moves are left, all people are
    dealt again, the one with the most samples first, each to the client with the fewest. Returns the parts and how many
    people moved. Raises PartitionError if a client still has too few.
    """
    dealt = np.concatenate(parts)
    part_sizes = [len(part) for part in parts]
    numbers = np.arange(len(parts))
    client = np.repeat(numbers, part_sizes)
    people, first, person, sizes = np.unique(
        subjects[dealt],
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    homes = client[first]
    moved = _moved(homes, sizes, len(parts), min_samples)
    if moved is None:
        order = random.permutation(len(parts))
        moved = _dealt_by_size(sizes, order)
    held = np.bincount(moved, weights=sizes, minlength=len(parts))
    if held.min() < min_samples:
        raise PartitionError(
            f"few_samples join: {len(people)} people with {len(dealt)} samples do not give {len(parts)} clients "
            f"min_samples {min_samples} each, with all samples of a person at one client: take fewer clients or "
            "lower min_samples"
        )
    new_client = moved[person]
    joined = []
    for number in range(len(parts)):
        of_client = new_client == number
        joined.append(dealt[of_client])
    return joined, int(np.count_nonzero(moved != homes))


def _moved(
    homes: Integers,
    sizes: Integers,
    clients: int,
    least: int,
) -> Integers | None:
    """The client of each person after moves that give each client ``least`` samples; None if they do not get there."""
    homes = homes.copy()
    while True:
        held = np.bincount(homes, weights=sizes, minlength=clients)
        target = int(np.argmin(held))
        if held[target] >= least:
            return homes
        left_without = held[homes] - sizes
        movable = np.flatnonzero(left_without >= least)
        if not len(movable):
            return None
        missing = least - held[target]
        best = movable[_best(sizes[movable], missing)]
        homes[best] = target


def _best(sizes: Integers, missing: float) -> int:
    """The place of the smallest size that suffices, or of the largest one."""
    enough = np.flatnonzero(sizes >= missing)
    if not len(enough):
        return int(np.argmax(sizes))
    smallest = np.argmin(sizes[enough])
    return int(enough[smallest])


def _dealt_by_size(sizes: Integers, order: Integers) -> Integers:
    """The client of each person. Clients of equal size are served in this ``order``."""
    heap = [(0, place) for place in range(len(order))]
    homes = np.zeros(len(sizes), np.int64)
    for person in np.argsort(-sizes, kind="stable"):
        held, place = heap[0]
        homes[person] = order[place]
        with_person = held + int(sizes[person])
        heapq.heapreplace(heap, (with_person, place))
    return homes
