"""Reader of tables: data sets of Hugging Face (`datasets.save_to_disk`, or Parquet as on the Hub), and CSV.

pyarrow reads the files, so neither the library `datasets` nor the network is needed. Both parts are converted together,
so that they have the same classes, one-hot columns and people. docs/reference/data.md lists what is kept and refused.
"""

from __future__ import annotations

import functools
import io
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.catalogue.datasets import Columns
from node.learning.data.files import below, open_regular, read_text, refuse_large
from node.learning.data.formats import Arrays, channels_first, targets_of
from node.learning.data.labels import numbers
from node.learning.data.pictures import decoded
from node.learning.errors import DataError

SUFFIXES = (".arrow", ".parquet", ".csv")
DELIMITERS = ",;\t"  # of CSV; the one that the header has most of
EXPANSION = 4  # bytes of memory for each byte of a file
TEST = ("test", "validation", "valid", "val", "dev")  # names of the test part; the first that is available counts
TARGETS = ("label", "labels", "target", "class", "y")  # names of the target, unless only one column has class labels
APART = 5  # one row in five, drawn with a fixed seed, is in the test part of a table without one
MOST_VALUES = 100  # different values of a column that is one-hot encoded, or numbered as classes


def read_tables(path: Path, columns: Columns | None = None) -> Arrays:
    """The samples and targets in the columns of a file, or of a folder of files."""
    import pyarrow

    columns = columns or Columns()
    join = functools.partial(pyarrow.concat_tables, promote_options="permissive")
    try:
        parts = [join([_rows(file) for file in files]) for files in _files(path)]
        if not all(map(len, parts)):
            raise DataError(f"{path}: has no rows in train or test")
        table = _Table(path, join(parts), len(parts[0]), _classes(path, parts[0].schema))
        table.data.validate(full=True)  # a broken file may point anywhere
        target = columns.target or table.target()
        x = table.samples(columns.inputs or table.inputs({target, columns.subject}))
        y, label_names = table.targets(target, columns.task)
        people = None if columns.subject is None else np.unique(table.values(columns.subject), return_inverse=True)[1]
    except (pyarrow.ArrowException, UnicodeError) as error:
        raise DataError(f"{path}: {error}") from error
    rows, cut = np.arange(len(y)), table.count
    if len(parts) == 1:
        rows, cut = np.random.default_rng(0).permutation(len(y)), len(y) - len(y) // APART
    train, test = np.sort(rows[:cut]), np.sort(rows[cut:])
    x_train, y_train, x_test, y_test = x[train], y[train], x[test], y[test]
    if y.dtype.kind != "f":
        y_train, y_test = targets_of(x_train, y_train, x_test, y_test, str(path))
    subjects, test_subjects = (None, None) if people is None else (people[train], people[test])
    return Arrays(x_train, y_train, x_test, y_test, subjects, label_names, test_subjects)


def _files(path: Path) -> list[list[Path]]:
    """The files of train and those of test by their names, or those of the only table."""
    if path.is_file():
        return [[path]]
    found: dict[str, list[Path]] = {}
    for name in sorted(below(path)):
        place = PurePosixPath(name)
        if place.suffix not in SUFFIXES or any(each.startswith((".", "cache-")) for each in place.parts):
            continue  # `datasets` caches what it maps next to the data, as cache-*.arrow
        words = reversed(re.split("[^a-z]+", name.lower()))
        found.setdefault(next((each for each in words if each in ("train", *TEST)), ""), []).append(path / name)
    if not found or (len(found) > 1 and "train" not in found):
        raise DataError(f"{path}: needs one table, or train and test in the names of its files ({', '.join(SUFFIXES)})")
    test = [each for each in TEST if each in found][:1]
    parts = [found[name] for name in (["train", *test] if "train" in found else found)]
    if any(len({file.parent for file in files}) > 1 for files in parts):
        raise DataError(f"{path}: has files of one part in several folders; name one of them")
    return parts


def _rows(file: Path) -> Any:
    from pyarrow import ArrowException, csv, ipc, parquet

    with open_regular(file) as content:
        refuse_large(file, EXPANSION * os.fstat(content.fileno()).st_size)
        try:
            if file.suffix == ".arrow":
                return ipc.open_stream(content).read_all()
            if file.suffix == ".parquet":
                return parquet.read_table(content)
            if file.suffix == ".csv":
                text = read_text(file)
                header = re.sub('"[^"]*"', "", text.partition("\n")[0])
                options = csv.ParseOptions(delimiter=max(DELIMITERS, key=header.count))
                convert = csv.ConvertOptions(strings_can_be_null=True)
                return csv.read_csv(io.BytesIO(text.encode()), parse_options=options, convert_options=convert)
        except (ArrowException, OSError, UnicodeError) as error:
            reason = str(error).replace("error: ", "")
            raise DataError(f"{file}: cannot be read as {file.suffix[1:]}: {reason}") from error
    raise DataError(f"{file}: is no table by its suffix; take a file with {', '.join(SUFFIXES)}")


def _classes(path: Path, schema: Any) -> dict[str, tuple[str, ...]]:
    """The names of the classes of each column of class labels, as `datasets` stores them."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
        return {name: tuple(each["names"]) for name, each in features.items() if each.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: the features of datasets cannot be read: {error}") from error


@dataclass(frozen=True)
class _Table:
    """All rows, ``data``, of which ``count`` are of the first part; the names of ``classes`` of some columns."""

    path: Path
    data: Any
    count: int
    classes: dict[str, tuple[str, ...]]

    def error(self, message: str) -> DataError:
        return DataError(f"{self.path}: {message}")

    def row(self, index: int) -> str:
        """A row in words. Rows count from 1, as below the header of a CSV file."""
        return f"row {index + 1}" if index < self.count else f"row {index - self.count + 1} of test"

    def target(self) -> str:
        """The column to predict, if none is named."""
        for likely in (list(self.classes), [name for name in self.data.column_names if name.lower() in TARGETS]):
            if len(likely) == 1:
                return likely[0]
        raise self.error(f"name the column to predict in data.columns.target: {', '.join(self.data.column_names)}")

    def inputs(self, others: set[str | None]) -> Sequence[str]:
        """The columns that a model sees, if none are named. The index of pandas is none of them."""
        names = [name for name in self.data.column_names if name not in others and not name.startswith("__index_")]
        large = [name for name in names if re.search("list|binary|extension", str(self.data.schema.field(name).type))]
        if len(large) > 1 or not names:
            raise self.error(f"name one column in data.columns.inputs: {', '.join(large or self.data.column_names)}")
        return large or names

    def values(self, name: str) -> NDArray[Any]:
        """A column of numbers, texts or files in bytes (N,), or of lists (N, ...). DataError if a value is missing."""
        from pyarrow import compute, types

        if name not in self.data.column_names:
            raise self.error(f"there is no column {name!r}; the columns are {', '.join(self.data.column_names)}")
        values = self.data.column(name).combine_chunks()
        values, shape = getattr(values, "storage", values), [len(values)]  # `datasets` stores arrays as lists
        while True:
            if types.is_struct(values.type) and "bytes" in values.type.names:
                values = compute.struct_field(values, "bytes")
            if values.null_count:
                row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // math.prod(shape[1:])
                raise self.error(f"{self.row(row)} has no value in column {name!r}; fill it in, or leave the row out")
            if types.is_dictionary(values.type) or not hasattr(values.type, "value_type"):
                return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)
            lengths = compute.unique(compute.list_value_length(values)).to_pylist()
            if len(lengths) != 1:
                raise self.error(f"column {name!r} has lists of different lengths; pad or cut them")
            shape, values = [*shape, lengths[0]], values.flatten()

    def samples(self, names: Sequence[str]) -> NDArray[Any]:
        """The samples in these columns, channels first."""
        values = self.values(names[0])
        if len(names) > 1 or (values.ndim == 1 and not isinstance(values[0], bytes)):
            return np.concatenate([self._encoded(name) for name in names], axis=1)
        if values.ndim > 1:
            return channels_first(str(self.path), f"column {names[0]!r}", values)
        pictures = {f"column {names[0]!r}, {self.row(index)}": each for index, each in enumerate(values)}
        return decoded(self.path, list(pictures), pictures.__getitem__)

    def _encoded(self, name: str) -> NDArray[np.float32]:
        """Numbers (N, 1). Texts and class labels are one-hot (N, K), in order of their values."""
        values = self.values(name)
        if values.dtype.kind in "biuf" and values.ndim == 1 and name not in self.classes:
            with np.errstate(over="ignore"):  # what is beyond float32 becomes an infinity, which is refused
                return values.astype(np.float32)[:, None]
        known, places = self._numbered(name, values, "name others in data.columns.inputs")
        return np.eye(len(known), dtype=np.float32)[places]

    def targets(self, name: str, task: str | None) -> tuple[NDArray[Any], tuple[str, ...]]:
        """Floats to predict, or whole numbers and the names of classes."""
        values = self.values(name)
        if values.dtype.kind == "f" if task is None else task == "regression" and values.dtype.kind in "iuf":
            return numbers(values, f"{self.path}: column {name!r}"), ()
        if task == "regression":
            raise self.error(f"column {name!r} has no numbers to predict; name another in data.columns.target")
        if name in self.classes or values.ndim > 1:
            return values, self.classes.get(name, ())
        known, y = self._numbered(name, values, "set data.columns.task to regression to predict numbers")
        return y.astype(np.int64), tuple(map(str, known.tolist()))

    def _numbered(self, name: str, values: NDArray[Any], remedy: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The different values of a column in order, and the number of each row's value among them."""
        if values.ndim > 1 or not (values.dtype.kind in "biuf" or isinstance(values[0], str)):
            kind = self.data.schema.field(name).type
            raise self.error(f"column {name!r} is {kind}, and not numbers, texts or truth values; {remedy}")
        known, places = np.unique(values, return_inverse=True)
        if len(known) > MOST_VALUES:
            raise self.error(f"column {name!r} has {len(known)} different values; {remedy}")
        return known, places
