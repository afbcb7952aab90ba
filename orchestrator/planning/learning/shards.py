"""The division of samples over nodes: training shards and own test sets, as index arrays of the prepared data set.

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

from node.assignment import derive_seed
from node.catalogue.datasets import IGNORED, WITHOUT_CLASSES, Form
from node.catalogue.partitions import PARTITIONS
from node.learning.data.datasets import Prepared
from node.learning.data.partition import divide, own_test, own_test_of, set_apart
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
    error; None for classes, by whose counts it is known. ``unlabelled``, ``columns``:
    as in `Prepared`."""

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
        return cls(
            prepared.name,
            str(prepared.directory),
            prepared.sha256,
            prepared.form,
            prepared.train_labels,
            prepared.test_labels,
            prepared.subjects,
            prepared.test_subjects,
            prepared.array("y_test") if prepared.labels else None,
            prepared.array("x_train")[:1].nbytes,
            _guess(prepared),
            prepared.unlabelled,
            tuple((name, became) for name, became in prepared.columns),
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
        return tuple(np.bincount(counting, minlength=self.counted).tolist())


def _guess(prepared: Prepared) -> tuple[float, float] | None:
    """Always predicting the most frequent set of labels, or the medians of the training part's numbers."""
    if prepared.task == "classification":
        return None
    y_train = prepared.array("y_train")
    y_test = prepared.array("y_test")
    if prepared.task == "regression":
        errors = np.abs(y_test - np.median(y_train, axis=0)).mean(axis=1)
        return float(errors.mean()), float(errors.std() / math.sqrt(len(errors)))
    share = float(np.unique(y_test, axis=0, return_counts=True)[1].max() / len(y_test))
    return share, math.sqrt(share * (1 - share) / len(y_test))


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
        return {f"{node}.{kind}": indices for kind, held in self._kinds.values() for node, indices in held.items()}

    def keys(self, node: str) -> dict[str, str]:
        """The keys of a node's arrays in the file, by their names in `DataAssignment`."""
        return {name: f"{node}.{kind}" for name, (kind, held) in self._kinds.items() if node in held}

    @property
    def _kinds(self) -> dict[str, tuple[str, Mapping[str, Indices]]]:
        train = ("train", self.train)
        own_test = ("test", self.own_test)
        personal = ("personal", self.personal)
        return {"train_key": train, "own_test_key": own_test, "personal_key": personal}

    def write(self, path: Path) -> None:
        """Write the arrays as npz; equal shards give equal bytes."""
        arrays: dict[str, Any] = self.arrays()
        np.savez(path, allow_pickle=False, **arrays)


def make_shards(scenario: Scenario, data: PreparedLabels) -> Shards:
    """Divide the training data over the nodes that hold data, and draw test sets for them and for the edges above.
    Raises PlanError if the data does not suffice for the partition."""
    scheme = PARTITIONS[scenario.data.partition.name]
    if scheme.labels and data.form.task != "classification":
        raise PlanError(
            ("data", "partition"),
            f"{scheme.name} divides by class, and {data.name} has {WITHOUT_CLASSES[data.form.task]}: take iid, "
            "by-subject or file",
        )
    if scenario.population is not None:
        return Shards()  # each client draws its own when it takes part: `orchestrator.population.shards`
    members = scenario.members
    holders = [member for member in members if member.tier == "device"]
    holders = holders or [member for member in members if member.tier == "edge"]
    names = [member.name for member in holders]
    lists = scenario.data.lists
    if lists is not None and data.unlabelled:
        raise PlanError(
            ("data", "partition"),
            f"file: {data.unlabelled} samples without a label that counts were left out of {data.name}, so the indices "
            "of others have changed: remove these samples from the data set and the file",
        )
    try:
        params = read_parameters(scheme.params, scenario.data.partition_params)
        seed = derive_seed(scenario.seed, "partition")
        if lists is None:
            listed = None
        else:
            listed = lists.training(names, len(data.train))
        if lists is None:
            listed_tests = None
        else:
            listed_tests = lists.testing(names, len(data.test))
        partition = divide(params, data.train, _groups(holders), seed, data.subjects, listed)
    except (PartitionError, ValueError) as error:
        raise PlanError(("data", "partition"), str(error)) from error
    counts = _counts(holders, partition.label_counts(data.train, data.counted))
    if partition.whole_people:
        people = _people(holders, partition.parts, data)
    else:
        people = {}
    balanced = scenario.data.test == "balanced"
    tests = {} if listed_tests is None else _with_edges(holders, listed_tests)
    for node, held in counts.items() if not tests else ():
        seed = derive_seed(scenario.seed, "own-test", node)
        if people and data.test_subjects is not None:
            tests[node] = own_test_of(people[node], data.test_subjects, data.test, seed, balanced=balanced)
        else:
            tests[node] = own_test(data.test, held, seed, balanced=balanced)
    personal: dict[str, Indices] = {}
    algorithm = scenario.scheme
    for edge in (member.name for member in members if member.tier == "edge"):
        seed = derive_seed(scenario.seed, "personalisation", edge)
        personal[edge], tests[edge] = set_apart(tests[edge], scenario.personalisation, seed)
        if algorithm.personalises and len(personal[edge]) == 0:
            share = f"{scenario.personalisation:.0%} of {edge}'s own test samples ({len(tests[edge])})"
            raise PlanError(
                ("data", "personalisation"),
                f"{share} rounds to no sample, and {algorithm} needs at least one: raise it",
            )
    personal = {edge: indices for edge, indices in personal.items() if len(indices)}
    moves = tuple((names[move.source], names[move.target], move.label, move.count) for move in partition.moves)
    parts = dict(zip(names, partition.parts, strict=True))
    test_counts = {node: data.test_counts(indices) for node, indices in tests.items() if len(indices)}
    return Shards(parts, tests, personal, counts, test_counts, moves, partition.sha256, partition.notes)


def _groups(holders: list[Member]) -> list[int]:
    """The number of holders below each edge; each edge that holds data is its own group."""
    if holders[0].tier == "edge":
        return [1] * len(holders)
    return list(Counter(member.parent for member in holders).values())


def _people(holders: list[Member], parts: Sequence[Indices], data: PreparedLabels) -> dict[str, Indices]:
    """The people of whom each node holds training samples; an edge has those of its devices. Empty if the test samples
    are of nobody of them, as where a data set is split by people."""
    if data.subjects is None or data.test_subjects is None or not np.isin(data.test_subjects, data.subjects).any():
        return {}
    return _with_edges(holders, [data.subjects[part] for part in parts])


def _with_edges(holders: list[Member], held: Sequence[Indices]) -> dict[str, Indices]:
    """What each holder has, ascending and without repetition, and what the devices of each edge have together."""
    found = {member.name: np.unique(own) for member, own in zip(holders, held, strict=True)}
    for member in holders:
        if member.tier == "device" and member.parent not in (None, "cloud"):
            found[member.parent] = np.union1d(found.get(member.parent, np.empty(0, np.int64)), found[member.name])
    return found


def _counts(holders: list[Member], held: NDArray[np.int64]) -> dict[str, tuple[int, ...]]:
    """The samples per class at each holder and, summed, at each edge above."""
    rows = dict(zip((member.name for member in holders), held, strict=True))
    for member in holders:
        if member.tier == "device" and member.parent not in (None, "cloud"):
            rows[member.parent] = rows.get(member.parent, 0) + rows[member.name]
    return {node: tuple(int(count) for count in row) for node, row in rows.items()}
