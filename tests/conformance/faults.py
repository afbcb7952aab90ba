"""Whole runs of an algorithm with a fault in one of the first rounds, and what their ends are compared with.

Afterwards the rounds are undisturbed, so that the end is that of the run without the fault: exactly if nothing was
missed, else within the spread over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.assignment import Gathering
from node.learning.data.datasets import Prepared
from node.messaging.wire import Message
from node.parameters import read_parameters
from node.plugins import find, with_plugins
from node.testing import Fate, Federation

SEEDS = (7, 8, 9)
DEADLINE = 5.0  # s; no round takes as long without a fault
RULE = Gathering(quorum=0.5, deadline=DEADLINE)
SGD: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}

MESSAGES = {"lost": (), "late": (DEADLINE + 0.05,), "repeated": (0.0, 0.0, 0.4)}
"""The delays of each copy of the message that a fault meets. It is repeated at once, and again after some rounds."""
HARMLESS = ("repeated",)


@dataclass(frozen=True)
class Case:
    """The message of ``sender`` that a fault meets: of its ``kind``, the one with the number ``place``, from 1.
    ``ends``: the nodes with the result. ``scope``: the accuracy that is compared, on so many test ``samples``.
    ``plugin``: the module with the algorithm."""

    algorithm: str
    tree: Mapping[str, str | None]
    sender: str
    kind: str
    params: Mapping[str, Any] = field(default_factory=dict)
    ends: tuple[str, ...] = ("cloud",)
    rounds: int = 5
    place: int = 2
    scope: str = "global"
    plugin: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    def run(self, digits: Prepared, folder: Path, **faults: Any) -> Federation:
        catalogue = with_plugins([find(self.plugin, folder)] if self.plugin else [])
        params = read_parameters(catalogue.algorithms[self.algorithm].params, SGD | dict(self.params))
        fields: dict[str, Any] = {"gathering": RULE, "catalogue": catalogue} | dict(self.more) | faults
        return Federation(digits, self.tree, self.algorithm, params, folder, self.rounds, **fields).run()

    def undisturbed(self) -> str:
        """All that the results of its run without a fault depend on: cases of several messages share this run."""
        return repr(
            (self.algorithm, self.plugin, self.tree, self.params, self.more, self.rounds, self.ends, self.scope)
        )

    def fate(self, *delays: float) -> Fate:
        """A fate that meets the message."""
        sent = 0

        def fate(message: Message) -> Sequence[float]:
            nonlocal sent
            if (message.sender, message.kind) != (self.sender, self.kind):
                return (0.0,)
            sent += 1
            return delays if sent == self.place else (0.0,)

        return fate

    def value(self, run: Federation, name: str = "accuracy") -> float:
        """The mean over the nodes with the result, in the last round that has one."""
        values = []
        for node in self.ends:
            series = run.journals[node].series(self.scope, name)
            values.append(series[max(series)])
        return sum(values) / len(values)


def first_of_each_run(cases: Mapping[str, Case]) -> list[str]:
    """The name of one case for each run without a fault. A restart meets the others with it in the same way: they name
    another message only."""
    firsts: dict[str, str] = {}
    for name, case in cases.items():
        firsts.setdefault(case.undisturbed(), name)
    return list(firsts.values())


class CalmRuns:
    """Each case without a fault. It runs with a seed when that is first needed."""

    def __init__(self, cases: Mapping[str, Case], digits: Prepared, folder: Path) -> None:
        self.cases, self._digits, self._folder = cases, digits, folder
        self._runs: dict[tuple[str, int], Federation] = {}

    def __getitem__(self, name: str) -> Federation:
        """With the seed of the runs with a fault."""
        return self._run(name, SEEDS[0])

    def spread(self, name: str) -> float:
        """Of the accuracies over the seeds."""
        case = self.cases[name]
        accuracies = [case.value(self._run(name, seed)) for seed in SEEDS]
        return max(accuracies) - min(accuracies)

    def _run(self, name: str, seed: int) -> Federation:
        case = self.cases[name]
        key = (case.undisturbed(), seed)
        if key not in self._runs:
            folder = self._folder / f"{name}-{seed}"
            self._runs[key] = case.run(self._digits, folder, seed=seed)
        return self._runs[key]


def assert_close(name: str, run: Federation, calm: CalmRuns) -> None:
    """The accuracies with and without a fault differ by no more than the spread over the seeds, and two standard errors
    of an accuracy on the test samples of a node. Within these errors the other seeds are not needed."""
    case, undisturbed = calm.cases[name], calm[name]
    samples = undisturbed.roles[case.ends[0]].learner.test_samples(case.scope)
    errors = 2 * math.sqrt(0.25 / samples)
    difference = abs(case.value(run) - case.value(undisturbed))
    assert difference <= errors or difference <= errors + calm.spread(name)
