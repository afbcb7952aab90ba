"""The data of a plan: the data set, its partition, and what the nodes hold of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from node.catalogue.datasets import IGNORED
from orchestrator.planning.learning.class_metrics import class_metrics
from orchestrator.planning.learning.shards import PreparedLabels, Shards
from orchestrator.planning.plan import DataPlan
from orchestrator.scenario.schema import Scenario


def plan_data(
    scenario: Scenario,
    partition_params: Mapping[str, Any],
    data: PreparedLabels | None,
    shards: Shards,
) -> DataPlan:
    """Without ``data``, what is known before the data set is read."""
    plan = DataPlan(
        dataset=scenario.data.dataset[0],
        partition=scenario.data.partition.name,
        partition_params=dict(partition_params),
        test=scenario.data.test,
    )
    if data is None:
        return plan
    return replace(
        plan,
        dataset=data.name,
        sha256=data.sha256,
        classes=data.form.classes,
        train_samples=len(data.train),
        used_samples=sum(len(part) for part in shards.train.values()),
        test_samples=len(data.test),
        test_counts=data.test_counts(),
        task=data.form.task,
        guess=data.guess,
        columns=data.columns,
        class_metrics=class_metrics(scenario, data.name, data.form.task),
        shards_sha256=shards.sha256,
        moves=shards.moves,
        notes=(*_of_unlabelled(data.unlabelled), *shards.notes),
        unheld=_unheld(data, shards),
    )


def _of_unlabelled(count: int) -> Iterator[str]:
    """A note on samples without a label that counts."""
    if count == 0:
        return
    if count == 1:
        samples = "1 sample has"
    else:
        samples = f"{count} samples have"
    yield f"{samples} no label that counts ({IGNORED} only): left out"


def _unheld(data: PreparedLabels, shards: Shards) -> tuple[int, ...]:
    """The test classes without a training sample at any node. A population has samples of all classes to draw. Of a
    sequence only the last label is known here, so classes of tokens are not listed."""
    if data.form.labels or data.form.task != "classification":
        return ()
    trained: set[int] = set()
    if not shards.train:
        trained.update(data.train.tolist())
    for node in shards.train:
        for label, count in enumerate(shards.counts[node]):
            if count:
                trained.add(label)
    tested = set(data.test.tolist())
    return tuple(sorted(tested - trained))
