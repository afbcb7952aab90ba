"""Divide training data over clients: pure functions of labels and a seed.

Papers use these names differently, so each scheme names its paper. Draws are made once: repetition would bias them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np

from node.arrays import Floats, Integers
from node.catalogue.partitions import (
    IID,
    PARTITIONS,
    ByAuthor,
    BySubject,
    Dirichlet,
    FromFile,
    FromFlower,
    LabelShards,
    LabelsPerEdge,
    PartitionParameters,
    PartitionScheme,
)
from node.learning.data import flower, people
from node.learning.data.dirichlet import by_dirichlet
from node.learning.data.labels import apportion, take, take_in_proportion
from node.learning.data.shards import Indices
from node.learning.errors import PartitionError

Parts = list[Indices]


@dataclass(frozen=True)
class LabelMove:
    """A move to top up a client: `count` samples of `label` from client number `source` to client number `target`."""

    source: int
    target: int
    label: int
    count: int


@dataclass(frozen=True)
class Partition:
    """Ascending sample indices of each client, in the plan's order of clients, and the moves that were needed.
    `whole_people`: no person has samples at two clients. `notes`: what became of people with too few samples."""

    parts: tuple[Indices, ...]
    moves: tuple[LabelMove, ...] = ()
    whole_people: bool = False
    notes: tuple[str, ...] = ()

    @cached_property
    def sha256(self) -> str:
        """Hash of the index lists: equal for equal partitions, on any machine."""
        digest = hashlib.sha256()
        for part in self.parts:
            count = len(part).to_bytes(8, "little")
            indices = part.astype("<i8").tobytes()
            digest.update(count + indices)
        return digest.hexdigest()

    def label_counts(self, labels: Integers, classes: int) -> Integers:
        """Samples of each class at each client: (clients, classes)."""
        return _label_counts(self.parts, labels, classes)


def _label_counts(parts: Sequence[Indices], labels: Integers, classes: int) -> Integers:
    """Samples of each class in each part: (parts, classes)."""
    counts = [np.bincount(labels[part], minlength=classes) for part in parts]
    return np.stack(counts)


def divide(
    scheme: PartitionParameters,
    labels: Integers,
    groups: Sequence[int],
    seed: int,
    subjects: Integers | None = None,
    lists: Sequence[Indices] | None = None,
    known: Mapping[str, PartitionScheme] = PARTITIONS,
) -> Partition:
    """Divide samples with these `labels` (N,) over clients.

    `groups` holds the number of clients below each edge, in the plan's order: (4, 4, 4) is twelve devices at three
    edges, (1, 1, 1) three edges that hold data themselves, (10,) ten devices below the cloud. `subjects` (N,): the
    person of each sample. `lists`: the samples of each client, for `file`. `known`: the partitions by name. Raises
    PartitionError if data is lacking.
    """
    clients = sum(groups)
    if clients < 1 or min(groups) < 1:
        raise PartitionError(f"no clients to divide the data over: groups are {tuple(groups)}")
    if len(labels) < scheme.min_samples * clients:
        raise PartitionError(
            f"{len(labels)} samples do not give {clients} clients min_samples {scheme.min_samples} each: "
            "lower min_samples or take fewer clients"
        )
    entry = _entry_of(scheme, known)
    if entry.subjects and subjects is None:
        raise PartitionError(f"partition {entry.name} needs a data set that names people (har, leaf, npz, text)")
    random = np.random.default_rng(seed)
    task = Task(labels, tuple(groups), clients, subjects)
    if lists is not None:
        parts = list(lists)
    elif entry.divide is not None:
        parts = _by_plugin(entry, scheme, task, random)
    else:
        own_scheme = _SCHEMES[type(scheme)]
        parts = own_scheme(scheme, task, random)
    _refuse_wrong(entry.name, parts, task)
    whole = _keeps_people_whole(entry, scheme, parts, subjects)
    moves: list[LabelMove] = []
    notes: list[str] = []
    if whole:
        assert subjects is not None
        parts, notes = _with_enough_people(entry.name, scheme, parts, task, random)
    else:
        parts, moves = top_up(parts, labels, scheme.min_samples)
    if scheme.samples_per_client is not None:
        parts = _reduced(parts, scheme.samples_per_client, labels, random)
    sorted_parts = [np.sort(part) for part in parts]
    ascending = tuple(part.astype(np.int64) for part in sorted_parts)
    return Partition(ascending, tuple(moves), whole, tuple(notes))


def _entry_of(scheme: PartitionParameters, known: Mapping[str, PartitionScheme]) -> PartitionScheme:
    for entry in known.values():
        if entry.params is type(scheme):
            return entry
    raise LookupError(type(scheme))


def _reduced(
    parts: Parts,
    size: int,
    labels: Integers,
    random: np.random.Generator,
) -> Parts:
    """At most ``size`` samples of each part, with every label in its proportion."""
    reduced = []
    for part in parts:
        kept = take_in_proportion(labels[part], size, random)
        reduced.append(part[kept])
    return reduced


def _by_plugin(
    entry: PartitionScheme,
    params: PartitionParameters,
    task: Task,
    random: np.random.Generator,
) -> Parts:
    assert entry.divide is not None
    try:
        parts = entry.divide(task.labels, task.groups, params, random)
        return [np.asarray(part, np.int64) for part in parts]
    except Exception as error:
        raise PartitionError(f"{entry.name}: {type(error).__name__}: {error}") from error


def _refuse_wrong(name: str, parts: Parts, task: Task) -> None:
    """PartitionError unless there is a part for each client, and each sample is in one part at most."""
    if len(parts) != task.clients:
        raise PartitionError(f"{name} made {len(parts)} parts for {task.clients} clients")
    dealt = np.concatenate(parts)
    count = len(task.labels)
    different = np.unique(dealt)
    twice = len(different) < len(dealt)
    outside = False
    if len(different):
        outside = bool(different[0] < 0 or different[-1] >= count)
    if twice or outside:
        raise PartitionError(f"{name}: each sample, 0 to {count - 1}, may be dealt once at most")


def _keeps_people_whole(
    entry: PartitionScheme,
    scheme: PartitionParameters,
    parts: Parts,
    subjects: Integers | None,
) -> bool:
    """Whether no person may have samples at two clients: as the partition declares, or as a file or Flower has it."""
    declared = entry.subjects
    if isinstance(scheme, FromFlower):
        by_person = scheme.by_subject
    else:
        by_person = isinstance(scheme, FromFile)
    if subjects is None or not (declared or by_person):
        return _without_whole_people(scheme)
        return _without_whole_people(scheme)
    divided = people.first_divided(parts, subjects)
    if divided is None:
        return True
    if declared:
        raise PartitionError(
            f"{entry.name} declares subjects=True, and person {divided} has samples at two clients: give all samples "
            "of a person to one client, or leave subjects out"
        )
    return _without_whole_people(scheme)


def _without_whole_people(scheme: PartitionParameters) -> bool:
    """False; PartitionError if the scenario sets what becomes of whole people."""
    few_samples = _few_samples(scheme)
    if few_samples != "refuse":
        raise PartitionError(
            f"few_samples: {few_samples} moves or leaves out whole people, and this partition divides the "
            "samples of a person: leave few_samples out"
        )
    return False


def _few_samples(scheme: PartitionParameters) -> str:
    return str(getattr(scheme, "few_samples", "refuse"))


def _with_enough_people(
    name: str,
    scheme: PartitionParameters,
    parts: Parts,
    task: Task,
    random: np.random.Generator,
) -> tuple[Parts, list[str]]:
    """The parts in which each client has `min_samples`, and notes on the people who were left out or moved."""
    assert task.subjects is not None
    least = scheme.min_samples
    few_samples = _few_samples(scheme)
    if few_samples == "leave-out":
        kept = people.of_people_with(least, task.subjects)
        parts = [part[np.isin(part, kept)] for part in parts]
        known = len(np.unique(task.subjects))
        kept_people = np.unique(task.subjects[kept])
        left_out = known - len(kept_people)
        people.refuse_short(name, parts, least, "take fewer clients or lower min_samples")
        if not left_out:
            return parts, []
        note = f"{left_out} of {known} people have fewer than min_samples {least}: no client has their samples"
        return parts, [note]
    if few_samples == "join":
        parts, moved = people.join(parts, task.subjects, least, random)
        if not moved:
            return parts, []
        if moved == 1:
            who = "1 person"
        else:
            who = f"{moved} people"
        note = f"{who} moved to another client, with all samples, so that each client has min_samples {least}"
        return parts, [note]
    if hasattr(scheme, "few_samples"):
        remedy = people.REMEDY
    else:
        remedy = "take fewer clients or lower min_samples"
    people.refuse_short(name, parts, least, remedy)
    return parts, []


@dataclass(frozen=True)
class Task:
    labels: Integers
    groups: tuple[int, ...]
    clients: int
    subjects: Integers | None

    @cached_property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def class_shares(self) -> Floats:
        """The share of each class in all samples (classes,)."""
        counts = np.bincount(self.labels, minlength=self.classes)
        shares: Floats = counts / len(self.labels)
        return shares

    def shuffled(self, label: int, random: np.random.Generator) -> Indices:
        samples = np.flatnonzero(self.labels == label)
        return random.permutation(samples)


def _iid(_: IID, task: Task, random: np.random.Generator) -> Parts:
    shuffled = random.permutation(len(task.labels))
    return np.array_split(shuffled, task.clients)


def _shards(scheme: LabelShards, task: Task, random: np.random.Generator) -> Parts:
    """Sort by label, cut into shards, give shards_per_client to each client (McMahan 2017). The rest stays unused."""
    wanted = task.clients * scheme.shards_per_client
    if scheme.shard_size == "auto":
        size = len(task.labels) // wanted
    else:
        size = int(scheme.shard_size)
    if size:
        available = len(task.labels) // size
    else:
        available = 0
    if available < wanted:
        raise PartitionError(
            f"{len(task.labels)} samples make {available} shards of {size}, and {task.clients} clients with "
            f"{scheme.shards_per_client} each need {wanted}: set shard_size to auto or a smaller number"
        )
    ordered = np.argsort(task.labels, kind="stable")
    drawn = random.permutation(available)[:wanted]
    parts = []
    for shards in drawn.reshape(task.clients, -1):
        pieces = []
        for shard in shards:
            start = size * shard
            pieces.append(ordered[start : start + size])
        parts.append(np.concatenate(pieces))
    return parts


MOST_SLOTS = 10_000_000  # slots of all edges together in `labels-per-edge`
PATTERNS: dict[str, tuple[Fraction, Fraction]] = {  # share of all labels at an edge; least share of its first label
    "D1": (Fraction(1, 10), Fraction(1)),
    "D2": (Fraction(5, 10), Fraction(0)),
    "D3": (Fraction(8, 10), Fraction(3, 10)),
    "D4": (Fraction(10, 10), Fraction(0)),
}


def edge_proportions(pattern: str, edge: int, classes: int) -> list[Fraction]:
    """Share of each label in the data of edge number `edge`: PHE-FL's Table II, and its Table III for D3.

    Edge e's labels are e, e + 1, ... modulo the number of classes: with ten the paper's numbers, with others scaled and
    rounded. The paper does not print D2's window, which is cyclic here, like D3's.
    """
    labels_share, first_share = PATTERNS[pattern]
    held = max(1, round(labels_share * classes))
    first = max(first_share, Fraction(1, held))
    shares = [Fraction(0)] * classes
    for offset in range(held):
        label = (edge + offset) % classes
        if offset == 0:
            shares[label] = first
        else:
            shares[label] = (1 - first) / (held - 1)
    return shares


def _labels_per_edge(scheme: LabelsPerEdge, task: Task, random: np.random.Generator) -> Parts:
    """PHE-FL's D1 to D4. With ten edges of ten devices every device has one label, and ten devices share each label.

    For other numbers each edge's data is a row of equal slots in its proportions. Its devices take equal runs of slots,
    so an edge of five devices has the same data as one of ten. All slots are about equally large.
    """
    rows = []
    for edge, devices in enumerate(task.groups):
        proportions = edge_proportions(scheme.pattern, edge, task.classes)
        rows.append(_slots(proportions, devices))
    lengths = [len(row) for row in rows]
    per_edge = lcm(*lengths)
    if per_edge * len(rows) > MOST_SLOTS:
        raise PartitionError(
            "labels-per-edge cannot give edges with such different numbers of devices equal shares: "
            "give each edge the same number, or numbers with common divisors"
        )
    rows = [np.repeat(row, per_edge // len(row)) for row in rows]
    all_slots = np.concatenate(rows)
    demand = np.bincount(all_slots, minlength=task.classes).max()
    pieces = []
    for label in range(task.classes):
        shuffled = task.shuffled(label, random)
        pieces.append(_even_split(shuffled, demand))
    used = [0] * task.classes
    parts = []
    for devices, row in zip(task.groups, rows, strict=True):
        for slots in np.split(row, devices):
            taken = []
            for label in slots:
                place = used[label]
                taken.append(pieces[label][place])
                used[label] += 1
            parts.append(np.concatenate(taken))
    return parts


def _even_split(samples: Indices, pieces: int) -> Parts:
    """Cut into pieces with sizes that differ by at most one. The larger pieces are spread evenly, not put first."""
    cuts = np.arange(1, pieces) * len(samples) // pieces
    return np.split(samples, cuts)


def _slots(shares: list[Fraction], devices: int) -> Integers:
    """Labels of an edge's slots: the fewest that hold the shares exactly and divide evenly over its devices."""
    denominators = [share.denominator for share in shares]
    count = lcm(devices, *denominators)
    of_labels = [int(share * count) for share in shares]
    return np.repeat(np.arange(len(shares)), of_labels)


def _by_subject(scheme: BySubject, task: Task, random: np.random.Generator) -> Parts:
    """Divide people in random order in equal numbers. A client gets all samples of each of its people."""
    assert task.subjects is not None
    kept = people.dealt(scheme.few_samples, scheme.min_samples, task.subjects)
    kept_people = np.unique(task.subjects[kept])
    dealt = random.permutation(kept_people)
    if len(dealt) < task.clients:
        if len(kept) < len(task.labels):
            who = f"{len(dealt)} people or authors with min_samples {scheme.min_samples}"
        else:
            who = f"{len(dealt)} people or authors in the data"
        raise PartitionError(f"{who} for {task.clients} clients: take fewer clients")
    parts = []
    for of_client in np.array_split(dealt, task.clients):
        is_theirs = np.isin(task.subjects, of_client)
        parts.append(np.flatnonzero(is_theirs))
    return parts


Divide = Callable[[Any, Task, np.random.Generator], Parts]
_SCHEMES: dict[type[PartitionParameters], Divide] = {
    IID: _iid,
    Dirichlet: by_dirichlet,
    LabelShards: _shards,
    LabelsPerEdge: _labels_per_edge,
    BySubject: _by_subject,
    ByAuthor: _by_subject,
    FromFlower: flower.divide,
}


def top_up(
    parts: Parts,
    labels: Integers,
    min_samples: int,
) -> tuple[Parts, list[LabelMove]]:
    """Give every client `min_samples`, in order. Samples come from the client that can give the most samples of one
    label and keep `min_samples` itself. Returns the parts and the moves."""
    parts = list(parts)
    moves = []
    classes = int(labels.max()) + 1
    counts = _label_counts(parts, labels, classes)
    for target in range(len(parts)):
        while len(parts[target]) < min_samples:
            spare = counts.sum(axis=1) - min_samples
            at_most = np.maximum(spare, 0)
            offers = np.minimum(counts, at_most[:, None])
            if not offers.any():
                raise PartitionError(f"the divided samples do not give all clients min_samples {min_samples}: lower it")
            client_and_label = np.unravel_index(np.argmax(offers), offers.shape)
            source = int(client_and_label[0])
            label = int(client_and_label[1])
            missing = min_samples - len(parts[target])
            count = int(min(offers[source, label], missing))
            of_label = labels[parts[source]] == label
            moved = parts[source][of_label][:count]
            parts[source] = np.setdiff1d(parts[source], moved)
            with_moved = [parts[target], moved]
            parts[target] = np.concatenate(with_moved)
            counts[source, label] -= count
            counts[target, label] += count
            moves.append(LabelMove(source, target, label, count))
    return parts, moves


MOST_OWN = 1000  # samples in a client's own test set


def own_test(
    test_labels: Integers,
    train_counts: Sequence[int] | Integers,
    seed: int,
    *,
    balanced: bool = False,
    limit: int | None = MOST_OWN,
) -> Indices:
    """Test samples for a client (or an edge: the sum over its devices) that holds `train_counts[c]` samples of class c.

    They are drawn with the distribution of its training labels, as many as the test set allows but at most `limit`.
    With `balanced` (PHE-FL, Table IV) they are drawn equally from its labels. Test sets of several clients may overlap.
    """
    test_classes = test_labels.max() + 1
    classes = int(max(test_classes, len(train_counts)))
    wanted = np.zeros(classes)
    wanted[: len(train_counts)] = train_counts
    if balanced:
        wanted = (wanted > 0).astype(float)
    if wanted.sum() == 0:
        return np.empty(0, dtype=np.int64)
    available = np.bincount(test_labels, minlength=classes)
    shares = wanted / wanted.sum()
    held = shares > 0
    most_of_label = available[held] / shares[held]
    size = float(most_of_label.min())
    if size < 1:  # a held label has no test samples: leave it out
        present = np.where(available > 0, wanted, 0)
        return own_test(test_labels, present, seed, balanced=balanced, limit=limit)
    if limit is not None:
        size = min(size, limit)
    counts = apportion(shares, int(size))
    return take(test_labels, counts, np.random.default_rng(seed))


def own_test_of(
    people: Indices,
    test_subjects: Indices,
    test_labels: Integers,
    seed: int,
    *,
    balanced: bool = False,
) -> Indices:
    """The test samples of these people: all of them, or `MOST_OWN` of them with every label in its proportion. With
    `balanced` they are drawn equally from the people's labels."""
    theirs = np.flatnonzero(np.isin(test_subjects, people))
    labels = test_labels[theirs]
    if not balanced:
        taken = take_in_proportion(labels, MOST_OWN, np.random.default_rng(seed))
    elif len(theirs):
        counts = np.bincount(labels)
        taken = own_test(labels, counts, seed, balanced=True)
    else:
        return theirs
    return theirs[taken]


def set_apart(
    indices: Indices,
    share: float,
    seed: int,
) -> tuple[Indices, Indices]:
    """A random `share` of the samples, rounded to whole samples, and the rest; both ascending. PHE-FL's PTD and ETD."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(indices))
    shuffled = indices[order]
    count = round(share * len(indices))
    apart = np.sort(shuffled[:count])
    rest = np.sort(shuffled[count:])
    return apart, rest
