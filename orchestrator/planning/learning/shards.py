"""The partition of samples over nodes: training shards and own test sets, as index arrays of the prepared data set.

A pure function of the labels: no images are read. `Shards.write` writes the arrays for the nodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from node.assignment import Tier, derive_seed
from node.catalogue.datasets import IGNORED, Form
from node.catalogue.tasks import WITHOUT_CLASSES
from node.learning.data.datasets import Prepared
from node.learning.data.partition import Partition, divide, own_test, own_test_of, set_apart
from node.learning.errors import PartitionError
from node.parameters import read_parameters
from orchestrator.errors import PlanError
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.topology import Member

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PreparedLabels:
    """The labels of a prepared data set. ``directory``: its folder here. ``sha256``: of all its arrays.
    ``test_tokens``: the labels of all tokens of each test sequence, of which ``test`` has the last. ``sample_bytes``:
    of a sample as stored. ``guess``: the main metric of the best constant prediction on the test part, and its standard
    error; None for classes, since their counts give it. ``unlabelled``, ``columns``: as in
    `Prepared`."""

    name: str
    directory: str
    sha256: str
    form: Form
    train: Indices
    test: Indices
    subjects: Indices | None = None
    test_subjects: Indices | None = None
    test_tokens: Indices | None = None
    sample_bytes: int = 0
    guess: tuple[float, float] | None = None
    unlabelled: int = 0
    columns: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, prepared: Prepared) -> Self:
        test_tokens = None
        if prepared.labels:
            test_tokens = prepared.array("y_test")
        first = prepared.array("x_train")[:1]
        return cls(
            name=prepared.name,
            directory=str(prepared.directory),
            sha256=prepared.sha256,
            form=prepared.form,
            train=prepared.train_labels,
            test=prepared.test_labels,
            subjects=prepared.subjects,
            test_subjects=prepared.test_subjects,
            test_tokens=test_tokens,
            sample_bytes=first.nbytes,
            guess=_guess(prepared),
            unlabelled=prepared.unlabelled,
            columns=tuple((name, became) for name, became in prepared.columns),
        )

    @property
    def counted(self) -> int:
        """The number of classes of which samples are counted; without classes, all samples are counted as one."""
        if self.form.task == "classification":
            return self.form.classes
        return 1

    def test_counts(self, chosen: Indices | slice = slice(None)) -> tuple[int, ...]:
        """The number of labels of each class in these test samples; of sequences, of all tokens that count."""
        labels = self.test if self.test_tokens is None else self.test_tokens
        flat = labels[chosen].ravel()
        counting = flat[flat != IGNORED]
        counts = np.bincount(counting, minlength=self.counted)
        return tuple(counts.tolist())


def _guess(prepared: Prepared) -> tuple[float, float] | None:
    """Always predicting the most frequent set of labels, or the medians of the training part's numbers."""
    if prepared.task == "classification":
        return None
    y_train = prepared.array("y_train")
    y_test = prepared.array("y_test")
    samples = len(y_test)
    if prepared.task == "regression":
        medians = np.median(y_train, axis=0)
        errors = np.abs(y_test - medians).mean(axis=1)
        standard_error = errors.std() / math.sqrt(samples)
        return float(errors.mean()), float(standard_error)
    _, counts = np.unique(y_test, axis=0, return_counts=True)
    share = float(counts.max() / samples)
    variance = share * (1 - share) / samples
    return share, math.sqrt(variance)


@dataclass(frozen=True, eq=False)
class Shards:
    """The sample indices of each node that holds data, and of each node that has its own test set. ``personal``: the
    part of edges' own test sets that is set apart for personalisation. ``counts``: training samples per class and node;
    an edge has the sum of its devices. ``test_counts``: labels of ``own_test`` per class and node."""

    train: Mapping[str, Indices] = field(default_factory=dict)
    own_test: Mapping[str, Indices] = field(default_factory=dict)
    personal: Mapping[str, Indices] = field(default_factory=dict)
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    test_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    moves: tuple[tuple[str, str, int, int], ...] = ()  # repairs: from, to, label, number of samples
    sha256: str = ""
    notes: tuple[str, ...] = ()  # what became of people with too few samples

    def arrays(self) -> dict[str, Indices]:
        """Every array by its key in the file."""
        arrays = {}
        for kind, indices_by_node in self._kinds.values():
            for node, indices in indices_by_node.items():
                arrays[f"{node}.{kind}"] = indices
        return arrays

    def keys(self, node: str) -> dict[str, str]:
        """The keys of a node's arrays in the file, by their names in `DataAssignment`."""
        keys = {}
        for name, (kind, indices_by_node) in self._kinds.items():
            if node in indices_by_node:
                keys[name] = f"{node}.{kind}"
        return keys

    @property
    def _kinds(self) -> dict[str, tuple[str, Mapping[str, Indices]]]:
        return {
            "train_key": ("train", self.train),
            "own_test_key": ("test", self.own_test),
            "personal_key": ("personal", self.personal),
        }

    def write(self, path: Path) -> None:
        """Write the arrays as npz; equal shards give equal bytes."""
        arrays: dict[str, Any] = self.arrays()
        np.savez(path, allow_pickle=False, **arrays)


def make_shards(scenario: Scenario, data: PreparedLabels) -> Shards:
    """Divide the training data over the nodes that hold data, and draw test sets for them and for the edges above.
    Raises PlanError if the data does not suffice for the partition."""
    scheme = scenario.catalogue.partitions[scenario.data.partition.name]
    if scheme.labels and data.form.task != "classification":
        raise PlanError(
            ("data", "partition"),
            f"{scheme.name} divides by class, and {data.name} has {WITHOUT_CLASSES[data.form.task]}: take iid, "
            "by-subject or file",
        )
    if scenario.population is not None:
        return Shards()  # each client draws its own when it takes part: `orchestrator.population.shards`
    holders = _of_tier(scenario, "device") or _of_tier(scenario, "edge")
    names = [member.name for member in holders]
    partition, listed_tests = _divide(scenario, data, holders)
    label_counts = partition.label_counts(data.train, data.counted)
    counts = _counts(holders, label_counts)
    if listed_tests is None:
        people = {}
        if partition.whole_people:
            people = _people(holders, partition.parts, data)
        tests = _own_tests(scenario, data, counts, people)
    else:
        tests = _with_edges(holders, listed_tests)
    personal = _set_apart(scenario, tests)
    test_counts = {}
    for node, indices in tests.items():
        if len(indices):
            test_counts[node] = data.test_counts(indices)
    moves = []
    for move in partition.moves:
        source = names[move.source]
        target = names[move.target]
        moves.append((source, target, move.label, move.count))
    return Shards(
        train=dict(zip(names, partition.parts, strict=True)),
        own_test=tests,
        personal=personal,
        counts=counts,
        test_counts=test_counts,
        moves=tuple(moves),
        sha256=partition.sha256,
        notes=partition.notes,
    )


def _of_tier(scenario: Scenario, tier: Tier) -> list[Member]:
    return [member for member in scenario.members if member.tier == tier]


def _divide(
    scenario: Scenario,
    data: PreparedLabels,
    holders: list[Member],
) -> tuple[Partition, list[Indices] | None]:
    """The partition of the training data, and the test samples of each holder if a file lists them. PlanError if the
    data does not suffice, or does not fit the file."""
    scheme = scenario.catalogue.partitions[scenario.data.partition.name]
    names = [member.name for member in holders]
    groups = _groups(holders)
    lists = scenario.data.lists
    if lists is not None and data.unlabelled:
        raise PlanError(
            ("data", "partition"),
            f"file: {data.unlabelled} samples without a label that counts were left out of {data.name}, so the indices "
            "of others have changed: remove these samples from the data set and the file",
        )
    seed = derive_seed(scenario.seed, "partition")
    training = None
    testing = None
    try:
        params = read_parameters(scheme.params, scenario.data.partition_params)
        if lists is not None:
            training = lists.training(names, len(data.train))
            testing = lists.testing(names, len(data.test))
        partition = divide(
            params,
            data.train,
            groups,
            seed,
            data.subjects,
            training,
            scenario.catalogue.partitions,
        )
    except (PartitionError, ValueError) as error:
        raise PlanError(("data", "partition"), str(error)) from error
    return partition, testing


def _own_tests(
    scenario: Scenario,
    data: PreparedLabels,
    counts: Mapping[str, tuple[int, ...]],
    people: Mapping[str, Indices],
) -> dict[str, Indices]:
    """A test set for each node with training samples: those of its people, else some with its classes."""
    balanced = scenario.data.test == "balanced"
    subjects = data.test_subjects
    tests = {}
    for node, of_classes in counts.items():
        seed = derive_seed(scenario.seed, "own-test", node)
        if people and subjects is not None:
            own = own_test_of(people[node], subjects, data.test, seed, balanced=balanced)
        else:
            own = own_test(data.test, of_classes, seed, balanced=balanced)
        tests[node] = own
    return tests


def _set_apart(scenario: Scenario, tests: dict[str, Indices]) -> dict[str, Indices]:
    """Take a part of each edge's test set out of ``tests``, for personalisation."""
    personal: dict[str, Indices] = {}
    algorithm = scenario.scheme
    for member in scenario.members:
        if member.tier != "edge":
            continue
        edge = member.name
        seed = derive_seed(scenario.seed, "personalisation", edge)
        apart, tests[edge] = set_apart(tests[edge], scenario.personalisation, seed)
        if len(apart):
            personal[edge] = apart
        elif algorithm.personalises:
            share = f"{scenario.personalisation:.0%} of {edge}'s own test samples ({len(tests[edge])})"
            raise PlanError(
                ("data", "personalisation"),
                f"{share} rounds to no sample, and {algorithm} needs at least one: raise it",
            )
    return personal


def _groups(holders: list[Member]) -> list[int]:
    """The number of holders below each edge; each edge that holds data is its own group."""
    if holders[0].tier == "edge":
        return [1] * len(holders)
    sizes = Counter(member.parent for member in holders)
    return list(sizes.values())


def _people(
    holders: list[Member],
    parts: Sequence[Indices],
    data: PreparedLabels,
) -> dict[str, Indices]:
    """The people with training samples at each node; an edge has those of its devices. Empty if the test samples are of
    other people, as where a data set is split by people."""
    subjects = data.subjects
    if subjects is None or data.test_subjects is None:
        return {}
    are_known = np.isin(data.test_subjects, subjects)
    if not are_known.any():
        return {}
    people = [subjects[part] for part in parts]
    return _with_edges(holders, people)


def _with_edges(holders: list[Member], held: Sequence[Indices]) -> dict[str, Indices]:
    """What each holder has, ascending and without repetition, and what the devices of each edge have together."""
    sets = {}
    for member, own in zip(holders, held, strict=True):
        sets[member.name] = np.unique(own)
    for member in holders:
        edge = _edge_above(member)
        if edge is None:
            continue
        together = sets[member.name]
        if edge in sets:
            together = np.union1d(sets[edge], together)
        sets[edge] = together
    return sets


def _counts(
    holders: list[Member],
    held: NDArray[np.int64],
) -> dict[str, tuple[int, ...]]:
    """The samples per class at each holder and, summed, at each edge above."""
    rows = {}
    for member, own in zip(holders, held, strict=True):
        rows[member.name] = own
    for member in holders:
        edge = _edge_above(member)
        if edge is not None:
            before = rows.get(edge, 0)
            rows[edge] = before + rows[member.name]
    counts = {}
    for node, row in rows.items():
        counts[node] = tuple(row.tolist())
    return counts


def _edge_above(member: Member) -> str | None:
    """The edge of a device; None for other nodes, and for a device below the cloud."""
    if member.tier != "device" or member.parent == "cloud":
        return None
    return member.parent
