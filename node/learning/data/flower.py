"""Partitions by the partitioners of `flwr_datasets`, an extra. They divide the labels; no samples are read."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from node.catalogue.partitions import FromFlower
from node.extras import lacking
from node.learning.data import people
from node.learning.data.shards import Indices
from node.learning.errors import PartitionError

if TYPE_CHECKING:
    from node.learning.data.partition import Task


def divide(
    scheme: FromFlower,
    task: Task,
    random: np.random.Generator,
) -> list[Indices]:
    """The samples of each client. The partitioner gets the columns index, label and, if known, subject, shuffled as
    `FederatedDataset` does: the columns stay in the order of the data, which `Dataset.unique` and with it partitioners
    by person follow. Its arguments default to the scenario's clients and seed, and to the column label."""
    try:
        from datasets import Dataset
        from flwr_datasets import partitioner
    except ImportError as error:
        reason = lacking(error) or f"cannot be imported: {error}"
        raise PartitionError(f"flwr {reason}") from error
    name = scheme.partitioner
    known = [kind for kind in partitioner.__all__ if kind != "Partitioner"]
    if name not in known:
        raise PartitionError(f"{name!r} is no partitioner of flwr_datasets (known: {', '.join(known)})")
    kind = getattr(partitioner, name)
    allowed = signature(kind).parameters
    defaults = {
        "num_partitions": task.clients,
        "partition_by": "label",
        "seed": int(random.integers(2**31)),
    }
    shuffle_seed = int(random.integers(2**31))
    if scheme.shuffle_seed is not None:
        shuffle_seed = scheme.shuffle_seed
    try:
        arguments: dict[str, Any] = {}
        for key, value in defaults.items():
            if key in allowed:
                arguments[key] = value
        for key, value in scheme.arguments.items():
            if np.ndim(value) > 1:
                value = np.array(value)
            arguments[key] = value
        partition = kind(**arguments)
        columns = Dataset.from_dict(_columns(scheme, task))
        partition.dataset = columns.shuffle(seed=shuffle_seed)
        parts = []
        for client in range(partition.num_partitions):
            index = partition.load_partition(client)["index"]
            parts.append(np.asarray(index, np.int64))
        return parts
    except Exception as error:
        if "min_partition_size" in allowed and "attempts" in str(error):
            raise PartitionError(_TOO_SMALL.format(name=name)) from error
        raise PartitionError(f"{name}({', '.join(allowed)}): {error}") from error


# The library proposes another alpha, which would be another experiment, and which seeds fail is no random choice.
_TOO_SMALL = (
    "{name}: none of its draws with this seed gives each client arguments.min_partition_size samples: set it to 0; "
    "min_samples of flwr then fills up small clients, for every seed"
)


def _columns(scheme: FromFlower, task: Task) -> dict[str, Indices]:
    """The columns of all samples that may be dealt, in the order of the data."""
    index = np.arange(len(task.labels))
    if task.subjects is None:
        return {"index": index, "label": task.labels}
    if scheme.by_subject:
        index = people.dealt(scheme.few_samples, scheme.min_samples, task.subjects)
    return {
        "index": index,
        "label": task.labels[index],
        "subject": task.subjects[index],
    }
