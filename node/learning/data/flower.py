"""Partitions by the partitioners of `flwr_datasets`, an extra. They divide the labels; no samples are read."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING

import numpy as np

from node.catalogue.partitions import FromFlower
from node.extras import lacking
from node.learning.data.shards import Indices
from node.learning.errors import PartitionError

if TYPE_CHECKING:
    from node.learning.data.partition import Task


def divide(scheme: FromFlower, task: Task, random: np.random.Generator) -> list[Indices]:
    """The samples of each client. The partitioner gets the columns index, label and, if known, subject, in random order
    as `FederatedDataset` does. Its arguments default to the scenario's clients and seed, and to the column label."""
    try:
        from datasets import Dataset
        from flwr_datasets import partitioner
    except ImportError as error:
        raise PartitionError(f"flwr {lacking(error) or f'cannot be imported: {error}'}") from error
    name, known = scheme.partitioner, [each for each in partitioner.__all__ if each != "Partitioner"]
    if name not in known:
        raise PartitionError(f"{name!r} is no partitioner of flwr_datasets (known: {', '.join(known)})")
    allowed = signature(getattr(partitioner, name)).parameters
    usual = {"num_partitions": task.clients, "partition_by": "label", "seed": int(random.integers(2**31))}
    order = random.permutation(len(task.labels))
    columns = {"index": order, "label": task.labels[order]}
    columns |= {} if task.subjects is None else {"subject": task.subjects[order]}
    try:
        given = {key: np.array(value) if np.ndim(value) > 1 else value for key, value in scheme.arguments.items()}
        made = getattr(partitioner, name)(**{key: usual[key] for key in usual if key in allowed} | given)
        made.dataset = Dataset.from_dict(columns)
        count = made.num_partitions
        return [np.asarray(made.load_partition(client)["index"], np.int64) for client in range(count)]
    except Exception as error:
        raise PartitionError(f"{name}({', '.join(allowed)}): {error}") from error
