"""Readers of data set files: IDX, CIFAR-10's binary version, pictures in class folders, UCI HAR, npz.

Every reader returns `Arrays`: samples channels first, uint8 (pictures) or float32 (anything else), labels from 0 up.
No reader unpickles. Readers raise DataError naming the file and its fault.
"""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.learning.errors import DataError

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
PICTURES = {".jpg", ".jpeg", ".png", ".bmp"}


@dataclass(frozen=True)
class Arrays:
    """A data set in memory: x (N, *shape), y (N,) int64, and the person of each training and each test sample if known.
    ``normalised``: the model gets the samples as they are."""

    x_train: NDArray[Any]
    y_train: NDArray[np.int64]
    x_test: NDArray[Any]
    y_test: NDArray[np.int64]
    subjects: NDArray[np.int64] | None = None
    label_names: tuple[str, ...] = ()
    test_subjects: NDArray[np.int64] | None = None
    normalised: bool = False


def read_digits() -> Arrays:
    """scikit-learn's 1,797 digits, split 1,437 to 360 with every digit in proportion. The split is fixed."""
    from sklearn.datasets import load_digits

    from node.learning.partition import take_in_proportion

    bunch = load_digits()
    x = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    y = bunch.target.astype(np.int64)
    test = np.zeros(len(y), dtype=bool)
    test[take_in_proportion(y, 360, np.random.default_rng(0))] = True
    return Arrays(x[~test], y[~test], x[test], y[test])


def idx_paths(folder: Path) -> list[Path] | None:
    """The four IDX files of MNIST or Fashion-MNIST in `folder`, gzipped or plain, or None if one is missing."""
    found = []
    for name in IDX_FILES:
        spellings = (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz")
        path = next((folder / spelling for spelling in spellings if (folder / spelling).is_file()), None)
        if path is None:
            return None
        found.append(path)
    return found


def read_idx_folder(folder: Path) -> Arrays:
    """MNIST or Fashion-MNIST from the four files that `idx_paths` finds."""
    paths = idx_paths(folder)
    if paths is None:
        raise DataError(f"{folder}: not all of {', '.join(IDX_FILES)} (or .gz) are there")
    x_train, y_train, x_test, y_test = (read_idx(path) for path in paths)
    return Arrays(x_train[:, None], y_train.astype(np.int64), x_test[:, None], y_test.astype(np.int64))


def read_idx(path: Path) -> NDArray[np.uint8]:
    """One IDX file of unsigned bytes (http://yann.lecun.com/exdb/mnist): two zero bytes, type 8, the number of axes,
    each axis as a big-endian 32-bit number, then the bytes."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        magic, axes = data[:3], data[3]
        shape = struct.unpack_from(f">{axes}I", data, 4)
        values = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes)
    except (OSError, EOFError, IndexError, struct.error, ValueError) as error:
        raise DataError(f"{path}: not an IDX file: {error}") from error
    if magic != b"\0\0\x08" or len(values) != np.prod(shape):
        raise DataError(f"{path}: not a complete IDX file of unsigned bytes; fetch it again")
    return values.reshape(shape)


CIFAR10_LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")


def read_cifar10(path: Path) -> Arrays:
    """CIFAR-10's binary version, a folder or `cifar-10-binary.tar.gz`: records of a label byte and 3x32x32 bytes."""
    parts = [_cifar10_records(name, data) for name, data in _cifar10_batches(path)]
    if len(parts) != len(CIFAR10_FILES):
        raise DataError(f"{path}: not all of {', '.join(CIFAR10_FILES)} are there")
    records = np.concatenate(parts[:-1])
    return Arrays(*_cifar10_split(records), *_cifar10_split(parts[-1]), label_names=CIFAR10_LABELS)


def _cifar10_batches(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for name in CIFAR10_FILES:
            if (path / name).is_file():
                yield str(path / name), (path / name).read_bytes()
        return
    try:
        with tarfile.open(path) as archive:
            members = {PurePosixPath(member.name).name: member for member in archive if member.isfile()}
            for name in CIFAR10_FILES:
                file = archive.extractfile(members[name]) if name in members else None
                if file is not None:
                    yield f"{path}:{name}", file.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"{path}: not a readable archive: {error}; fetch it again") from error


def _cifar10_records(name: str, data: bytes) -> NDArray[np.uint8]:
    if not data or len(data) % 3073:
        raise DataError(f"{name}: {len(data)} bytes are not whole records of 3073; fetch it again")
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, 3073)


def _cifar10_split(records: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def read_pictures(path: Path) -> Arrays:
    """Pictures named {train,test}/<class>/<file>, in a folder or a zip. Classes are numbered in order of their names.

    All pictures must have one size. The first one sets the mode: one channel if it is grey (mode L), else three.
    """
    if path.is_dir():
        files = [file.relative_to(path) for file in sorted(path.rglob("*"))]
        return _read_pictures(path, [file.as_posix() for file in files], lambda name: (path / name).read_bytes())
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_pictures(path, sorted(archive.namelist()), archive.read)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable zip: {error}") from error


def _read_pictures(path: Path, names: Iterable[str], read: Callable[[str], bytes]) -> Arrays:
    found: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
    for name in names:
        parts = PurePosixPath(name).parts
        if len(parts) >= 3 and parts[-3] in found and PurePosixPath(name).suffix.lower() in PICTURES:
            found[parts[-3]].append((parts[-2], name))
    classes = sorted({label for label, _ in found["train"]})
    strangers = sorted({label for label, _ in found["test"]} - set(classes))
    if len(classes) < 2 or not found["test"] or strangers:
        reason = f"test class {strangers[0]!r} is not in train" if strangers else "it needs two classes and a test part"
        raise DataError(f"{path}: pictures must be named train/<class>/<file> and test/<class>/<file>: {reason}")
    shape: list[tuple[str, tuple[int, int]]] = []
    x = {part: np.stack([_picture(path, name, read(name), shape) for _, name in found[part]]) for part in found}
    y = {part: np.array([classes.index(label) for label, _ in found[part]], dtype=np.int64) for part in found}
    return Arrays(x["train"], y["train"], x["test"], y["test"], label_names=tuple(classes))


def _picture(path: Path, name: str, data: bytes, shape: list[tuple[str, tuple[int, int]]]) -> NDArray[np.uint8]:
    """Decode one picture. The first one sets mode and size for all, which `shape` keeps."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as image:
            if not shape:
                shape.append(("L" if image.mode == "L" else "RGB", image.size))
            mode, size = shape[0]
            if image.size != size:
                raise DataError(
                    f"{path}: {name} is {image.size[0]}x{image.size[1]}, the first picture "
                    f"{size[0]}x{size[1]}; bring all to one size"
                )
            pixels = np.asarray(image.convert(mode))
    except (OSError, UnidentifiedImageError) as error:
        raise DataError(f"{path}: {name} is not a readable picture: {error}") from error
    return pixels[None] if mode == "L" else np.ascontiguousarray(pixels.transpose(2, 0, 1))


HAR_LABELS = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")


def read_har_folder(path: Path) -> Arrays:
    """The total acceleration in the unpacked folder 'UCI HAR Dataset': windows (3, 128) in g, and their persons."""
    p: dict[str, Any] = {}
    for part in ("train", "test"):
        folder = path / part
        try:
            axes = [
                np.loadtxt(folder / "Inertial Signals" / f"total_acc_{axis}_{part}.txt", dtype=np.float32, ndmin=2)
                for axis in "xyz"
            ]
            p[f"x_{part}"] = np.stack(axes, axis=1)
            p[f"y_{part}"] = np.loadtxt(folder / f"y_{part}.txt", dtype=np.int64, ndmin=1) - 1
            p[f"subject_{part}"] = np.loadtxt(folder / f"subject_{part}.txt", dtype=np.int64, ndmin=1)
        except (OSError, ValueError) as error:
            raise DataError(f"{folder}: not the UCI HAR data set: {error}") from error
    return Arrays(p["x_train"], p["y_train"], p["x_test"], p["y_test"], p["subject_train"], HAR_LABELS)


def read_npz(path: Path) -> Arrays:
    """An npz file of x_train, y_train, x_test, y_test and, if known, subject_train and subject_test.

    x is (N, H, W) or (N, H, W, C) uint8 for pictures, (N, T, C) floats for sequences, (N, F) floats for features.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return arrays_of({name: file[name] for name in file.files}, str(path))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not an npz file of plain arrays: {error}") from error


def arrays_of(entries: Mapping[str, Any], path: str) -> Arrays:
    """The data set of named arrays, as in an npz file. ``path`` is their source. Raises DataError."""
    missing = [name for name in ("x_train", "y_train", "x_test", "y_test") if name not in entries]
    if missing:
        raise DataError(f"{path}: no array {missing[0]!r}; it needs x_train, y_train, x_test and y_test")
    names = ("y_train", "y_test", "subject_train", "subject_test")
    labels = whole_numbers({name: entries[name] for name in names if name in entries}, path)
    x_train, x_test = (_channels_first(path, name, entries[name]) for name in ("x_train", "x_test"))
    return Arrays(
        x_train,
        labels["y_train"],
        x_test,
        labels["y_test"],
        labels.get("subject_train"),
        test_subjects=labels.get("subject_test"),
    )


def whole_numbers(entries: Mapping[str, NDArray[Any]], path: str) -> dict[str, NDArray[np.int64]]:
    """The arrays as int64. Raises DataError if one is not one axis of whole numbers."""
    for name, values in entries.items():
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise DataError(f"{path}: {name} must be one axis of whole numbers, not {values.dtype} {values.shape}")
    return {name: values.astype(np.int64) for name, values in entries.items()}


def _channels_first(path: str, name: str, x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype == np.uint8 and x.ndim == 3:
        return np.ascontiguousarray(x[:, None])
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[3] in (1, 3, 4):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    if x.dtype.kind == "f" and x.ndim == 3:
        return np.ascontiguousarray(x.transpose(0, 2, 1), dtype=np.float32)
    if x.dtype.kind == "f" and x.ndim == 2:
        return np.ascontiguousarray(x, dtype=np.float32)
    raise DataError(
        f"{path}: {name} is {x.dtype} {x.shape}; take uint8 (N, H, W) or (N, H, W, C) for pictures, "
        "floats (N, T, C) for sequences or (N, F) for features"
    )
