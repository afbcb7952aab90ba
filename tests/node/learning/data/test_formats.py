from __future__ import annotations

import gzip
import struct
import tarfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from node.catalogue.datasets import DATASETS
from node.learning.data import formats
from node.learning.data.datasets import prepare


def idx(values: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """The IDX form of some bytes, written from its description."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.tobytes()


def write_idx_folder(folder: Path, side: int, classes: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for part, count in (("train", 30), ("t10k", 20)):
        images = random.integers(0, 256, (count, side, side), dtype=np.uint8)
        labels = (np.arange(count) % classes).astype(np.uint8)
        for name, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(values)))
    return folder


def test_the_digits() -> None:
    """The figures are those of scikit-learn 1.9.1's `load_digits()`, to whose arrays the file is equal; the counts are
    also those of UCI's optdigits.names. The folder `digits` has the source and licences."""
    table = np.loadtxt(Path(formats.__file__).with_name("digits") / "digits.csv.gz", delimiter=",", dtype=np.uint8)
    assert (table.shape, table[:, :-1].max(), int(table[:, :-1].sum())) == ((1797, 65), 16, 561_718)
    assert np.bincount(table[:, -1]).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert table[0, :16].tolist() == [0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0]
    assert (table[0, -1], table[-1, -1]) == (0, 8)
    digits = formats.read_digits()
    assert (digits.x_train.shape, digits.x_test.shape) == ((1437, 1, 8, 8), (360, 1, 8, 8))
    x = np.concatenate([digits.x_train, digits.x_test])
    assert x.dtype == np.uint8
    assert int(np.rint(x * (16 / 255)).sum()) == 561_718
    assert digits.x_train[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]  # 255/16 times 0, 0, 5, 13, 9, 1, 0, 0


def cifar_batch(count: int, seed: int, coarse: bytes = b"") -> tuple[bytes, list[int]]:
    random = np.random.default_rng(seed)
    labels = [int(label) for label in random.integers(0, 10, count)]
    return b"".join(coarse + bytes([label]) + random.bytes(3072) for label in labels), labels


@pytest.mark.parametrize(
    ("read", "files", "coarse"),
    [
        (formats.read_cifar10, formats.CIFAR10_FILES, b""),
        (formats.read_cifar100, formats.CIFAR100_FILES, b"\x13"),  # a label of 20 before that of 100
    ],
)
def test_cifar_folder_and_archive(
    tmp_path: Path, read: Callable[[Path], formats.Arrays], files: Sequence[str], coarse: bytes
) -> None:
    folder = tmp_path / "binary"
    folder.mkdir()
    batches = {name: cifar_batch(3, seed, coarse) for seed, name in enumerate(files)}
    for name, (data, _) in batches.items():
        (folder / name).write_bytes(data)
    archive = tmp_path / "binary.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    for source in (folder, archive):
        arrays = read(source)
        assert arrays.x_train.shape == (3 * (len(files) - 1), 3, 32, 32)
        assert arrays.y_train[:3].tolist() == batches[files[0]][1]
        assert arrays.y_test.tolist() == batches[files[-1]][1]
        # The first record's first 1,024 bytes after the labels are the red channel, row by row.
        start = len(coarse) + 1
        assert arrays.x_train[0, 0].tobytes() == batches[files[0]][0][start : start + 1024]


@pytest.mark.parametrize(("split", "first"), [("letters", 1), ("balanced", 0)])
def test_emnist(tmp_path: Path, split: str, first: int) -> None:
    classes = DATASETS[f"emnist-{split}"].classes
    images = np.random.default_rng(1).integers(0, 256, (2 * classes, 28, 28), dtype=np.uint8)
    labels = (np.arange(2 * classes) % classes + first).astype(np.uint8)
    for part in ("train", "test"):
        (tmp_path / f"emnist-{split}-{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"emnist-{split}-{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    prepared = prepare(f"emnist-{split}", tmp_path / "cache", [tmp_path])
    assert (prepared.shape, prepared.classes) == ((1, 28, 28), classes)
    assert prepared.train_labels.tolist() == [*range(classes), *range(classes)]
    np.testing.assert_array_equal(prepared.array("x_test")[:, 0], images.transpose(0, 2, 1))  # EMNIST's are transposed


def test_har_folder(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    windows = {}
    for part, count in (("train", 4), ("test", 2)):
        (tmp_path / part / "Inertial Signals").mkdir(parents=True)
        for signal, axis in product(formats.HAR_SIGNALS, "xyz"):
            values = random.normal(size=(count, 128)).astype(np.float32)
            np.savetxt(tmp_path / part / "Inertial Signals" / f"{signal}_{axis}_{part}.txt", values)
            windows[part, f"{signal}_{axis}"] = values
        np.savetxt(tmp_path / part / f"y_{part}.txt", np.arange(count) + 1, fmt="%d")
        np.savetxt(tmp_path / part / f"subject_{part}.txt", np.full(count, 7), fmt="%d")
    arrays = formats.read_har_folder(tmp_path)
    assert arrays.x_train.shape == (4, 3, 128)
    np.testing.assert_allclose(arrays.x_test[:, 1], windows["test", "total_acc_y"])
    nine = formats.read_har_folder(tmp_path, formats.HAR_SIGNALS)
    assert nine.x_train.shape == (4, 9, 128)
    np.testing.assert_allclose(nine.x_test[:, 3], windows["test", "body_gyro_x"])
    np.testing.assert_allclose(nine.x_test[:, 6:], arrays.x_test)
    assert arrays.y_train.tolist() == [0, 1, 2, 3]
    assert arrays.subjects is not None
    assert arrays.subjects.tolist() == [7, 7, 7, 7]
