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

from node.arrays import Array, Floats
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
CLOSE = 1e-3  # of the largest number: if numbers are closer, single precision may not distinguish them
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
        others = {target, columns.subject}
        inputs = columns.inputs or table.inputs(others)
        x = table.samples(inputs)
        y, label_names = table.targets(target, columns.task)
        people = None
        if columns.subject is not None:
            named = table.values(columns.subject)
            _, people = np.unique(named, return_inverse=True)
        report = column_report.report(table, columns, target, inputs, y, label_names)
    except (pyarrow.ArrowException, UnicodeError) as error:
        raise DataError(f"{path}: {error}") from error
    train, test = split(
        rows=len(y),
        first_part=table.count,
        how=columns.split,
        people=people,
        source=str(path),
    )
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
    subjects = None
    test_subjects = None
    if people is not None:
        subjects = people[train]
        test_subjects = people[test]
    return Arrays(
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        subjects=subjects,
        label_names=label_names,
        test_subjects=test_subjects,
        columns=report,
    )


def _table(path: Path, columns: Columns) -> _Table:
    """The rows of all files, with their types."""
    import pyarrow

    join = functools.partial(pyarrow.concat_tables, promote_options="permissive")
    files: list[_Rows] = []
    parts = []
    for part in _files(path, columns.test):
        of_part = [_read(file) for file in part]
        parts.append([rows.data for rows in of_part])
        files.extend(of_part)
    joined_parts = [join(of_part) for of_part in parts]
    if not all(map(len, joined_parts)):
        raise DataError(f"{path}: has no rows in train or test")
    first_part = joined_parts[0]
    joined = join(joined_parts)
    joined.validate(full=True)  # a broken file may point anywhere
    contents = [rows.content for rows in files]
    texts = () if columns.subject is None else (columns.subject,)
    decimal_commas = _may_have_decimal_commas(contents)
    data, problems = typed(joined, decimal_commas=decimal_commas, as_they_are=texts)
    classes = _classes(path, first_part.schema)
    return _Table(
        path=path,
        data=data,
        count=len(first_part),
        classes=classes,
        problems=problems,
        starts=_starts(files),
        contents=contents,
    )


def _may_have_decimal_commas(contents: Sequence[CsvText | None]) -> bool:
    """Whether all files are CSV files with another separator than a comma."""
    for content in contents:
        if content is None or content.delimiter == ",":
            return False
    return True


def _starts(files: Sequence[_Rows]) -> list[int]:
    """The row with which each file starts, of the rows of all files."""
    starts = []
    row = 0
    for rows in files:
        starts.append(row)
        row += len(rows.data)
    return starts


def _files(path: Path, chosen: str | None) -> list[list[Path]]:
    """The files of train and those of test by their names, or those of the only table. ``chosen``: the name of the
    test part, if the scenario names it."""
    if path.is_file():
        if chosen is not None:
            raise DataError(f"{path}: is one table, and has no files of {chosen}")
        return [[path]]
    by_part: dict[str, list[Path]] = {}
    for name in sorted(below(path)):
        place = PurePosixPath(name)
        if place.suffix not in SUFFIXES or _is_hidden_or_cached(place):
            continue
        of_part = by_part.setdefault(_part_of(name), [])
        of_part.append(path / name)
    one_part = len(by_part) == 1
    if not one_part and "train" not in by_part:
        raise DataError(f"{path}: needs one table, or train and test in the names of its files ({', '.join(SUFFIXES)})")
    if chosen is None:
        test = [part for part in TEST_PARTS if part in by_part][:1]
    else:
        if not {"train", chosen} <= by_part.keys():
            named = filter(None, by_part)
            raise DataError(f"{path}: has no files of train and {chosen}; there are {', '.join(named)}")
        test = [chosen]
    if "train" in by_part:
        names = ["train", *test]
    else:
        names = list(by_part)
    parts = [by_part[name] for name in names]
    for files in parts:
        folders = {file.parent for file in files}
        if len(folders) > 1:
            raise DataError(f"{path}: has files of one part in several folders; name one of them")
    return parts


def _is_hidden_or_cached(place: PurePosixPath) -> bool:
    """Whether a file or its folder is hidden, or a cache: `datasets` caches what it maps next to the data, as
    cache-*.arrow."""
    return any(step.startswith((".", "cache-")) for step in place.parts)


def _part_of(name: str) -> str:
    """The part by the last word of a file's name that is one; empty if none is."""
    words = re.split("[^a-z]+", name.lower())
    for word in reversed(words):
        if word in ("train", *TEST_PARTS):
            return word
    return ""


@dataclass(frozen=True)
class _Rows:
    """The rows of one file; of a CSV file also its text."""

    data: Any
    content: CsvText | None = None


def _read(file: Path) -> _Rows:
    from pyarrow import ArrowException, ipc, parquet

    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        refuse_large(file, EXPANSION * size)
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


def _classes(
    path: Path,
    schema: Any,
) -> dict[str, tuple[str, ...]]:
    """The names of the classes of each column of class labels, as `datasets` stores them."""
    try:
        metadata = schema.metadata or {}
        stored = json.loads(metadata.get(b"huggingface", b"{}"))
        info = stored.get("info", {})
        features = info.get("features", {})
        classes = {}
        for name, feature in features.items():
            if feature.get("_type") == "ClassLabel":
                classes[name] = tuple(feature["names"])
        return classes
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: the features of datasets cannot be read: {error}") from error


@dataclass(frozen=True)
class _Table:
    """All rows, ``data``, first the ``count`` of the first part; the names of ``classes`` of some columns; the
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
        """A row in words. Rows count from 1, as below the header of a CSV file; then the line of the file is named."""
        if index < self.count:
            row = f"row {index + 1}"
        else:
            row = f"row {index - self.count + 1} of test"
        files_up_to_row = np.searchsorted(self.starts, index, side="right")
        file = int(files_up_to_row) - 1
        content = self.contents[file]
        if content is None:
            return row
        line = f"line {content.line(index - self.starts[file])}"
        if len(self.starts) == 1:
            return f"{row} ({line})"
        return f"{row} ({line} of {content.file.name})"

    def target(self) -> str:
        """The column to predict, if none is named."""
        usual = [name for name in self.data.column_names if name.lower() in TARGETS]
        for likely in (list(self.classes), usual):
            if len(likely) == 1:
                return likely[0]
        raise self.error(f"name the column to predict in data.columns.target: {', '.join(self.data.column_names)}")

    def inputs(self, others: set[str | None]) -> Sequence[str]:
        """The columns that a model sees, if none are named: those of pictures or lists, or all but those that number
        or name the rows."""
        large = []
        for name in self.data.column_names:
            if name not in others and self._is_large(name):
                large.append(name)
        if len(large) > 1:
            raise self.error(f"name one column in data.columns.inputs: {', '.join(large)}")
        inputs = []
        for name in self.data.column_names:
            reason = self._reason_against(name, large)
            if name in others:
                continue
            if reason is None:
                inputs.append(name)
            else:
                self.left_out[name] = reason
        if inputs:
            return inputs
        reasons = [f"{name!r} is left out, since {reason}" for name, reason in self.left_out.items()]
        why = "; ".join(reasons) or f"the columns are {', '.join(self.data.column_names)}"
        raise self.error(f"no column is left as an input ({why}); name some in data.columns.inputs")

    def _is_large(self, name: str) -> bool:
        """Whether the column holds pictures or lists."""
        kind = str(self.data.schema.field(name).type)
        return re.search("list|binary|extension", kind) is not None

    def _reason_against(self, name: str, large: Sequence[str]) -> str | None:
        """Why a column is no input, unless it is named."""
        if name in large:
            return None
        if large:
            return f"the inputs are those of column {large[0]!r}"
        if name in self.problems or name in self.classes:
            return None
        column = self.data.column(name)
        return not_an_input(
            name,
            column,
            values=lambda: self.values(name),
            starts=self.starts,
        )

    def values(self, name: str) -> Array:
        """A column of numbers, texts or files in bytes (N,), or of lists (N, ...). DataError if a value is missing."""
        from pyarrow import compute, types

        if name not in self.data.column_names:
            raise self.error(f"there is no column {name!r}; the columns are {', '.join(self.data.column_names)}")
        values = self.data.column(name).combine_chunks()
        shape = [len(values)]
        values = getattr(values, "storage", values)  # `datasets` stores arrays as lists
        while True:
            if types.is_struct(values.type) and "bytes" in values.type.names:
                values = compute.struct_field(values, "bytes")
            if values.null_count:
                is_missing = values.is_null().to_numpy(zero_copy_only=False)
                values_of_row = math.prod(shape[1:])
                row = int(np.argmax(is_missing)) // values_of_row
                raise self.error(f"{self.row(row)} has no value in column {name!r}; fill it in, or leave the row out")
            has_elements = hasattr(values.type, "value_type")
            if types.is_dictionary(values.type) or not has_elements:
                flat = np.asarray(values.to_numpy(zero_copy_only=False))
                array = flat.reshape(shape)
                self._refuse_nan(name, array)
                return array
            lengths = compute.unique(compute.list_value_length(values)).to_pylist()
            if len(lengths) != 1:
                raise self.error(f"column {name!r} has lists of different lengths; pad or cut them")
            shape = [*shape, lengths[0]]
            values = values.flatten()

    def _refuse_nan(self, name: str, values: Array) -> None:
        """DataError if one of the numbers (N,) is NaN, as pandas has missing ones."""
        if values.dtype.kind != "f" or values.ndim != 1:
            return
        is_missing = np.isnan(values)
        if is_missing.any():
            row = self.row(int(np.argmax(is_missing)))
            raise self.error(f"{row} has no value in column {name!r}; fill it in, or leave the row out")

    def _refuse_problem(self, name: str) -> None:
        """DataError if texts of the column are neither numbers nor categories."""
        from pyarrow import compute

        if name not in self.problems:
            return
        problem = self.problems[name]
        index = compute.index(self.data.column(name), problem.text)
        row = self.row(index.as_py())
        raise self.error(f"{row} of column {name!r} is {problem.text!r}, {problem.what}; {problem.remedy}")

    def samples(self, names: Sequence[str]) -> Array:
        """The samples in these columns, channels first."""
        values = self.values(names[0])
        one_value = values.ndim == 1 and not isinstance(values[0], bytes)
        if len(names) > 1 or one_value:
            columns = [self._encoded(name) for name in names]
            return np.concatenate(columns, axis=1)
        if values.ndim > 1:
            return channels_first(str(self.path), f"column {names[0]!r}", values)
        pictures = {}
        for index, content in enumerate(values):
            pictures[f"column {names[0]!r}, {self.row(index)}"] = content
        return decoded(self.path, list(pictures), pictures.__getitem__)

    def _encoded(self, name: str) -> NDArray[np.float32]:
        """Numbers (N, 1). Texts and class labels are one-hot (N, K), in order of their values."""
        values = self.values(name)
        self._refuse_problem(name)
        is_number = values.dtype.kind in "biuf" and values.ndim == 1
        if is_number and name not in self.classes:
            return self._single_precision(name, values)[:, None]
        known, places = self._numbered(name, values, "name others in data.columns.inputs")
        one_hot = np.eye(len(known), dtype=np.float32)
        return one_hot[places]

    def _single_precision(self, name: str, values: Array) -> NDArray[np.float32]:
        """Numbers (N,) in single precision. DataError if it cannot distinguish most of them, such as seconds since
        1970."""
        single = single_precision(values, f"{self.path}: column {name!r}")
        finite = single[np.isfinite(single)]
        if finite.size and _are_close(finite.astype(np.float64)):
            different = len(np.unique(values))
            distinguished = len(np.unique(single))
            if different > 1 and 2 * distinguished <= different:
                what = f"has {different} different values that single precision cannot distinguish"
                raise self.error(f"column {name!r} {what}; subtract the smallest of them, or name other inputs")
        return single

    def targets(
        self,
        name: str,
        task: str | None,
    ) -> tuple[Array, tuple[str, ...]]:
        """Floats to predict, or whole numbers and the names of classes."""
        values = self.values(name)
        self._refuse_problem(name)
        kind = values.dtype.kind
        if task is None:
            are_predicted = kind == "f"
        else:
            are_predicted = task == "regression" and kind in "iuf"
        if are_predicted:
            return numbers(values, f"{self.path}: column {name!r}"), ()
        if task == "regression":
            raise self.error(f"column {name!r} has no numbers to predict; name another in data.columns.target")
        if name in self.classes or values.ndim > 1:
            return values, self.classes.get(name, ())
        if kind in "if":
            counting = values != IGNORED
        else:
            counting = np.ones(len(values), bool)
        y = np.full(len(values), IGNORED)
        known, places = self._numbered(name, values[counting], _NO_CLASSES)
        y[counting] = places
        names = map(str, known.tolist())
        return y, tuple(names)

    def _numbered(
        self,
        name: str,
        values: Array,
        remedy: str,
    ) -> tuple[Array, NDArray[np.intp]]:
        """The different values of a column in order, and the number of each row's value among them."""
        if values.ndim > 1 or not _are_plain(values):
            kind = self.data.schema.field(name).type
            raise self.error(f"column {name!r} is {kind}, and not numbers, texts or truth values; {remedy}")
        known, places = np.unique(values, return_inverse=True)
        if len(known) > MOST_VALUES:
            raise self.error(f"column {name!r} has {len(known)} different values; {remedy}")
        return known, places


def _are_close(numbers: Floats) -> bool:
    """Whether single precision may not distinguish the numbers."""
    largest = np.abs(numbers).max()
    return bool(np.ptp(numbers) < CLOSE * largest)


def _are_plain(values: Array) -> bool:
    """Whether values (N,) are numbers, truth values or texts."""
    return values.dtype.kind in "biuf" or isinstance(values[0], str)
