"""Reader of tables: data sets of Hugging Face (`datasets.save_to_disk`, or Parquet as on the Hub), and CSV.

pyarrow reads the files, so neither the library `datasets` nor the network is needed. Both parts are converted together,
so that they have the same classes, one-hot columns and people. docs/reference/data.md lists what is kept and refused.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.catalogue.datasets import IGNORED, TEST_PARTS, Columns
from node.learning.data import column_report, csv_files
from node.learning.data.cells import Problem
from node.learning.data.columns import not_an_input, typed
from node.learning.data.csv_files import CsvText
from node.learning.data.files import below, open_regular, refuse_large
from node.learning.data.formats import Arrays, channels_first, targets_of
from node.learning.data.labels import numbers
from node.learning.data.parts import single_precision
from node.learning.data.pictures import decoded
from node.learning.data.splits import split
from node.learning.errors import DataError

SUFFIXES = (".arrow", ".parquet", ".csv")
EXPANSION = 4  # bytes of memory for each byte of a file
TARGETS = ("label", "labels", "target", "class", "y")  # names of the target, unless only one column has class labels
CLOSE = 1e-3  # of the largest number: if numbers are closer, single precision may not tell them apart
_UNKNOWN = -1  # the class label of a row without one, as test parts of competitions have it
_NO_CLASSES = "set data.columns.task to regression to predict numbers"
MOST_VALUES = 100  # different values of a column that is one-hot encoded, or numbered as classes


def read_tables(path: Path, columns: Columns | None = None) -> Arrays:
    """The samples and targets in the columns of a file, or of a folder of files."""
    import pyarrow

    columns = columns or Columns()
    try:
        table = _table(path, columns)
        target = columns.target or table.target()
        inputs = columns.inputs or table.inputs({target, columns.subject})
        x = table.samples(inputs)
        y, label_names = table.targets(target, columns.task)
        people = None
        if columns.subject is not None:
            people = np.unique(table.values(columns.subject), return_inverse=True)[1]
        report = column_report.report(table, columns, target, inputs, y, label_names)
    except (pyarrow.ArrowException, UnicodeError) as error:
        raise DataError(f"{path}: {error}") from error
    train, test = split(len(y), table.count, columns.split, people, str(path))
    x_train = x[train]
    y_train = y[train]
    x_test = x[test]
    y_test = y[test]
    if target in table.classes and (y_test == _UNKNOWN).all():
        raise table.error(
            f"column {target!r} has no labels in the test part, {_UNKNOWN} in each row; name a part with labels in "
            "data.columns.test, such as validation"
        )
    if y.dtype.kind != "f":
        y_train, y_test = targets_of(x_train, y_train, x_test, y_test, str(path))
    subjects, test_subjects = (None, None) if people is None else (people[train], people[test])
    return Arrays(x_train, y_train, x_test, y_test, subjects, label_names, test_subjects, columns=report)


def _table(path: Path, columns: Columns) -> _Table:
    """The rows of all files, with their types."""
    import pyarrow

    join = functools.partial(pyarrow.concat_tables, promote_options="permissive")
    files = _files(path, columns.test)
    read = [[_read(file) for file in part] for part in files]
    parts = [join([rows.data for rows in part]) for part in read]
    if not all(map(len, parts)):
        raise DataError(f"{path}: has no rows in train or test")
    joined = join(parts)
    joined.validate(full=True)  # a broken file may point anywhere
    every_file = [rows for part in read for rows in part]
    contents = [rows.content for rows in every_file]
    decimal_commas = all(content is not None and content.delimiter != "," for content in contents)
    subject = () if columns.subject is None else (columns.subject,)
    data, problems = typed(joined, decimal_commas=decimal_commas, as_they_are=subject)
    starts = np.cumsum([0, *(len(rows.data) for rows in every_file)])[:-1].tolist()
    return _Table(path, data, len(parts[0]), _classes(path, parts[0].schema), problems, starts, contents)


def _files(path: Path, chosen: str | None) -> list[list[Path]]:
    """The files of train and those of test by their names, or those of the only table. ``chosen``: the name of the
    test part, if the scenario names it."""
    if path.is_file():
        if chosen is not None:
            raise DataError(f"{path}: is one table, and has no files of {chosen}")
        return [[path]]
    found: dict[str, list[Path]] = {}
    for name in sorted(below(path)):
        place = PurePosixPath(name)
        if place.suffix not in SUFFIXES or any(each.startswith((".", "cache-")) for each in place.parts):
            continue  # `datasets` caches what it maps next to the data, as cache-*.arrow
        words = reversed(re.split("[^a-z]+", name.lower()))
        found.setdefault(next((each for each in words if each in ("train", *TEST_PARTS)), ""), []).append(path / name)
    if not found or (len(found) > 1 and "train" not in found):
        raise DataError(f"{path}: needs one table, or train and test in the names of its files ({', '.join(SUFFIXES)})")
    if chosen is not None and not {"train", chosen} <= found.keys():
        raise DataError(f"{path}: has no files of train and {chosen}; there are {', '.join(filter(None, found))}")
    if chosen is None:
        test = [each for each in TEST_PARTS if each in found][:1]
    else:
        test = [chosen]
    parts = [found[name] for name in (["train", *test] if "train" in found else found)]
    if any(len({file.parent for file in files}) > 1 for files in parts):
        raise DataError(f"{path}: has files of one part in several folders; name one of them")
    return parts


@dataclass(frozen=True)
class _Rows:
    """The rows of one file; of a CSV file also its text."""

    data: Any
    content: CsvText | None = None


def _read(file: Path) -> _Rows:
    from pyarrow import ArrowException, ipc, parquet

    with open_regular(file) as stream:
        refuse_large(file, EXPANSION * os.fstat(stream.fileno()).st_size)
        try:
            if file.suffix == ".arrow":
                return _Rows(ipc.open_stream(stream).read_all())
            if file.suffix == ".parquet":
                return _Rows(parquet.read_table(stream))
            if file.suffix == ".csv":
                content = csv_files.opened(file)
                return _Rows(csv_files.read_texts(content), content)
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
    """All rows, ``data``, of which ``count`` are of the first part; the names of ``classes`` of some columns; the
    ``problems`` of columns of texts; the row with which each file ``starts``, and the text of each CSV file.
    ``left_out``: columns that are no inputs, with the reason."""

    path: Path
    data: Any
    count: int
    classes: dict[str, tuple[str, ...]]
    problems: Mapping[str, Problem]
    starts: Sequence[int]
    contents: Sequence[CsvText | None]
    left_out: dict[str, str] = field(default_factory=dict)

    def error(self, message: str) -> DataError:
        return DataError(f"{self.path}: {message}")

    def row(self, index: int) -> str:
        """A row in words. Rows count from 1, as below the header of a CSV file, of which the line is named too."""
        row = f"row {index + 1}" if index < self.count else f"row {index - self.count + 1} of test"
        file = int(np.searchsorted(self.starts, index, side="right")) - 1
        content = self.contents[file]
        if content is None:
            return row
        line = f"line {content.line(index - self.starts[file])}"
        return f"{row} ({line})" if len(self.starts) == 1 else f"{row} ({line} of {content.file.name})"

    def target(self) -> str:
        """The column to predict, if none is named."""
        for likely in (list(self.classes), [name for name in self.data.column_names if name.lower() in TARGETS]):
            if len(likely) == 1:
                return likely[0]
        raise self.error(f"name the column to predict in data.columns.target: {', '.join(self.data.column_names)}")

    def inputs(self, others: set[str | None]) -> Sequence[str]:
        """The columns that a model sees, if none are named: those of pictures or lists, or all but those that number
        or name the rows."""
        large = [name for name in self.data.column_names if name not in others and self._is_large(name)]
        if len(large) > 1:
            raise self.error(f"name one column in data.columns.inputs: {', '.join(large)}")
        found = []
        for name in self.data.column_names:
            reason = self._reason_against(name, large)
            if name not in others and reason is None:
                found.append(name)
            elif name not in others:
                self.left_out[name] = str(reason)
        if found:
            return found
        reasons = [f"{name!r} is left out, since {reason}" for name, reason in self.left_out.items()]
        why = "; ".join(reasons) or f"the columns are {', '.join(self.data.column_names)}"
        raise self.error(f"no column is left as an input ({why}); name some in data.columns.inputs")

    def _is_large(self, name: str) -> bool:
        """Whether the column holds pictures or lists."""
        return re.search("list|binary|extension", str(self.data.schema.field(name).type)) is not None

    def _reason_against(self, name: str, large: Sequence[str]) -> str | None:
        """Why a column is no input, unless it is named."""
        if large:
            return None if name in large else f"the inputs are those of column {large[0]!r}"
        if name in self.problems or name in self.classes:
            return None
        return not_an_input(name, self.data.column(name), lambda: self.values(name), self.starts)

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
                array = np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)
                self._refuse_nan(name, array)
                return array
            lengths = compute.unique(compute.list_value_length(values)).to_pylist()
            if len(lengths) != 1:
                raise self.error(f"column {name!r} has lists of different lengths; pad or cut them")
            shape = [*shape, lengths[0]]
            values = values.flatten()

    def _refuse_nan(self, name: str, values: NDArray[Any]) -> None:
        """DataError if one of the numbers (N,) is NaN, as pandas has missing ones."""
        if values.dtype.kind == "f" and values.ndim == 1 and np.isnan(values).any():
            row = self.row(int(np.argmax(np.isnan(values))))
            raise self.error(f"{row} has no value in column {name!r}; fill it in, or leave the row out")

    def _refuse_problem(self, name: str) -> None:
        """DataError if texts of the column are neither numbers nor categories."""
        from pyarrow import compute

        if name not in self.problems:
            return
        problem = self.problems[name]
        row = self.row(compute.index(self.data.column(name), problem.text).as_py())
        raise self.error(f"{row} of column {name!r} is {problem.text!r}, {problem.what}; {problem.remedy}")

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
        self._refuse_problem(name)
        if values.dtype.kind in "biuf" and values.ndim == 1 and name not in self.classes:
            return self._single_precision(name, values)[:, None]
        known, places = self._numbered(name, values, "name others in data.columns.inputs")
        return np.eye(len(known), dtype=np.float32)[places]

    def _single_precision(self, name: str, values: NDArray[Any]) -> NDArray[np.float32]:
        """Numbers (N,) in single precision. DataError if it cannot distinguish most of them, such as seconds since
        1970."""
        made = single_precision(values, f"{self.path}: column {name!r}")
        finite = made[np.isfinite(made)].astype(np.float64)
        if finite.size and np.ptp(finite) < CLOSE * np.abs(finite).max():
            different = len(np.unique(values))
            if different > 1 and 2 * len(np.unique(made)) <= different:
                what = f"has {different} different values that single precision cannot distinguish"
                raise self.error(f"column {name!r} {what}; subtract the smallest of them, or name other inputs")
        return made

    def targets(self, name: str, task: str | None) -> tuple[NDArray[Any], tuple[str, ...]]:
        """Floats to predict, or whole numbers and the names of classes."""
        values = self.values(name)
        self._refuse_problem(name)
        if values.dtype.kind == "f" if task is None else task == "regression" and values.dtype.kind in "iuf":
            return numbers(values, f"{self.path}: column {name!r}"), ()
        if task == "regression":
            raise self.error(f"column {name!r} has no numbers to predict; name another in data.columns.target")
        if name in self.classes or values.ndim > 1:
            return values, self.classes.get(name, ())
        if values.dtype.kind not in "if":
            counting = np.ones(len(values), bool)
        else:
            counting = values != IGNORED
        y = np.full(len(values), IGNORED)
        known, y[counting] = self._numbered(name, values[counting], _NO_CLASSES)
        return y, tuple(map(str, known.tolist()))

    def _numbered(self, name: str, values: NDArray[Any], remedy: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The different values of a column in order, and the number of each row's value among them."""
        if values.ndim > 1 or not (values.dtype.kind in "biuf" or isinstance(values[0], str)):
            kind = self.data.schema.field(name).type
            raise self.error(f"column {name!r} is {kind}, and not numbers, texts or truth values; {remedy}")
        known, places = np.unique(values, return_inverse=True)
        if len(known) > MOST_VALUES:
            raise self.error(f"column {name!r} has {len(known)} different values; {remedy}")
        return known, places
