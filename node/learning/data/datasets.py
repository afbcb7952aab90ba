"""Data sets by name: found or fetched once, decoded once, and kept as plain arrays that every node of a run maps.

`prepare` makes a folder with x_train.npy, y_train.npy, x_test.npy, y_test.npy, meta.json and, if known, subjects.npy
and test_subjects.npy.
Nodes map the arrays instead of loading them, so a hundred nodes share one copy in the page cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from node.arrays import Array, Integers
from node.catalogue.datasets import (
    DATASET_PATHS,
    DATASETS,
    EMNIST,
    IGNORED,
    TABLES,
    Columns,
    Dataset,
    Form,
    Shape,
    is_dataset,
)
from node.catalogue.tasks import Task
from node.extras import lacking
from node.learning.data import downloads, formats, parts
from node.learning.data.files import below, open_regular, refuse_large
from node.learning.data.formats import TOKEN, Arrays
from node.learning.data.labels import refuse_gaps, refuse_unequal
from node.learning.data.parts import parts_of
from node.learning.data.readers import FORMATS, FORMS, Reader
from node.learning.data.samples import arrays_from
from node.learning.data.unlabelled import without_unlabelled
from node.learning.errors import DataError, DataNotFound

FORMAT = 7  # version of the prepared folder; part of its name, so that a new version does not use old folders
LONGEST_STEM = 100  # characters of a prepared folder's name that come from the data set's name
KEY_LENGTH = 12  # hexadecimal digits of a hash at the end of a prepared folder's name
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """A data set ready for use. The model's input is (x / 255 − `mean`) / `std` per channel for pictures, without
    the division by 255 for others. `mean` and `std` are those of the training part, or 0 and 1 if the data set has
    been normalised. They have the channels of all float parts, one part after the other. `sha256` is the hash of
    the arrays, by which a record identifies the data. `columns`: those of a table, each with what it became.
    `unlabelled`: the samples that were left out, because none of their labels counts. `classes` are the labels of
    multi-label data, and the numbers that a regression predicts of a sample."""

    directory: Path
    name: str
    shape: Shape
    classes: int
    label_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str
    sha256: str
    unlabelled: int = 0
    columns: tuple[tuple[str, str], ...] = ()

    def array(self, name: str) -> Array:
        """One of x_train, y_train, x_test, y_test, subjects, test_subjects, mapped read-only."""
        return _mapped(self.directory / f"{name}.npy")

    @property
    def tokens(self) -> bool:
        """Whether samples are integer tokens, which the model gets unchanged."""
        return self.array("x_test").dtype == TOKEN

    @property
    def task(self) -> Task:
        """What a model of the data predicts, by the type of the targets."""
        kind = self.array("y_test").dtype.kind
        if kind == "f":
            return "regression"
        if kind == "u":
            return "multi-label"
        return "classification"

    @property
    def labels(self) -> Shape:
        """The shape of a sample's labels: () for one label, (T,) for one of each token."""
        if self.task == "classification":
            return self.array("y_test").shape[1:]
        return ()

    @property
    def form(self) -> Form:
        x = self.array("x_test")
        named = []
        for name, part in parts_of(x).items():
            if name:
                of_sample = part.shape[1:]
                named.append((name, part.dtype.name, of_sample))
        return Form(
            self.shape,
            self.classes,
            tokens=self.tokens,
            labels=self.labels,
            task=self.task,
            parts=tuple(named),
        )

    def zeros(self, *count: int) -> Array:
        """Samples of zeros, in the form of the model's input."""
        kind = self.array("x_test").dtype
        shape = (*count, *self.shape)
        if kind.names or self.tokens:
            return np.zeros(shape, kind)
        return np.zeros(shape, np.float32)

    @property
    def train_labels(self) -> Integers:
        """The label of each training sample; of a sequence, the last that counts. Samples with several labels, or
        with numbers to predict, have all the label 0."""
        return _last(self.array("y_train"))

    @property
    def test_labels(self) -> Integers:
        return _last(self.array("y_test"))

    @property
    def subjects(self) -> Integers | None:
        """The person of each training sample, if known."""
        return self._people("subjects")

    @property
    def test_subjects(self) -> Integers | None:
        """The person of each test sample, if known."""
        return self._people("test_subjects")

    def _people(self, name: str) -> Integers | None:
        if (self.directory / f"{name}.npy").exists():
            return np.array(self.array(name))
        return None


def _last(labels: Array) -> Integers:
    if labels.dtype != np.int64:
        return np.zeros(len(labels), np.int64)
    if labels.ndim == 1:
        return np.array(labels)
    counts = labels != IGNORED
    from_the_end = np.argmax(np.flip(counts, axis=1), axis=1)
    last = labels.shape[1] - 1 - from_the_end
    rows = np.arange(len(labels))
    return np.array(labels[rows, last])


@functools.lru_cache(maxsize=32)
def _mapped(path: Path) -> Array:
    mapped: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def prepare(
    name: str,
    cache: Path,
    search: Sequence[Path] = (),
    *,
    download: bool = True,
    store: Path | None = None,
    columns: Columns | None = None,
    known: Mapping[str, Dataset] = DATASETS,
) -> Prepared:
    """Find data set `name` prepared under `cache`, or prepare it under `store`, by default `cache`. Other runs may do
    the same at the same time. ``columns``: those of a table. ``known``: the data sets by name.

    The places are, in order: `search`, files or folders of the scenario; the folders of EDGEBED_DATA (separated as in
    PATH); Debian's /usr/share/datasets; earlier downloads; and, with `download`, the network.
    Raises DataNotFound (with the places tried and the remedy) or DataError (the files found are broken).
    """
    if store is None:
        store = cache
    entry = known.get(name)
    if entry is not None and entry.read is not None:
        source, read, key = _of_plugin(name, entry)
    else:
        place, read = _find(name, cache, search, download, known)
        if _form(name) in TABLES:
            read = functools.partial(read, columns)
        source = str(place or "edgebed")
        key = _fingerprint(name, place, columns)
    directory = cache / f"{_stem(name)}-{key}"
    if not directory.exists():
        directory = store / directory.name
        log.info("preparing data set %s from %s", name, source)
        try:
            arrays = read()
        except ImportError as error:
            reason = lacking(error) or f"cannot be read: {error}"
            raise DataError(f"{source} {reason}") from error
        _store(name, arrays, source, directory, entry)
    return open_prepared(directory)


def _form(name: str) -> str:
    """The form of the files of a data set that is named by a path, such as npz:data.npz."""
    return name.partition(":")[0]


def _stem(name: str) -> str:
    """The start of a prepared folder's name: letters and digits of the data set's name."""
    last = Path(name).stem.lower()
    stem = re.sub(r"[^a-z0-9]+", "-", last).strip("-")
    return stem[:LONGEST_STEM] or "data"


def open_prepared(directory: Path) -> Prepared:
    """Open a folder that `prepare` made. Raises DataError if it is no such folder."""
    try:
        text = (directory / "meta.json").read_text(encoding="ascii")
        values: dict[str, Any] = {}
        for key, value in json.loads(text).items():
            if isinstance(value, list):
                value = tuple(value)
            values[key] = value
        return Prepared(directory, **values)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{directory}: not a prepared data set: {error}; delete the folder to make it again") from error


def _of_plugin(name: str, entry: Dataset) -> tuple[str, Reader, str]:
    """The source, reader and hash of a plug-in's data set. What its function reads may change, so it is called each
    time, and equal arrays share a folder."""
    assert entry.read is not None
    source = f"data set {name} ({entry.where})"
    try:
        entries = entry.read()
        arrays = arrays_from(entries, source)
    except DataError:
        raise
    except Exception as error:
        reason = lacking(error) or f"cannot be read: {type(error).__name__}: {error}"
        raise DataError(f"{source} {reason}") from error
    key = _digest(arrays)[:KEY_LENGTH]
    return source, lambda: arrays, key


def _digest(arrays: Arrays) -> str:
    """The hash of the arrays, by which a record identifies the data."""
    digest = hashlib.sha256()
    for values in _named(arrays).values():
        digest.update(np.ascontiguousarray(values).data)
    if arrays.normalised:
        digest.update(b"normalised")
    return digest.hexdigest()


def _named(arrays: Arrays) -> dict[str, Array]:
    """The arrays that the data set has, by name."""
    named = {}
    for name, values in vars(arrays).items():
        if isinstance(values, np.ndarray):
            named[name] = values
    return named


def locate(name: str, cache: Path) -> str | None:
    """Where data set `name` would be read from, without a scenario's folder or a download; None if it is missing."""
    try:
        place, _ = _find(name, cache, [], download=False)
    except DataNotFound:
        return None
    return str(place or DATASETS[name].where)


def _find(
    name: str,
    cache: Path,
    search: Sequence[Path],
    download: bool,
    known: Mapping[str, Dataset] = DATASETS,
) -> tuple[Path | None, Reader]:
    """The place of the data set and its reader. The place is None for digits, which come with edgebed."""
    if not is_dataset(name, known):
        forms = "; ".join(DATASET_PATHS.values())
        raise DataNotFound(f"no data set {name!r}: known are {', '.join(known)}, and {forms}")
    if name == "digits":
        return None, formats.read_digits
    form, _, path = name.partition(":")
    if path:
        place = _named_place(name, path, search)
        return place, functools.partial(FORMS[form], place)
    roots = data_folders(cache)
    for place in _all_candidates(name, search, roots):
        with contextlib.suppress(OSError):  # a folder that this user may not read
            reader = FORMATS[name](place)
            if reader is not None:
                return place, reader
    tried = [str(root) for root in (*search, *roots)]
    return _fetch(name, cache, tried, download)


def _named_place(name: str, named: str, search: Sequence[Path]) -> Path:
    """The file or folder of a data set that is named by a path. Raises DataNotFound."""
    path = Path(os.path.expanduser(named))
    candidates = [path]
    if not path.is_absolute():
        candidates.extend(place / path for place in search)
    form = _form(name)
    for candidate in candidates:
        if not os.path.exists(candidate):
            continue
        if form == "npz" and candidate.is_dir():
            continue
        return candidate
    places = dict.fromkeys(map(os.path.abspath, candidates))
    kind = _KINDS.get(form, "file or folder")
    raise DataNotFound(f"data set {name}: no {kind} at {' or '.join(places)}")


_KINDS = {"npz": "file", "images": "folder or zip", "leaf": "folder", "text": "folder"}


def _fetch(
    name: str,
    cache: Path,
    tried: list[str],
    download: bool,
) -> tuple[Path, Reader]:
    if download:
        log.info("downloading data set %s", name)
        try:
            place = downloads.download(name, cache / "downloads")
            if place:
                reader = FORMATS[name](place)
                if reader:
                    return place, reader
        except (OSError, RuntimeError, ImportError) as error:
            one_line = " ".join(str(error).split())
            reason = lacking(error) or one_line
            tried.append(f"the network ({reason})")
    names = ", ".join(_NAMES[name])
    raise DataNotFound(f"no data set {name}: {DATASETS[name].where}. Looked for {names} in: {', '.join(tried)}")


_NAMES = {  # names of the files or folders of each data set, inside a folder of data sets
    "mnist": ("mnist", "MNIST/raw"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw"),
    "cifar10": (
        "cifar10",
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        "cifar10.zip",
        "cifar10-jpeg.zip",
    ),
    "cifar100": ("cifar100", "cifar-100-binary", "cifar-100-binary.tar.gz"),
    "har": ("har", "UCI HAR Dataset", "har.npz", "uci-har-acc.npz"),
    "har-9": ("har", "UCI HAR Dataset", "har-9.npz"),
    **{f"emnist-{split}": ("emnist", "EMNIST/raw", "gzip") for split in EMNIST},
}


def data_folders(cache: Path) -> list[Path]:
    """The folders in which data sets are looked for, without those of a scenario."""
    folders = []
    named = os.environ.get("EDGEBED_DATA", "")
    for folder in named.split(os.pathsep):
        if folder:
            folders.append(Path(folder))
    folders.append(Path("/usr/share/datasets"))
    folders.append(Path.home() / ".cache" / "torchvision")
    folders.append(cache / "downloads")
    return folders


def _all_candidates(
    name: str,
    search: Sequence[Path],
    roots: Sequence[Path],
) -> Iterator[Path]:
    yield from _candidates(name, search, given=True)
    yield from _candidates(name, roots, given=False)


def _candidates(
    name: str,
    roots: Sequence[Path],
    *,
    given: bool,
) -> Iterator[Path]:
    """Yield files and folders that may hold the data set. Only a scenario (`given`) may name a folder of any name as
    the data set itself, since MNIST's files are named like Fashion-MNIST's."""
    for root in roots:
        if given:
            yield root
        for file in _NAMES[name]:
            yield root / file


def _fingerprint(name: str, source: Path | None, columns: Columns | None) -> str:
    """Short hash of the data set's name, its columns, its place, and the names and contents of its files. Times do not
    count: a file can change without them, and a copy has others. In a folder, its own files and those below train and
    test count; in a folder of texts or tables, all files."""
    digest = hashlib.sha256(f"{FORMAT} {name}{columns or ''}".encode())
    if source is None:
        return digest.hexdigest()[:KEY_LENGTH]
    digest.update(os.fsencode(source.absolute()))
    files = _files(name, source)
    size = sum(file.stat().st_size for file in files.values())
    refuse_large(source, size)
    for relative, file in files.items():
        with open_regular(file) as content:
            of_content = hashlib.file_digest(content, "sha256").digest()
            digest.update(os.fsencode(f"\0{relative}\0") + of_content)
    return digest.hexdigest()[:KEY_LENGTH]


def _files(name: str, source: Path) -> dict[str, Path]:
    """The files of a data set by their names relative to ``source``; of a file, itself under the name ""."""
    if not source.is_dir():
        return {"": source}
    every = _form(name) in ("text", *TABLES)
    files = {}
    for relative in sorted(below(source), key=os.fsencode):
        folders = set(relative.split("/"))
        in_a_part = not folders.isdisjoint(("train", "test"))
        counts = every or "/" not in relative or in_a_part
        if counts and (source / relative).is_file():
            files[relative] = source / relative
    return files


def _store(
    name: str,
    arrays: Arrays,
    source: str,
    directory: Path,
    entry: Dataset | None,
) -> None:
    """Write the prepared folder next to its final place and rename it. If another run was first, keep its folder."""
    arrays, unlabelled = without_unlabelled(arrays, source)
    shape, classes = _check(name, arrays, source, entry)
    mean, std = parts.normalisation(arrays.x_train, source, as_they_are=arrays.normalised)
    directory.parent.mkdir(parents=True, exist_ok=True)
    making_in = directory.parent
    making = Path(tempfile.mkdtemp(dir=making_in, prefix=".making-"))
    try:
        for key, values in _named(arrays).items():
            contiguous = np.ascontiguousarray(values)
            np.save(making / f"{key}.npy", contiguous, allow_pickle=False)
        meta = {
            "name": name,
            "shape": shape,
            "classes": classes,
            "label_names": arrays.label_names,
            "mean": mean,
            "std": std,
            "source": source,
            "sha256": _digest(arrays),
            "unlabelled": unlabelled,
            "columns": arrays.columns,
        }
        text = json.dumps(meta, indent=1)
        (making / "meta.json").write_text(text, encoding="ascii")
        for path in making.iterdir():
            path.chmod(0o644)  # nodes run as other users
        making.chmod(0o755)
        try:
            making.rename(directory)
        except OSError:
            if not (directory / "meta.json").exists():
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _check(
    name: str,
    arrays: Arrays,
    source: str,
    entry: Dataset | None,
) -> tuple[Shape, int]:
    """Shape of a sample and number of classes. Raises DataError if the arrays do not fit together or do not fit the
    ``entry`` of the name."""
    _check_part("train", arrays.x_train, arrays.y_train, arrays.subjects, source)
    _check_part("test", arrays.x_test, arrays.y_test, arrays.test_subjects, source)
    _refuse_unlike("samples", arrays.x_train, arrays.x_test, source)
    _refuse_unlike("targets", arrays.y_train, arrays.y_test, source)
    shape = tuple(arrays.x_train.shape[1:])
    for part in parts_of(arrays.x_train).values():
        if 0 in part.shape[1:]:
            raise DataError(f"{source}: a sample has the shape {shape}, which holds nothing")
    known = None
    if entry is not None and entry.classes:
        known = entry
    if arrays.y_train.dtype != np.int64:
        if known is not None:
            raise DataError(f"{source}: targets are not classes, and {name} has {known.classes} classes")
        return shape, arrays.y_train.shape[1]
    has_one_label = arrays.y_train.ndim == 1
    if has_one_label and (known is None or _has_negative(arrays)):
        labels = {"y_train": arrays.y_train, "y_test": arrays.y_test}
        refuse_gaps(labels, source)
    classes = _classes(arrays)
    if known is None:
        return shape, classes
    if shape != known.shape or classes != known.classes:
        raise DataError(
            f"{source}: samples of shape {shape} and {classes} classes are not {name}, which has "
            f"{known.shape} and {known.classes}"
        )
    return shape, classes


def _check_part(
    part: str,
    x: Array,
    y: Array,
    subjects: Integers | None,
    source: str,
) -> None:
    """DataError if the arrays of a part have different lengths, or a sample has no finite values."""
    refuse_unequal(source, part, len(x), len(y))
    if subjects is not None and len(subjects) != len(y):
        raise DataError(f"{source}: {len(subjects)} subjects for {len(y)} {part} samples")
    wrong = parts.not_finite(x)
    if len(wrong):
        raise DataError(
            f"{source}: {len(wrong)} of the {len(x)} {part} samples hold NaN or an infinity, the first "
            f"is x_{part}[{wrong[0]}]; leave them out, or fill in what is missing"
        )


def _refuse_unlike(
    what: str,
    train: Array,
    test: Array,
    source: str,
) -> None:
    """DataError unless the arrays of both parts have one type and, but for the number of samples, one shape."""
    same_shape = train.shape[1:] == test.shape[1:]
    if train.dtype != test.dtype or not same_shape:
        of_train = f"train {what} are {train.dtype} {train.shape[1:]}"
        of_test = f"test {what} {test.dtype} {test.shape[1:]}"
        raise DataError(f"{source}: {of_train}, {of_test}; they must be alike")


def _has_negative(arrays: Arrays) -> bool:
    of_train = arrays.y_train.min()
    lowest = min(of_train, arrays.y_test.min())
    return bool(lowest < 0)


def _classes(arrays: Arrays) -> int:
    """The number of classes; of sequences that of tokens, since a token may be an input only."""
    of_train = arrays.y_train.max()
    highest = int(max(of_train, arrays.y_test.max()))
    if arrays.y_train.ndim > 1:
        shapes = (arrays.y_train.shape, arrays.y_test.shape)
        inputs = [*parts_of(arrays.x_train).values()]
        inputs += parts_of(arrays.x_test).values()
        for part in inputs:
            if part.shape in shapes and part.dtype.kind == "i":
                highest = max(highest, int(part.max()))
    return highest + 1
