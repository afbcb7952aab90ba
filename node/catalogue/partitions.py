"""The ways to divide the training data over clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from node.catalogue.tables import by_name
from node.parameters import Between, Parameters, mapping, number, text, whole, word


@dataclass(frozen=True, kw_only=True)
class PartitionParameters(Parameters):
    """Parameters of every partition.

    min_samples: smallest number of training samples of a client; a smaller part is filled up from the largest ones
    samples_per_client: training samples that each client keeps, in the proportions of its labels; default: all of its
        part
    """

    min_samples: int = whole(1, low=0)
    samples_per_client: int | None = whole(None, low=1, none=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        kept = self.samples_per_client
        if kept is not None and kept < self.min_samples:
            raise ValueError(f"samples_per_client: {self.samples_per_client} is below min_samples {self.min_samples}")


@dataclass(frozen=True, kw_only=True)
class PeopleParameters(PartitionParameters):
    """Parameters of a partition that keeps people whole: all samples of a person are at one client.

    min_samples: smallest number of training samples of a client; see few_samples
    few_samples: what to do if a client's people have fewer than min_samples: refuse; leave-out: people with fewer
        samples are at no client; join: whole people move to this client from others
    """

    few_samples: str = word("refuse", "refuse", "leave-out", "join")


@dataclass(frozen=True, kw_only=True)
class IID(PartitionParameters):
    """Samples divided at random, in numbers that differ by one at most."""


@dataclass(frozen=True, kw_only=True)
class Dirichlet(PartitionParameters):
    """Labels skewed by a Dirichlet draw.

    alpha: α, concentration; small is skewed, large is even
    variant: class: divides each class over clients, and gives a full client no more (FedGen, NIID-Bench);
        class-uncapped: without that cap; client: draws the classes of each client from Dir(α, …, α), and all get the
        same number of samples (FedDyn, pfl-research); client-prior: the same from Dir(α p) (Hsu 2019), where p are the
        shares of the classes, so with ten equal classes it is client with α / 10
    over: who the draw is for: clients, or edges; each edge divides its samples evenly
    """

    alpha: float = number(0.5, low=0, above=True)
    variant: str = word("class", "class", "class-uncapped", "client", "client-prior")
    over: str = word("clients", "clients", "edges")
    min_samples: int = whole(10, low=0)


@dataclass(frozen=True, kw_only=True)
class LabelShards(PartitionParameters):
    """Samples sorted by label and cut into shards (McMahan 2017).

    shard_size: samples per shard; auto: as many as the data allows
    shards_per_client: shards of each client
    """

    shard_size: int | str = word("auto", "auto", number=Between(int, 1))
    shards_per_client: int = whole(2, low=1)


@dataclass(frozen=True, kw_only=True)
class LabelsPerEdge(PartitionParameters):
    """Labels by edge, as in PHE-FL.

    pattern: distribution of PHE-FL: D1 (one label per edge) to D4 (all labels at every edge), Tables II and III
    """

    pattern: str = word("D1", "D1", "D2", "D3", "D4")


@dataclass(frozen=True, kw_only=True)
class BySubject(PeopleParameters):
    """Each client holds all samples of one or more people."""


@dataclass(frozen=True, kw_only=True)
class ByAuthor(BySubject):
    """Each client holds all texts of one or more authors."""


@dataclass(frozen=True, kw_only=True)
class FromFile(PartitionParameters):
    """The samples of each client from a file.

    path: JSON file with the sample indices of each client, relative to the scenario's file (docs/reference/data.md)
    """

    path: str = text()
    min_samples: int = whole(0, low=0)


@dataclass(frozen=True, kw_only=True)
class FromFlower(PeopleParameters):
    """The samples of each client by a partitioner of `flwr_datasets`.

    min_samples: smallest number of training samples of a client; a smaller part is filled up from the largest ones,
        but if it keeps people whole, see few_samples
    few_samples: with partition_by subject, if a client's people have fewer than min_samples: refuse; leave-out: people
        with fewer samples are at no client; join: whole people move to this client from others
    partitioner: its name, such as DirichletPartitioner
    arguments: its arguments, such as alpha; num_partitions is the number of clients, and the seed is the scenario's
    shuffle_seed: seed of the shuffling before; default: from the scenario's seed
    """

    partitioner: str = text()
    arguments: Mapping[str, Any] = mapping()
    shuffle_seed: int | None = whole(None, low=0, none=True)
    min_samples: int = whole(0, low=0)

    @property
    def by_subject(self) -> bool:
        """Whether the partitioner divides by person."""
        return self.arguments.get("partition_by") == "subject"


@dataclass(frozen=True)
class PartitionScheme:
    """A way to divide the training data; `short` is the parameter that a bare value sets (`{dirichlet: 0.1}`).

    `labels`: divides by class, so it needs data with classes.
    `subjects`: clients hold whole people, and samples of a person at two clients are refused. If the data set also
    names the people of its test samples, a client's own test set has the test samples of its people. A parameter
    `few_samples` (refuse, leave-out, join) lets the scenario choose what becomes of people with too few samples.

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
    labels: bool = False


PARTITIONS: Mapping[str, PartitionScheme] = by_name(
    PartitionScheme("iid", IID, "samples drawn at random, in numbers that differ by one at most"),
    PartitionScheme("dirichlet", Dirichlet, "labels skewed by a Dirichlet draw", "alpha", labels=True),
    PartitionScheme("shards", LabelShards, "a few single-label shards per client", "shards_per_client", labels=True),
    PartitionScheme(
        "labels-per-edge",
        LabelsPerEdge,
        "labels assigned to edges, as in PHE-FL's D1 to D4",
        "pattern",
        labels=True,
    ),
    PartitionScheme("by-subject", BySubject, "all samples of one or more people per client", subjects=True),
    PartitionScheme("by-author", ByAuthor, "all texts of one or more authors per client", subjects=True),
    PartitionScheme("file", FromFile, "the samples of each client, listed in a JSON file", "path"),
    PartitionScheme("flwr", FromFlower, "a partitioner of flwr_datasets", "partitioner", labels=True),
)
"""The partitions of edgebed."""
