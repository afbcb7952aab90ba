"""A stand-in for `datasets` and `flwr_datasets`, which CI does not install: the interface that edgebed uses, and four
partitioners with the signatures and results of `flwr_datasets` 0.6.1. The Dirichlet draws are others."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Self

import numpy as np


class Dataset:
    """Columns of equal length."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = {name: np.asarray(values) for name, values in columns.items()}
        self._stored = self._columns

    @classmethod
    def from_dict(cls, columns: Mapping[str, Any]) -> Self:
        return cls(columns)

    def __getitem__(self, name: str) -> list[Any]:
        values: list[Any] = self._columns[name].tolist()
        return values

    def shuffle(self, seed: int) -> Dataset:
        """Other rows, as a list of indices: `unique` follows the order of the columns, as in the library."""
        shuffled = self.select(np.random.default_rng(seed).permutation(len(self["index"])))
        shuffled._stored = self._stored
        return shuffled

    def unique(self, name: str) -> list[Any]:
        """The values of a column in the order in which they first occur in the stored columns."""
        return list(dict.fromkeys(self._stored[name].tolist()))

    def select(self, rows: Any) -> Dataset:
        return Dataset({name: values[rows] for name, values in self._columns.items()})


class Partitioner:
    dataset: Dataset
    num_partitions: int

    def rows(self) -> list[Any]:
        raise NotImplementedError

    def load_partition(self, partition_id: int) -> Dataset:
        return self.dataset.select(self.rows()[partition_id])


class IidPartitioner(Partitioner):
    """Cuts the rows as they are into parts of equal size."""

    def __init__(self, num_partitions: int) -> None:
        self.num_partitions = num_partitions

    def rows(self) -> list[Any]:
        return np.array_split(np.arange(len(self.dataset["index"])), self.num_partitions)


class NaturalIdPartitioner(Partitioner):
    def __init__(self, partition_by: str) -> None:
        self._by = partition_by

    @property
    def num_partitions(self) -> int:  # type: ignore[override]
        return len(self.rows())

    def rows(self) -> list[Any]:
        values = np.asarray(self.dataset[self._by])
        return [np.flatnonzero(values == each) for each in np.unique(values)]


class GroupedNaturalIdPartitioner(Partitioner):
    """Groups of values in the order in which they occur."""

    def __init__(self, partition_by: str, group_size: int) -> None:
        self._by, self._size = partition_by, group_size

    @property
    def num_partitions(self) -> int:  # type: ignore[override]
        return len(self.rows())

    def rows(self) -> list[Any]:
        known, values = self.dataset.unique(self._by), np.asarray(self.dataset[self._by])
        groups = np.array_split(known, len(known) // self._size)
        return [np.flatnonzero(np.isin(values, group)) for group in groups]


class DirichletPartitioner(Partitioner):
    def __init__(
        self,
        num_partitions: int,
        partition_by: str,
        alpha: float | list[float],
        min_partition_size: int = 10,
        self_balancing: bool = False,
        shuffle: bool = True,
        seed: int | None = 42,
    ) -> None:
        self.num_partitions, self._by, self._alpha, self._seed = num_partitions, partition_by, alpha, seed
        self._least = min_partition_size

    def rows(self) -> list[Any]:
        rows = self._drawn()
        if min(len(part) for part in rows) < self._least:
            raise ValueError("The max number of attempts (10) was reached. Please update the values of alpha.")
        return rows

    def _drawn(self) -> list[Any]:
        random, labels = np.random.default_rng(self._seed), np.asarray(self.dataset[self._by])
        shares = [random.dirichlet(np.broadcast_to(self._alpha, self.num_partitions)) for _ in np.unique(labels)]
        owner = np.array([random.choice(self.num_partitions, p=shares[label]) for label in labels])
        return [np.flatnonzero(owner == each) for each in range(self.num_partitions)]


def modules() -> dict[str, ModuleType]:
    """The modules by name, for `sys.modules`."""
    datasets, flower, partitioner = map(ModuleType, ("datasets", "flwr_datasets", "flwr_datasets.partitioner"))
    kinds = (DirichletPartitioner, GroupedNaturalIdPartitioner, IidPartitioner, NaturalIdPartitioner, Partitioner)
    vars(datasets)["Dataset"], vars(flower)["partitioner"] = Dataset, partitioner
    vars(partitioner).update({kind.__name__: kind for kind in kinds}, __all__=[kind.__name__ for kind in kinds])
    return {module.__name__: module for module in (datasets, flower, partitioner)}
