"""The ways to divide the training data over clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from node.parameters import Between, Parameters, number, text, whole, word


@dataclass(frozen=True, kw_only=True)
class PartitionParameters(Parameters):
    """min_samples: clients with fewer samples are topped up from the largest holders, and every move is recorded;
    samples_per_client: samples that each client keeps, in the proportions of its labels, for small experiments."""

    min_samples: int = whole(1, low=0)
    samples_per_client: int | None = whole(None, low=1, none=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples_per_client is not None and self.samples_per_client < self.min_samples:
            raise ValueError(f"samples_per_client: {self.samples_per_client} is below min_samples {self.min_samples}")


@dataclass(frozen=True, kw_only=True)
class IID(PartitionParameters):
    """Samples divided at random, in equal numbers."""


@dataclass(frozen=True, kw_only=True)
class Dirichlet(PartitionParameters):
    """alpha α: small is skewed, large is even. variant: `class` divides each class over clients and gives a full client
    no more (FedGen, NIID-Bench); `class-uncapped` has no such cap; `client` draws each client's classes and gives all
    clients the same number of samples (Hsu 2019). over: the draw is for `clients`, or for `edges`, each of which then
    divides its samples evenly."""

    alpha: float = number(0.5, low=0, above=True)
    variant: str = word("class", "class", "class-uncapped", "client")
    over: str = word("clients", "clients", "edges")
    min_samples: int = whole(10, low=0)


@dataclass(frozen=True, kw_only=True)
class LabelShards(PartitionParameters):
    """Samples sorted by label and cut into shards of shard_size, shards_per_client for each client (McMahan 2017).
    `auto` makes the shards as large as the data allows."""

    shard_size: int | str = word("auto", "auto", number=Between(int, 1))
    shards_per_client: int = whole(2, low=1)


@dataclass(frozen=True, kw_only=True)
class LabelsPerEdge(PartitionParameters):
    """pattern: PHE-FL's distributions D1 (one label per edge) to D4 (all labels at every edge), Tables II and III."""

    pattern: str = word("D1", "D1", "D2", "D3", "D4")


@dataclass(frozen=True, kw_only=True)
class BySubject(PartitionParameters):
    """Each client holds all samples of one or more people."""


@dataclass(frozen=True, kw_only=True)
class FromFile(PartitionParameters):
    """path: a JSON file of the sample indices of each client, relative to the scenario's (docs/data.md)."""

    path: str = text()
    min_samples: int = whole(0, low=0)


@dataclass(frozen=True)
class PartitionScheme:
    """A way to divide the training data; `short` is the parameter that a bare value sets (`{dirichlet: 0.1}`).

    `subjects`: clients hold whole people. If the data set also names the people of its test samples, a client's own
    test set has the test samples of its people.

    A plug-in's partition has ``divide(labels, groups, params, random)``. It returns the sample indices of each client.
    `labels` (N,) are those of all training samples. `groups` are the numbers of clients below each edge. `random` is a
    generator seeded by the scenario. Its parameter class serves no other partition.
    """

    name: str
    params: type[PartitionParameters]
    summary: str = ""
    short: str | None = None
    divide: Callable[[Any, Sequence[int], Any, Any], Sequence[Any]] | None = None
    subjects: bool = False


PARTITIONS: dict[str, PartitionScheme] = {
    scheme.name: scheme
    for scheme in (
        PartitionScheme("iid", IID, "at random, in equal numbers"),
        PartitionScheme("dirichlet", Dirichlet, "labels skewed by a Dirichlet draw", "alpha"),
        PartitionScheme("shards", LabelShards, "a few single-label shards per client", "shards_per_client"),
        PartitionScheme("labels-per-edge", LabelsPerEdge, "PHE-FL's D1 to D4", "pattern"),
        PartitionScheme("by-subject", BySubject, "whole people per client", subjects=True),
        PartitionScheme("file", FromFile, "the samples of each client, listed in a JSON file", "path"),
    )
}
