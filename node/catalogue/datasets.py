"""The data sets with a name, and the forms of names with a path."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from node.catalogue.tables import by_name
from node.catalogue.tasks import Task

Shape = tuple[int, ...]  # of one sample, channels first: (1, 28, 28) image, (3, 128) sequence, (20,) features

IGNORED = -100
"""The label of a token that counts neither in the loss nor in the metrics, as in torch and transformers."""


@dataclass(frozen=True)
class Form:
    """The form of a data set: the shape of a sample, the number of classes, whether samples are integer ``tokens``
    instead of floats, and the shape of a sample's ``labels``: () for one label, (T,) for one of each token.

    ``task``: what the model predicts. ``classes`` are the labels of multi-label data, and the numbers that a regression
    predicts of a sample. ``parts``: the name, numpy type and shape of each part of a sample that is a dictionary or a
    tuple of arrays."""

    shape: Shape
    classes: int
    tokens: bool = False
    labels: Shape = ()
    task: Task = "classification"
    parts: tuple[tuple[str, str, Shape], ...] = ()

    @property
    def model_shape(self) -> Any:
        """The shape that a model is built for: that of a sample, or those of its parts in a dictionary or a tuple."""
        shapes = {name: shape for name, _, shape in self.parts}
        if "0" in shapes:
            return tuple(shapes.values())
        return shapes or self.shape

    def __str__(self) -> str:
        if self.parts:
            return ", ".join(f"{name} {kind} {shape}" for name, kind, shape in self.parts)
        kind = "tokens" if self.tokens else "samples"
        return f"{kind} {self.shape}"


@dataclass(frozen=True)
class Dataset:
    """A data set with a name. `where`: its source, for messages. `subjects`: samples name a person.

    A plug-in's data set has `read`, a function that returns the arrays of an `npz:` file by their names, or a pair of
    map-style data sets, such as those of torch: the training part and the test part. It is called for each run. Its
    shape and classes are those of the samples, and need not be given.
    """

    name: str
    shape: Shape = ()
    classes: int = 0
    summary: str = ""
    where: str = ""
    subjects: bool = False
    read: Callable[[], Mapping[str, Any] | tuple[Any, Any]] | None = None


EMNIST: Mapping[str, tuple[int, str]] = {
    "balanced": (47, "112,800 + 18,800 handwritten digits and letters, equally many of each"),
    "byclass": (62, "697,932 + 116,323 handwritten digits and letters in both cases"),
    "digits": (10, "240,000 + 40,000 handwritten digits"),
    "letters": (26, "124,800 + 20,800 handwritten letters"),
}
"""The number of classes and the summary of each split of EMNIST that has a name."""

HAR = (
    "set data.path to the unpacked folder 'UCI HAR Dataset' (https://archive.ics.uci.edu/dataset/240) or to an npz file"
)

_EMNIST_SPLITS = [
    Dataset(
        f"emnist-{split}",
        (1, 28, 28),
        classes,
        summary,
        "unpack gzip.zip (https://www.nist.gov/itl/products-and-services/emnist-dataset), and set data.path to "
        "its folder gzip",
    )
    for split, (classes, summary) in EMNIST.items()
]

DATASETS: Mapping[str, Dataset] = by_name(
    Dataset("digits", (1, 8, 8), 10, "1,797 handwritten digits of 8x8", "comes with edgebed"),
    Dataset(
        "mnist",
        (1, 28, 28),
        10,
        "60,000 + 10,000 handwritten digits",
        "run `edgebed data mnist` while online, or set data.path to a folder with its four IDX files",
    ),
    Dataset(
        "fashion-mnist",
        (1, 28, 28),
        10,
        "60,000 + 10,000 pictures of clothes",
        "run `edgebed data fashion-mnist` while online, or apt-get install dataset-fashion-mnist, or set "
        "data.path to a folder with its four IDX files",
    ),
    Dataset(
        "cifar10",
        (3, 32, 32),
        10,
        "50,000 + 10,000 small colour pictures",
        "run `edgebed data cifar10` while online, or set data.path to cifar-10-binary.tar.gz "
        "(https://www.cs.toronto.edu/~kriz/cifar.html, the binary version), its unpacked folder or a zip of "
        "train/<class>/ and test/<class>/ pictures",
    ),
    Dataset(
        "cifar100",
        (3, 32, 32),
        100,
        "50,000 + 10,000 small colour pictures",
        "run `edgebed data cifar100` while online, or set data.path to cifar-100-binary.tar.gz "
        "(https://www.cs.toronto.edu/~kriz/cifar.html, the binary version) or its unpacked folder",
    ),
    *_EMNIST_SPLITS,
    Dataset(
        "har",
        (3, 128),
        6,
        "windows of 2.56 s of a phone's acceleration, 30 people, 6 activities",
        HAR,
        subjects=True,
    ),
    Dataset("har-9", (9, 128), 6, "har with the body's acceleration and angular velocity", HAR, subjects=True),
)
"""The data sets of edgebed."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table that make a data set: what the model predicts, what it sees, and the person of each
    sample. What is not given follows from the columns' names and types. ``task``: of the target. ``test``: the part
    of the files that is the test part. ``split``: how a table without one is split."""

    target: str | None = None
    inputs: Sequence[str] = ()
    subject: str | None = None
    task: Literal["classification", "regression"] | None = None
    test: str | None = None
    split: Literal["random", "in-order", "by-subject"] = "random"


TEST_PARTS = ("test", "validation", "valid", "val", "dev")
"""The names of the test part of a table; the first that is available counts."""

TABLES = ("hf", "csv")
"""The forms of `DATASET_PATHS` that have columns."""


DATASET_PATHS: dict[str, str] = {
    "npz:": "npz:PATH, arrays x_train, y_train, x_test, y_test and, if known, subject_train and subject_test",
    "images:": "images:PATH, a folder or zip with train/<class>/ and test/<class>/ pictures of one size",
    "leaf:": "leaf:PATH, a folder with LEAF's JSON in train/ and test/",
    "hf:": "hf:PATH, a folder of datasets.save_to_disk, or Parquet or Arrow files, named by train and test",
    "csv:": "csv:PATH, a CSV file, or a folder with train.csv and test.csv",
    "text:": "text:PATH, a folder of texts, with a file or a folder for each author",
}


def is_dataset(name: str, known: Container[str] = DATASETS) -> bool:
    """Whether `name` is a `known` data set or one of the forms with a path (`npz:PATH`, `text:PATH`, ...)."""
    if name in known:
        return True
    for form in DATASET_PATHS:
        if name.startswith(form) and name != form:
            return True
    return False
