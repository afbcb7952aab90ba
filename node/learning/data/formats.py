"""Readers of data set files: IDX, CIFAR's binary version, UCI HAR, npz. `pictures`, `leaf` and `texts` have more.

Every reader returns `Arrays`: samples channels first, uint8 (pictures), int32 (tokens) or float32 (anything else), and
labels from 0 up.
No reader unpickles. Readers raise DataError naming the file and its fault. docs/reference/data.md lists what
each keeps, converts and refuses.
"""

from __future__ import annotations

import gzip
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

from node.catalogue.datasets import IGNORED
from node.learning.data.files import open_regular, read_regular, read_text, refuse_large
from node.learning.data.labels import refuse_unequal, take_in_proportion, targets, whole_numbers
from node.learning.data.parts import joined, parts_of, single_precision
from node.learning.errors import DataError

CHANNELS = (1, 3, 4)  # of pictures
TOKEN = np.dtype(np.int32)
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True)
class Arrays:
    """A data set in memory: x (N, *shape), y (N,) int64, and the person of each training and each test sample if known.
    Tokens are x (N, T) int32, with one label for each sample or for each token, y (N, T). Samples of several parts are
    x (N,) of a structured type. y (N, K) is uint8 for K labels, float32 for K numbers.
    ``normalised``: the model gets the samples as they are. ``columns``: those of a table, each with what it became."""

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    subjects: NDArray[np.int64] | None = None
    label_names: tuple[str, ...] = ()
    test_subjects: NDArray[np.int64] | None = None
    normalised: bool = False
    columns: tuple[tuple[str, str], ...] = ()


def read_digits() -> Arrays:
    """The 1,797 digits of `digits/`, split 1,437 to 360 with every digit in proportion. The split is fixed."""
    table = np.loadtxt(Path(__file__).with_name("digits") / "digits.csv.gz", delimiter=",", dtype=np.uint8)
    x = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    y = table[:, -1].astype(np.int64)
    test = np.zeros(len(y), dtype=bool)
    test[take_in_proportion(y, 360, np.random.default_rng(0))] = True
    return Arrays(x[~test], y[~test], x[test], y[test])


def idx_paths(folder: Path, files: Sequence[str] = IDX_FILES) -> list[Path] | None:
    """The four IDX files in `folder`, gzipped or plain, or None if one is missing."""
    found = []
    for name in files:
        spellings = (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz")
        path = next((folder / spelling for spelling in spellings if (folder / spelling).is_file()), None)
        if path is None:
            return None
        found.append(path)
    return found


def read_idx_folder(folder: Path, files: Sequence[str] = IDX_FILES) -> Arrays:
    """MNIST, Fashion-MNIST or a split of EMNIST from the four files that `idx_paths` finds."""
    paths = idx_paths(folder, files)
    if paths is None:
        raise DataError(f"{folder}: not all of {', '.join(files)} (or .gz) are there")
    x_train, y_train, x_test, y_test = (read_idx(path, axes) for path, axes in zip(paths, (3, 1, 3, 1), strict=True))
    return Arrays(x_train[:, None], y_train.astype(np.int64), x_test[:, None], y_test.astype(np.int64))


def emnist_files(split: str) -> tuple[str, ...]:
    """The names of the four IDX files of a split of EMNIST: balanced, byclass, digits, letters."""
    return tuple(f"emnist-{split}-{name.replace('t10k', 'test')}" for name in IDX_FILES)


def read_emnist(folder: Path, split: str) -> Arrays:
    """A split of EMNIST. Its files have rows and columns of pictures exchanged, and count letters from 1."""
    found = read_idx_folder(folder, emnist_files(split))
    first = int(split == "letters")
    return Arrays(
        found.x_train.swapaxes(2, 3), found.y_train - first, found.x_test.swapaxes(2, 3), found.y_test - first
    )


IDX_TYPES = {8: "unsigned bytes", 9: "signed bytes", 11: "16-bit", 12: "32-bit", 13: "32-bit float", 14: "64-bit float"}


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """One IDX file of unsigned bytes (http://yann.lecun.com/exdb/mnist), gzipped or plain: two zero bytes, type 8, the
    number of axes, each axis as a big-endian 32-bit number, then the bytes."""
    with open_regular(path) as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            with gzip.open(file) if compressed else file as content:
                zeros, kind, found = struct.unpack(">HBB", content.read(4))
                if zeros or kind not in IDX_TYPES:
                    raise DataError(f"{path}: not an IDX file: it does not begin with two zero bytes and a type")
                if (kind, found) != (8, axes):
                    raise DataError(
                        f"{path}: has {found} axes of {IDX_TYPES[kind]} values; take a file of {axes} axes of "
                        "unsigned bytes"
                    )
                shape = struct.unpack(f">{axes}I", content.read(4 * axes))
                refuse_large(path, math.prod(shape))
                data = content.read(math.prod(shape) + 1)
        except (OSError, EOFError, struct.error, zlib.error) as error:
            raise DataError(f"{path}: not an IDX file: {error}") from error
    if len(data) != math.prod(shape):
        raise DataError(f"{path}: not a complete IDX file of unsigned bytes of shape {shape}; fetch it again")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


CIFAR10_LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
CIFAR100_FILES = ("train.bin", "test.bin")


def read_cifar10(path: Path) -> Arrays:
    """CIFAR-10's binary version, a folder or `cifar-10-binary.tar.gz`: records of a label byte and 3x32x32 bytes."""
    return _read_cifar(path, CIFAR10_FILES, 1, CIFAR10_LABELS)


def read_cifar100(path: Path) -> Arrays:
    """CIFAR-100's binary version, a folder or `cifar-100-binary.tar.gz`: records of a coarse and a fine label byte and
    3x32x32 bytes. The labels are the fine ones."""
    return _read_cifar(path, CIFAR100_FILES, 2)


def _read_cifar(path: Path, files: Sequence[str], labels: int, label_names: tuple[str, ...] = ()) -> Arrays:
    """The last of ``files`` is the test part. A record has ``labels`` bytes before the picture, of which the last
    counts."""
    parts = []
    for name, data in _cifar_batches(path, files):
        if not data or len(data) % (labels + 3072):
            raise DataError(f"{name}: {len(data)} bytes are not whole records of {labels + 3072}; fetch it again")
        parts.append(np.frombuffer(data, dtype=np.uint8).reshape(-1, labels + 3072))
    if len(parts) != len(files):
        raise DataError(f"{path}: not all of {', '.join(files)} are there")
    train = np.concatenate(parts[:-1])
    test = parts[-1]
    x_train, x_test = (each[:, labels:].reshape(-1, 3, 32, 32) for each in (train, test))
    y_train, y_test = (each[:, labels - 1].astype(np.int64) for each in (train, test))
    return Arrays(x_train, y_train, x_test, y_test, label_names=label_names)


def _cifar_batches(path: Path, files: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for name in files:
            if (path / name).is_file():
                yield str(path / name), read_regular(path / name)
        return
    try:
        with tarfile.open(path) as archive:
            members = {PurePosixPath(member.name).name: member for member in archive if member.isfile()}
            refuse_large(path, 3 * sum(members[name].size for name in files if name in members))
            for name in files:
                if name in members:
                    file = archive.extractfile(members[name])
                else:
                    file = None
                if file is not None:
                    yield f"{path}:{name}", file.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{path}: not a readable archive: {error}; fetch it again") from error


HAR_LABELS = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")


HAR_SIGNALS = ("body_acc", "body_gyro", "total_acc")


def read_har_folder(path: Path, signals: Sequence[str] = ("total_acc",)) -> Arrays:
    """Signals in the unpacked folder 'UCI HAR Dataset': windows (3, 128) of the total acceleration in g, or (9, 128)
    with the body's acceleration in g and angular velocity in rad/s before it, and their persons."""
    p: dict[str, Any] = {}
    for part in ("train", "test"):
        folder = path / part
        files = [folder / "Inertial Signals" / f"{each}_{axis}_{part}.txt" for each in signals for axis in "xyz"]
        axes = [_table(file, np.float32, 2) for file in files]
        if len({each.shape for each in axes}) > 1:
            raise DataError(f"{files[0].parent}: the axes have different numbers of values; unpack it again")
        p[f"x_{part}"] = np.stack(axes, axis=1)
        p[f"y_{part}"] = _table(folder / f"y_{part}.txt", np.int64, 1) - 1
        p[f"subject_{part}"] = _table(folder / f"subject_{part}.txt", np.int64, 1)
    return Arrays(p["x_train"], p["y_train"], p["x_test"], p["y_test"], p["subject_train"], HAR_LABELS)


def _table(file: Path, kind: type[np.generic], axes: Literal[1, 2]) -> NDArray[Any]:
    """The numbers of a text file, one row a line."""
    lines = read_text(file).split("\n")
    try:
        if not any(map(str.strip, lines)):
            raise ValueError("it is empty")
        return np.loadtxt(lines, dtype=kind, ndmin=axes)
    except ValueError as error:
        raise DataError(f"{file}: not a table of the UCI HAR data set: {error}") from None


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
            infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            wanted = {name: infos[name] for name in (*ENTRIES, *SUBJECTS) if name in infos}
            refuse_large(path, 2 * sum(info.file_size for info in wanted.values()))
            counts = {name: _declared(archive, info, f"{path}: {name}") for name, info in wanted.items()}
            for part in ("train", "test"):
                if {f"x_{part}", f"y_{part}"} <= counts.keys():
                    refuse_unequal(str(path), part, counts[f"x_{part}"], counts[f"y_{part}"])
            return arrays_of({name: _npy(archive, info) for name, info in wanted.items()}, str(path))
    except (OSError, EOFError, RuntimeError, ValueError, OverflowError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: not an npz file of plain arrays: {error}") from error


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def _declared(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> int:
    """The length of an array by its header. DataError if it declares anything but what the file has."""
    with archive.open(info) as file:
        try:
            shape, _, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
            size = math.prod(shape) * dtype.itemsize
            held = info.file_size - file.tell()
        except Exception as error:  # numpy evaluates the header, and raises what the parser of Python does
            raise DataError(f"{name} is not a plain array: {type(error).__name__}: {str(error)[:200]}") from None
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are not read; save an array of numbers of one shape")
    if size != held or min(shape, default=0) < 0:
        raise DataError(f"{name} declares {dtype} {shape}, {size:,} bytes, and holds {held:,}; save it again")
    return shape[0] if shape else 0


def _npy(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as file:
        values: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return values


def arrays_of(entries: Mapping[str, Any], path: str) -> Arrays:
    """The data set of named arrays, as in an npz file. ``path`` is their source. Raises DataError."""
    missing = [name for name in ENTRIES if name not in entries]
    if missing:
        raise DataError(f"{path}: no array {missing[0]!r}; it needs x_train, y_train, x_test and y_test")
    samples = {name: channels_first(path, name, entries[name]) for name in ("x_train", "x_test")}
    return with_targets({**entries, **samples}, path)


def with_targets(entries: Mapping[str, Any], path: str, *, normalised: bool = False) -> Arrays:
    """The data set of named arrays whose samples have the form of `Arrays`. Raises DataError."""
    x_train = entries["x_train"]
    x_test = entries["x_test"]
    y_train, y_test = targets_of(x_train, entries["y_train"], x_test, entries["y_test"], path)
    people = whole_numbers({name: np.asarray(entries[name]) for name in SUBJECTS if name in entries}, path)
    subjects = people.get("subject_train")
    test_subjects = people.get("subject_test")
    return Arrays(x_train, y_train, x_test, y_test, subjects, (), test_subjects, normalised)


def targets_of(
    x_train: NDArray[Any],
    y_train: NDArray[Any],
    x_test: NDArray[Any],
    y_test: NDArray[Any],
    path: str,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The targets of the training and of the test part. Raises DataError."""
    if _are_sequences(parts_of(x_train).values(), y_train):
        return _token_labels(path, "y_train", x_train, y_train), _token_labels(path, "y_test", x_test, y_test)
    y = targets({"y_train": y_train, "y_test": y_test}, path)
    return y["y_train"], y["y_test"]


def _are_sequences(parts: Iterable[NDArray[Any]], y: NDArray[Any]) -> bool:
    """Whether each token has a label. A matrix of 0 and 1 with as many columns as there are tokens has."""
    if y.dtype.kind not in "iu" or y.ndim != 2 or y.shape[1] == 1:
        return False
    shapes = [each.shape for each in parts if each.dtype.kind in "iu" and each.dtype != np.uint8]
    return y.shape in shapes or bool(shapes and (y > 1).any())


def _token_labels(path: str, name: str, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.int64]:
    shapes = [each.shape for each in parts_of(x).values() if each.dtype.kind in "iu"]
    if y.shape not in shapes:
        raise DataError(f"{path}: {name} is {y.shape}; it needs one label for each token of {shapes[0]}")
    labels = y.astype(np.int64)
    _tokens(path, name, np.where(labels == IGNORED, 0, labels), f", or {IGNORED} where a label does not count")
    return labels


def channels_first(path: str, name: str, x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype.names:
        return joined(parts_of(x), f"{path}: {name}")
    if x.dtype == np.uint8 and x.ndim == 3:
        return np.ascontiguousarray(x[:, None])
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[3] in CHANNELS:
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[1] in CHANNELS:
        return np.ascontiguousarray(x)
    if x.dtype.kind == "f" and x.ndim in (2, 3):
        if x.ndim == 3:
            channels = x.transpose(0, 2, 1)
        else:
            channels = x
        return np.ascontiguousarray(single_precision(channels, f"{path}: {name}"))
    if x.dtype.kind in "iu" and x.dtype != np.uint8 and x.ndim == 2:
        return _tokens(path, name, x)
    remedy = "; pictures of other types must be scaled to 0..255 first" if x.ndim > 2 else "; write x.astype('float32')"
    raise DataError(
        f"{path}: {name} is {x.dtype} {x.shape}; take uint8 (N, H, W), (N, H, W, C) or (N, C, H, W) for pictures, "
        f"floats (N, T, C) for sequences or (N, F) for features{remedy if x.dtype.kind in 'biuf' else ''}"
    )


def _tokens(path: str, name: str, x: NDArray[Any], others: str = "") -> NDArray[np.int32]:
    """Integers from 0 up, as tokens. Raises DataError, which says what ``others`` are allowed."""
    if x.dtype.kind not in "iu" or (x.size and not 0 <= int(x.min()) <= int(x.max()) <= np.iinfo(TOKEN).max):
        raise DataError(f"{path}: {name} must hold whole numbers from 0 to {np.iinfo(TOKEN).max} as tokens{others}")
    return np.ascontiguousarray(x, dtype=TOKEN)
