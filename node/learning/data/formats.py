"""Readers of data set files: IDX, CIFAR's binary version, UCI HAR, npz. `pictures`, `leaf` and `texts` have more.

Every reader returns `Arrays`: samples channels first, uint8 (pictures), int32 (tokens) or float32 (anything else), and
labels from 0 up.
No reader unpickles. Readers raise DataError naming the file and its fault. docs/reference/data.md lists what
each keeps, converts and refuses.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from node.arrays import Array, Integers
from node.catalogue.datasets import IGNORED
from node.learning.data.files import open_regular, read_regular, read_text, refuse_large
from node.learning.data.labels import refuse_unequal, take_in_proportion, targets, whole_numbers
from node.learning.data.parts import joined, parts_of, single_precision
from node.learning.errors import DataError

CHANNELS = (1, 3, 4)  # of pictures
TOKEN = np.dtype(np.int32)
LARGEST_TOKEN = np.iinfo(TOKEN).max
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True)
class Arrays:
    """A data set in memory: x (N, *shape), y (N,) int64, and the person of each training and each test sample if known.
    Tokens are x (N, T) int32, with one label for each sample or for each token, y (N, T). Samples of several parts are
    x (N,) of a structured type. y (N, K) is uint8 for K labels, float32 for K numbers.
    ``normalised``: the model gets the samples as they are. ``columns``: those of a table, each with what it became."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    subjects: Integers | None = None
    label_names: tuple[str, ...] = ()
    test_subjects: Integers | None = None
    normalised: bool = False
    columns: tuple[tuple[str, str], ...] = ()


def read_digits() -> Arrays:
    """The 1,797 digits of `digits/`, split 1,437 to 360 with every digit in proportion. The split is fixed."""
    file = Path(__file__).with_name("digits") / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    pixels = table[:, :-1]
    brightness = np.rint(pixels * (255 / 16))  # the file has 0 to 16
    x = brightness.astype(np.uint8)
    x = x.reshape(-1, 1, 8, 8)
    y = table[:, -1].astype(np.int64)
    chosen = take_in_proportion(y, 360, np.random.default_rng(0))
    test = np.zeros(len(y), dtype=bool)
    test[chosen] = True
    train = ~test
    return Arrays(x[train], y[train], x[test], y[test])


def idx_paths(
    folder: Path,
    files: Sequence[str] = IDX_FILES,
) -> list[Path] | None:
    """The four IDX files in `folder`, gzipped or plain, or None if one is missing."""
    paths = []
    for name in files:
        path = _idx_path(folder, name)
        if path is None:
            return None
        paths.append(path)
    return paths


def _idx_path(folder: Path, name: str) -> Path | None:
    """An IDX file by any of its usual names, or None."""
    with_point = name.replace("-idx", ".idx")
    for spelling in (name, f"{name}.gz", with_point, f"{with_point}.gz"):
        path = folder / spelling
        if path.is_file():
            return path
    return None


def read_idx_folder(folder: Path, files: Sequence[str] = IDX_FILES) -> Arrays:
    """MNIST, Fashion-MNIST or a split of EMNIST from the four files that `idx_paths` finds."""
    paths = idx_paths(folder, files)
    if paths is None:
        raise DataError(f"{folder}: not all of {', '.join(files)} (or .gz) are there")
    train_pictures, train_labels, test_pictures, test_labels = paths
    x_train = read_idx(train_pictures, 3)
    y_train = read_idx(train_labels, 1)
    x_test = read_idx(test_pictures, 3)
    y_test = read_idx(test_labels, 1)
    return Arrays(
        x_train=x_train[:, None],
        y_train=y_train.astype(np.int64),
        x_test=x_test[:, None],
        y_test=y_test.astype(np.int64),
    )


def emnist_files(split: str) -> tuple[str, ...]:
    """The names of the four IDX files of a split of EMNIST: balanced, byclass, digits, letters."""
    files = []
    for name in IDX_FILES:
        of_emnist = name.replace("t10k", "test")
        files.append(f"emnist-{split}-{of_emnist}")
    return tuple(files)


def read_emnist(folder: Path, split: str) -> Arrays:
    """A split of EMNIST. Its files have rows and columns of pictures exchanged, and count letters from 1."""
    arrays = read_idx_folder(folder, emnist_files(split))
    first = int(split == "letters")
    return Arrays(
        x_train=arrays.x_train.swapaxes(2, 3),
        y_train=arrays.y_train - first,
        x_test=arrays.x_test.swapaxes(2, 3),
        y_test=arrays.y_test - first,
    )


IDX_TYPES = {
    8: "unsigned bytes",
    9: "signed bytes",
    11: "16-bit",
    12: "32-bit",
    13: "32-bit float",
    14: "64-bit float",
}


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """One IDX file of unsigned bytes (http://yann.lecun.com/exdb/mnist), gzipped or plain: two zero bytes, type 8, the
    number of axes, each axis as a big-endian 32-bit number, then the bytes."""
    with open_regular(path) as file:
        stream = _uncompressed(file)
        try:
            with stream as content:
                shape = _idx_shape(path, content, axes)
                size = math.prod(shape)
                refuse_large(path, size)
                data = content.read(size + 1)
        except (OSError, EOFError, struct.error, zlib.error) as error:
            raise DataError(f"{path}: not an IDX file: {error}") from error
    if len(data) != size:
        raise DataError(f"{path}: not a complete IDX file of unsigned bytes of shape {shape}; fetch it again")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _uncompressed(file: io.BufferedReader) -> io.BufferedReader | gzip.GzipFile:
    compressed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    if compressed:
        return gzip.open(file)
    return file


def _idx_shape(
    path: Path,
    content: io.BufferedReader | gzip.GzipFile,
    axes: int,
) -> tuple[int, ...]:
    """The shape by the header of an IDX file. DataError unless it has unsigned bytes and as many axes."""
    header = content.read(4)
    zeros, kind, declared_axes = struct.unpack(">HBB", header)
    if zeros or kind not in IDX_TYPES:
        raise DataError(f"{path}: not an IDX file: it does not begin with two zero bytes and a type")
    if (kind, declared_axes) != (8, axes):
        raise DataError(
            f"{path}: has {declared_axes} axes of {IDX_TYPES[kind]} values; take a file of {axes} axes of "
            "unsigned bytes"
        )
    return struct.unpack(f">{axes}I", content.read(4 * axes))


CIFAR10_LABELS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CIFAR10_TRAIN = ("data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin")
CIFAR10_FILES = (*CIFAR10_TRAIN, "test_batch.bin")
CIFAR100_FILES = ("train.bin", "test.bin")


def read_cifar10(path: Path) -> Arrays:
    """CIFAR-10's binary version, a folder or `cifar-10-binary.tar.gz`: records of a label byte and 3x32x32 bytes."""
    return _read_cifar(path, CIFAR10_FILES, 1, CIFAR10_LABELS)


def read_cifar100(path: Path) -> Arrays:
    """CIFAR-100's binary version, a folder or `cifar-100-binary.tar.gz`: records of a coarse and a fine label byte and
    3x32x32 bytes. The labels are the fine ones."""
    return _read_cifar(path, CIFAR100_FILES, 2)


def _read_cifar(
    path: Path,
    files: Sequence[str],
    labels: int,
    label_names: tuple[str, ...] = (),
) -> Arrays:
    """The last of ``files`` is the test part. A record has ``labels`` bytes before the picture; the last one counts."""
    batches = []
    record = labels + 3072  # bytes
    for name, data in _cifar_batches(path, files):
        if not data or len(data) % record:
            raise DataError(f"{name}: {len(data)} bytes are not whole records of {record}; fetch it again")
        batch = np.frombuffer(data, dtype=np.uint8)
        batches.append(batch.reshape(-1, record))
    if len(batches) != len(files):
        raise DataError(f"{path}: not all of {', '.join(files)} are there")
    train = np.concatenate(batches[:-1])
    test = batches[-1]
    return Arrays(
        x_train=train[:, labels:].reshape(-1, 3, 32, 32),
        y_train=train[:, labels - 1].astype(np.int64),
        x_test=test[:, labels:].reshape(-1, 3, 32, 32),
        y_test=test[:, labels - 1].astype(np.int64),
        label_names=label_names,
    )


def _cifar_batches(
    path: Path,
    files: Sequence[str],
) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for name in files:
            file = path / name
            if file.is_file():
                yield str(file), read_regular(file)
        return
    try:
        with tarfile.open(path) as archive:
            members = _wanted_members(archive, files)
            size = sum(member.size for member in members.values())
            refuse_large(path, 3 * size)
            for name in files:
                if name not in members:
                    continue
                content = archive.extractfile(members[name])
                if content is not None:
                    yield f"{path}:{name}", content.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{path}: not a readable archive: {error}; fetch it again") from error


def _wanted_members(
    archive: tarfile.TarFile,
    files: Sequence[str],
) -> dict[str, tarfile.TarInfo]:
    """The files with these names, in any folder of the archive."""
    members = {}
    for member in archive:
        name = PurePosixPath(member.name).name
        if member.isfile() and name in files:
            members[name] = member
    return members


HAR_LABELS = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")


HAR_SIGNALS = ("body_acc", "body_gyro", "total_acc")


def read_har_folder(path: Path, signals: Sequence[str] = ("total_acc",)) -> Arrays:
    """Signals in the unpacked folder 'UCI HAR Dataset': windows (3, 128) of the total acceleration in g, or (9, 128)
    with the body's acceleration in g and angular velocity in rad/s before it, and their persons."""
    x_train, y_train, subjects = _har_part(path, "train", signals)
    x_test, y_test, _ = _har_part(path, "test", signals)
    return Arrays(x_train, y_train, x_test, y_test, subjects, HAR_LABELS)


def _har_part(
    path: Path,
    part: str,
    signals: Sequence[str],
) -> tuple[Array, Array, Array]:
    """The windows, labels and persons of a part."""
    folder = path / part
    signals_folder = folder / "Inertial Signals"
    axes = []
    for signal in signals:
        for axis in "xyz":
            file = signals_folder / f"{signal}_{axis}_{part}.txt"
            axes.append(_table(file, np.float32, 2))
    shapes = {values.shape for values in axes}
    if len(shapes) > 1:
        raise DataError(f"{signals_folder}: the axes have different numbers of values; unpack it again")
    x = np.stack(axes, axis=1)
    y = _table(folder / f"y_{part}.txt", np.int64, 1) - 1
    subjects = _table(folder / f"subject_{part}.txt", np.int64, 1)
    return x, y, subjects


def _table(
    file: Path,
    kind: type[np.generic],
    axes: Literal[1, 2],
) -> Array:
    """The numbers of a text file, one row a line."""
    lines = read_text(file).split("\n")
    try:
        if not any(map(str.strip, lines)):
            raise ValueError("it is empty")
        return np.loadtxt(lines, dtype=kind, ndmin=axes)
    except ValueError as error:
        raise DataError(f"{file}: not a table of the UCI HAR data set: {error}") from None


# What readers of damaged zip files and arrays raise.
_DAMAGE = (OSError, EOFError, RuntimeError, ValueError, OverflowError, zipfile.BadZipFile, zlib.error)
ENTRIES = ("x_train", "y_train", "x_test", "y_test")
SUBJECTS = ("subject_train", "subject_test")


def read_npz(path: Path) -> Arrays:
    """An npz file of x_train, y_train, x_test, y_test and, if known, subject_train and subject_test. Other arrays are
    not read.

    x is (N, H, W), (N, H, W, C) or (N, C, H, W) uint8 for pictures, (N, T, C) floats for sequences, (N, F) floats for
    features.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            wanted = _wanted_entries(archive)
            size = sum(info.file_size for info in wanted.values())
            refuse_large(path, 2 * size)
            counts = {}
            for name, info in wanted.items():
                counts[name] = _declared(archive, info, f"{path}: {name}")
            for part in ("train", "test"):
                x_name = f"x_{part}"
                y_name = f"y_{part}"
                if x_name in counts and y_name in counts:
                    refuse_unequal(str(path), part, counts[x_name], counts[y_name])
            entries = {}
            for name, info in wanted.items():
                entries[name] = _npy(archive, info)
            return arrays_of(entries, str(path))
    except _DAMAGE as error:
        raise DataError(f"{path}: not an npz file of plain arrays: {error}") from error


def _wanted_entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The arrays of a data set that an npz file has, by name."""
    infos = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        infos[name] = info
    wanted = {}
    for name in (*ENTRIES, *SUBJECTS):
        if name in infos:
            wanted[name] = infos[name]
    return wanted


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _declared(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> int:
    """The length of an array by its header. DataError if it declares anything but what the file has."""
    with archive.open(info) as file:
        try:
            version = np.lib.format.read_magic(file)
            shape, _, dtype = _HEADERS[version](file)
            size = math.prod(shape) * dtype.itemsize
            available = info.file_size - file.tell()
        except Exception as error:  # numpy evaluates the header, and raises what the parser of Python does
            reason = str(error)[:200]
            raise DataError(f"{name} is not a plain array: {type(error).__name__}: {reason}") from None
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are not read; save an array of numbers of one shape")
    if size != available or min(shape, default=0) < 0:
        raise DataError(f"{name} declares {dtype} {shape}, {size:,} bytes, and holds {available:,}; save it again")
    if not shape:
        return 0
    return shape[0]


def _npy(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    with archive.open(info) as file:
        values: Array = np.lib.format.read_array(file, allow_pickle=False)
        return values


def arrays_of(entries: Mapping[str, Any], path: str) -> Arrays:
    """The data set of named arrays, as in an npz file. ``path`` is their source. Raises DataError."""
    for name in ENTRIES:
        if name not in entries:
            raise DataError(f"{path}: no array {name!r}; it needs x_train, y_train, x_test and y_test")
    x_train = channels_first(path, "x_train", entries["x_train"])
    x_test = channels_first(path, "x_test", entries["x_test"])
    samples = {"x_train": x_train, "x_test": x_test}
    return with_targets({**entries, **samples}, path)


def with_targets(
    entries: Mapping[str, Any],
    path: str,
    *,
    normalised: bool = False,
) -> Arrays:
    """The data set of named arrays with samples in the form of `Arrays`. Raises DataError."""
    x_train = entries["x_train"]
    x_test = entries["x_test"]
    y_train, y_test = targets_of(
        x_train,
        entries["y_train"],
        x_test,
        entries["y_test"],
        path,
    )
    subjects = {}
    for name in SUBJECTS:
        if name in entries:
            subjects[name] = np.asarray(entries[name])
    people = whole_numbers(subjects, path)
    return Arrays(
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        subjects=people.get("subject_train"),
        test_subjects=people.get("subject_test"),
        normalised=normalised,
    )


def targets_of(
    x_train: Array,
    y_train: Array,
    x_test: Array,
    y_test: Array,
    path: str,
) -> tuple[Array, Array]:
    """The targets of the training and of the test part. Raises DataError."""
    samples = parts_of(x_train).values()
    if _are_sequences(samples, y_train):
        of_train = _token_labels(path, "y_train", x_train, y_train)
        of_test = _token_labels(path, "y_test", x_test, y_test)
        return of_train, of_test
    y = targets({"y_train": y_train, "y_test": y_test}, path)
    return y["y_train"], y["y_test"]


def _are_sequences(parts: Iterable[Array], y: Array) -> bool:
    """Whether each token has a label. A matrix of 0 and 1 with as many columns as there are tokens has."""
    if y.dtype.kind not in "iu":
        return False
    if y.ndim != 2 or y.shape[1] == 1:
        return False
    shapes = []
    for part in parts:
        if part.dtype.kind in "iu" and part.dtype != np.uint8:
            shapes.append(part.shape)
    if y.shape in shapes:
        return True
    return bool(shapes and (y > 1).any())


def _token_labels(
    path: str,
    name: str,
    x: Array,
    y: Array,
) -> Integers:
    shapes = []
    for part in parts_of(x).values():
        if part.dtype.kind in "iu":
            shapes.append(part.shape)
    if y.shape not in shapes:
        raise DataError(f"{path}: {name} is {y.shape}; it needs one label for each token of {shapes[0]}")
    labels = y.astype(np.int64)
    counting = np.where(labels == IGNORED, 0, labels)
    _tokens(path, name, counting, f", or {IGNORED} where a label does not count")
    return labels


def channels_first(path: str, name: str, x: Array) -> Array:
    if x.dtype.names:
        return joined(parts_of(x), f"{path}: {name}")
    kind = x.dtype.kind
    if x.dtype == np.uint8 and x.ndim == 3:
        return np.ascontiguousarray(x[:, None])
    if x.dtype == np.uint8 and x.ndim == 4:
        if x.shape[3] in CHANNELS:
            channels_second = x.transpose(0, 3, 1, 2)
            return np.ascontiguousarray(channels_second)
        if x.shape[1] in CHANNELS:
            return np.ascontiguousarray(x)
    if kind == "f" and x.ndim in (2, 3):
        if x.ndim == 3:
            x = x.transpose(0, 2, 1)
        single = single_precision(x, f"{path}: {name}")
        return np.ascontiguousarray(single)
    if kind in "iu" and x.dtype != np.uint8 and x.ndim == 2:
        return _tokens(path, name, x)
    if kind not in "biuf":
        remedy = ""
    elif x.ndim > 2:
        remedy = "; pictures of other types must be scaled to 0..255 first"
    else:
        remedy = "; write x.astype('float32')"
    raise DataError(
        f"{path}: {name} is {x.dtype} {x.shape}; take uint8 (N, H, W), (N, H, W, C) or (N, C, H, W) for pictures, "
        f"floats (N, T, C) for sequences or (N, F) for features{remedy}"
    )


def _tokens(
    path: str,
    name: str,
    x: Array,
    others: str = "",
) -> NDArray[np.int32]:
    """Integers from 0 up, as tokens. Raises DataError, which names the ``others`` that are allowed."""
    if not _are_tokens(x):
        raise DataError(f"{path}: {name} must hold whole numbers from 0 to {LARGEST_TOKEN} as tokens{others}")
    return np.ascontiguousarray(x, dtype=TOKEN)


def _are_tokens(x: Array) -> bool:
    if x.dtype.kind not in "iu":
        return False
    if x.size == 0:
        return True
    lowest = int(x.min())
    return lowest >= 0 and int(x.max()) <= LARGEST_TOKEN
