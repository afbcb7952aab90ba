"""What a scenario may name: algorithms, models, data sets and partitions, with the parameters of each.

Everything here is plain data: no torch, no files, no network. Whoever validates or plans a scenario reads it, and a
node looks up from it which module runs. A new algorithm is one module in `node.algorithms` and one entry here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from node.parameters import Between, Parameters, number, read_parameters, whole, word

Shape = tuple[int, ...]  # of one sample, channels first: (1, 28, 28) image, (3, 128) sequence, (20,) features
Need = Literal["required", "optional", "none"]


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Parameters):
    """Stochastic gradient descent on a client's own data, and how results are evaluated.

    learning_rate η; momentum ρ; weight_decay, an L2 term added to the gradient; batch_size B; epochs E, passes over the
    data per round; steps, mini-batch steps per round, instead of epochs; evaluate_samples, evaluate on a fixed seeded
    subset of so many test samples instead of all, to save processor time.
    """

    learning_rate: float = number(0.01, low=0, above=True)
    momentum: float = number(0.0, low=0, high=1, below=True)
    weight_decay: float = number(0.0, low=0)
    batch_size: int = whole(32, low=1)
    epochs: int = whole(1, low=1)
    steps: int | None = whole(None, low=1, none=True)
    evaluate_samples: int | None = whole(None, low=1, none=True)


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalTraining):
    """FedAvg has no parameters beyond those of local training."""


@dataclass(frozen=True, kw_only=True)
class FedProx(LocalTraining):
    """mu μ: the weight of the proximal term, half the squared distance to the round's global model; 0 is FedAvg."""

    mu: float = number(0.1, low=0)


@dataclass(frozen=True, kw_only=True)
class HierFAVG(LocalTraining):
    """kappa1 κ₁: mini-batch steps of a device per edge round (nothing: `epochs` passes); kappa2 κ₂: edge rounds per
    cloud round. kappa2 = 1 is the baseline that PHE-FL calls EdgeCloud."""

    kappa1: int | None = whole(None, low=1, none=True)
    kappa2: int = whole(2, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kappa1 is not None and self.steps is not None:
            raise ValueError(f"kappa1: {self.kappa1} and steps: {self.steps} mean the same; give one of them")


@dataclass(frozen=True, kw_only=True)
class OnlyEdge(LocalTraining):
    """kappa2 κ₂: edge rounds per reported round, so that curves line up with HierFAVG's."""

    kappa2: int = whole(1, low=1)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: its module under `node.algorithms`, its parameters, and the tiers it needs.

    `leader` is the tier whose rounds count as the rounds of the run; where it has several nodes, the first leads.
    `flat`: one layer of clients, edges that hold data or devices without edges.
    """

    name: str
    module: str
    params: type[LocalTraining]
    summary: str
    cloud: Need
    edges: Need
    devices: Need
    leader: Literal["cloud", "edge"]
    flat: bool = False

    def problem(self, *, cloud: bool, edges: int, devices: int) -> str | None:
        """Say why the algorithm cannot run on a topology with so many nodes of each tier, or None if it can."""
        for tier, need, count in (("cloud", self.cloud, int(cloud)), ("edges", self.edges, edges),
                                  ("devices", self.devices, devices)):  # fmt: skip
            if need == "required" and count == 0:
                return f"{self.name} needs {tier}: the topology has none"
            if need == "none" and count:
                return f"{self.name} has no use for {tier}: the topology has {count}; set it to 0"
        if edges == 0 and devices == 0:
            return f"{self.name} needs nodes that hold data: the topology has neither edges nor devices"
        if self.flat and edges and devices:
            return f"{self.name} knows one layer of clients: give edges or devices, not both, or take hierfavg"
        return None


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("fedavg", "node.algorithms.fedavg", FedAvg,
                  "the cloud averages the models its clients trained",
                  "required", "optional", "optional", "cloud", flat=True),
        Algorithm("fedprox", "node.algorithms.fedprox", FedProx,
                  "FedAvg whose clients are held near the global model",
                  "required", "optional", "optional", "cloud", flat=True),
        Algorithm("hierfavg", "node.algorithms.hierfavg", HierFAVG,
                  "edges average their devices several times before the cloud averages the edges",
                  "required", "required", "required", "cloud"),
        Algorithm("onlyedge", "node.algorithms.onlyedge", OnlyEdge,
                  "each edge averages its own devices and never meets the cloud again after the first model",
                  "optional", "required", "required", "edge"),
    )
}  # fmt: skip


def holder(edges: int, devices: int) -> Literal["edge", "device"]:
    """The tier whose nodes hold private data: devices where there are any, else edges."""
    return "device" if devices else "edge"


@dataclass(frozen=True, kw_only=True)
class NoParameters(Parameters):
    """Nothing to choose."""


@dataclass(frozen=True, kw_only=True)
class MLP(Parameters):
    """hidden: width of the one hidden layer."""

    hidden: int = whole(200, low=1)


@dataclass(frozen=True)
class Size:
    """What a model's state holds: trained `parameters` (float32), float `buffers` and integer `counters` (int64)."""

    parameters: int
    buffers: int = 0
    counters: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the state as it travels, without message headers."""
        return 4 * (self.parameters + self.buffers) + 8 * self.counters


@dataclass(frozen=True)
class Model:
    """A model; `measure(shape, classes, params)` gives its size in closed form, or raises ValueError for a shape it
    cannot take."""

    name: str
    summary: str
    params: type[Parameters]
    measure: Callable[[Shape, int, Any], Size]

    def size(self, shape: Shape, classes: int, params: Mapping[str, Any] | None = None) -> Size:
        """Size for samples of `shape` and so many classes. Raises ValueError naming what the model cannot take."""
        try:
            return self.measure(shape, classes, read_parameters(self.params, params or {}))
        except ValueError as error:
            raise ValueError(f"model {self.name}: {error}") from error

    def parameters(self, shape: Shape, classes: int, params: Mapping[str, Any] | None = None) -> int:
        """Number of trained parameters for samples of `shape` and so many classes."""
        return self.size(shape, classes, params).parameters


def _cnn(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) not in (2, 3):
        raise ValueError(f"takes images or sequences, not samples of shape {shape}; take mlp")
    channels, window = shape[0], 3 ** (len(shape) - 1)
    half = [math.ceil(math.ceil(side / 2) / 2) for side in shape[1:]]
    convolutions = (channels * window + 1) * 6 + (6 * window + 1) * 16
    norms = 2 * (6 + 16)
    linear = (16 * math.prod(half) + 1) * 32 + 33 * classes
    return Size(convolutions + norms + linear, buffers=norms, counters=2)


def _phefl_cnn(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise ValueError(f"takes images of at least 4x4, not samples of shape {shape}")
    quarter = 64 * (shape[1] // 4) * (shape[2] // 4)
    return Size((shape[0] * 25 + 1) * 32 + (32 * 25 + 1) * 64 + (quarter + 1) * 512 + 513 * classes)


def _mlp(shape: Shape, classes: int, params: MLP) -> Size:
    return Size((math.prod(shape) + 1) * params.hidden + (params.hidden + 1) * classes)


def _resnet18(shape: Shape, classes: int, _: Any) -> Size:
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise ValueError(f"takes images of at least 8x8, not samples of shape {shape}")
    total, inside = (shape[0] * 9 + 1) * 64, 64
    for width in (64, 128, 256, 512):
        total += (inside * 9 + 1) * width + 3 * (width * 9 + 1) * width
        total += (inside + 1) * width if inside != width else 0  # the 1x1 shortcut of a stage that narrows
        inside = width
    return Size(total + 513 * classes)


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("cnn", "two small 3x3 convolutions of stride 2 with batch normalisation (FedGen, FEELPGen)",
              NoParameters, _cnn),
        Model("phefl-cnn", "5x5 convolutions 32 and 64 with pooling, 512 features (McMahan 2017, PHE-FL)",
              NoParameters, _phefl_cnn),
        Model("mlp", "one hidden layer", MLP, _mlp),
        Model("resnet18", "ResNet-18 for small images, without batch normalisation (FedEDS)", NoParameters, _resnet18),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Dataset:
    """A data set known by name; `where` says where it comes from, for messages. `subjects`: samples name a person."""

    name: str
    shape: Shape
    classes: int
    summary: str
    where: str
    subjects: bool = False


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset("digits", (1, 8, 8), 10, "1,797 handwritten digits of 8x8", "ships with scikit-learn"),
        Dataset("mnist", (1, 28, 28), 10, "60,000 + 10,000 handwritten digits",
                "set data.path to a folder with its four IDX files, or go online once"),
        Dataset("fashion-mnist", (1, 28, 28), 10, "60,000 + 10,000 pictures of clothes",
                "apt-get install dataset-fashion-mnist, or set data.path to a folder with its four IDX files, "
                "or go online once"),
        Dataset("cifar10", (3, 32, 32), 10, "50,000 + 10,000 small colour pictures",
                "set data.path to cifar-10-binary.tar.gz (https://www.cs.toronto.edu/~kriz/cifar.html, the binary "
                "version), its unpacked folder or a zip of train/<class>/ and test/<class>/ pictures, "
                "or go online once"),
        Dataset("har", (3, 128), 6, "windows of 2.56 s of a phone's acceleration, 30 people, 6 activities",
                "set data.path to the unpacked folder 'UCI HAR Dataset' (https://archive.ics.uci.edu/dataset/240) "
                "or to an npz file", subjects=True),
    )
}  # fmt: skip

DATASET_PATHS: dict[str, str] = {
    "npz:": "npz:PATH, arrays x_train, y_train, x_test, y_test and, if known, subject_train",
    "images:": "images:PATH, a folder or zip with train/<class>/ and test/<class>/ pictures of one size",
}


def is_dataset(name: str) -> bool:
    """Whether `name` is a known data set or one of the forms that give a path (`npz:PATH`, `images:PATH`)."""
    return name in DATASETS or any(name.startswith(form) and name != form for form in DATASET_PATHS)


@dataclass(frozen=True, kw_only=True)
class PartitionParameters(Parameters):
    """min_samples: clients left with fewer are topped up from the largest holders, and every move is recorded;
    samples_per_client: keep so many samples of each client, in the proportions of its labels, for small experiments."""

    min_samples: int = whole(1, low=0)
    samples_per_client: int | None = whole(None, low=1, none=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples_per_client is not None and self.samples_per_client < self.min_samples:
            raise ValueError(f"samples_per_client: {self.samples_per_client} is below min_samples {self.min_samples}")


@dataclass(frozen=True, kw_only=True)
class IID(PartitionParameters):
    """Samples dealt out at random, in equal numbers."""


@dataclass(frozen=True, kw_only=True)
class Dirichlet(PartitionParameters):
    """alpha α: small is skewed, large is even. variant: `class` divides each class over clients and gives a full client
    no more (FedGen, NIID-Bench), `class-uncapped` does without that rule, `client` draws each client's classes and
    gives all the same number of samples (Hsu 2019)."""

    alpha: float = number(0.5, low=0, above=True)
    variant: str = word("class", "class", "class-uncapped", "client")
    min_samples: int = whole(10, low=0)


@dataclass(frozen=True, kw_only=True)
class Shards(PartitionParameters):
    """Samples sorted by label and cut into shards of shard_size, so many for each client (McMahan 2017); `auto` makes
    the shards as large as the data allows."""

    shard_size: int | str = word(300, "auto", number=Between(int, 1))
    shards_per_client: int = whole(2, low=1)


@dataclass(frozen=True, kw_only=True)
class LabelsPerEdge(PartitionParameters):
    """pattern: PHE-FL's distributions D1 (one label per edge) to D4 (all labels at every edge), Tables II and III."""

    pattern: str = word("D1", "D1", "D2", "D3", "D4")


@dataclass(frozen=True, kw_only=True)
class BySubject(PartitionParameters):
    """Each client holds all samples of one or more people."""


@dataclass(frozen=True)
class PartitionScheme:
    """A way to divide the training data; `short` is the parameter that a bare value sets (`{dirichlet: 0.1}`)."""

    name: str
    params: type[PartitionParameters]
    summary: str
    short: str | None = None


PARTITIONS: dict[str, PartitionScheme] = {
    scheme.name: scheme
    for scheme in (
        PartitionScheme("iid", IID, "at random, in equal numbers"),
        PartitionScheme("dirichlet", Dirichlet, "labels skewed by a Dirichlet draw", "alpha"),
        PartitionScheme("shards", Shards, "a few single-label shards per client", "shards_per_client"),
        PartitionScheme("labels-per-edge", LabelsPerEdge, "PHE-FL's D1 to D4", "pattern"),
        PartitionScheme("by-subject", BySubject, "whole people per client"),
    )
}
