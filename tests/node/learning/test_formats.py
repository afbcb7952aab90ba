from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from node.learning import formats
from node.learning.errors import DataError


def idx(values: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """The IDX form of some bytes, written from its description."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.tobytes()


def write_idx_folder(folder: Path, side: int, classes: int, compress: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for part, count in (("train", 30), ("t10k", 20)):
        images = random.integers(0, 256, (count, side, side), dtype=np.uint8)
        labels = (np.arange(count) % classes).astype(np.uint8)
        for name, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            data = idx(values)
            (folder / (name + ".gz" * compress)).write_bytes(gzip.compress(data) if compress else data)
    return folder


@pytest.mark.parametrize("compress", [True, False])
def test_idx(tmp_path: Path, compress: bool) -> None:
    arrays = formats.read_idx_folder(write_idx_folder(tmp_path, side=4, classes=3, compress=compress))
    assert arrays.x_train.shape == (30, 1, 4, 4)
    assert arrays.y_test.tolist() == [i % 3 for i in range(20)]


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\x08", idx(np.zeros(5, np.uint8))[:-1], b"\0\0\x0d" + idx(np.zeros(5, np.uint8))[3:]]
)
def test_broken_idx(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "labels"
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"{path}: not "):
        formats.read_idx(path)


def test_broken_gzip(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(idx(np.zeros(500, np.uint8)))[:20])
    with pytest.raises(DataError, match="not an IDX file"):
        formats.read_idx(path)


def cifar_batch(count: int, seed: int) -> tuple[bytes, list[int]]:
    random = np.random.default_rng(seed)
    labels = [int(label) for label in random.integers(0, 10, count)]
    return b"".join(bytes([label]) + random.bytes(3072) for label in labels), labels


def test_cifar10_folder_and_archive(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    batches = {name: cifar_batch(3, seed) for seed, name in enumerate(formats.CIFAR10_FILES)}
    for name, (data, _) in batches.items():
        (folder / name).write_bytes(data)
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    for source in (folder, archive):
        arrays = formats.read_cifar10(source)
        assert arrays.x_train.shape == (15, 3, 32, 32)
        assert arrays.y_test.tolist() == batches["test_batch.bin"][1]
        # The first record's first 1,024 bytes after the label are the red channel, row by row.
        assert arrays.x_train[0, 0].tobytes() == batches["data_batch_1.bin"][0][1:1025]
    (folder / "data_batch_3.bin").write_bytes(b"12")
    with pytest.raises(DataError, match=r"data_batch_3\.bin: 2 bytes are not whole records"):
        formats.read_cifar10(folder)
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match="not all of"):
        formats.read_cifar10(folder)
    archive.write_bytes(b"nothing")
    with pytest.raises(DataError, match="not a readable archive"):
        formats.read_cifar10(archive)


def picture(colour: int | tuple[int, int, int], size: tuple[int, int] = (5, 4)) -> bytes:
    file = io.BytesIO()
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(file, "PNG")
    return file.getvalue()


def write_pictures(path: Path, pictures: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in pictures.items():
                archive.writestr(name, data)
    else:
        for name, data in pictures.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["pictures.zip", "pictures"])
def test_pictures(tmp_path: Path, name: str) -> None:
    pictures = {
        "set/train/dog/1.png": picture((1, 2, 3)),
        "set/train/cat/1.png": picture((4, 5, 6)),
        "set/test/dog/9.png": picture((7, 8, 9)),
        "set/train/cat/readme.txt": b"no picture",
    }
    path = write_pictures(tmp_path / name, pictures)
    arrays = formats.read_pictures(path)
    assert arrays.label_names == ("cat", "dog")
    assert arrays.x_train.shape == (2, 3, 4, 5)  # height 4, width 5
    assert arrays.x_train[:, :, 0, 0].tolist() == [[4, 5, 6], [1, 2, 3]]
    assert (arrays.y_train.tolist(), arrays.y_test.tolist()) == ([0, 1], [1])


def test_grey_pictures_have_one_channel(tmp_path: Path) -> None:
    names = ("train/a/1.png", "train/b/1.png", "test/a/1.png")
    arrays = formats.read_pictures(write_pictures(tmp_path, dict.fromkeys(names, picture(9))))
    assert arrays.x_test.shape == (1, 1, 4, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test/b/1.png": picture(9, size=(6, 4))}, "test/b/1.png is 6x4, the first picture 5x4"),
        ({"test/c/1.png": picture(9)}, "test class 'c' is not in train"),
        ({"train/b/1.png": b"broken"}, "train/b/1.png is not a readable picture"),
    ],
)
def test_pictures_that_do_not_fit(tmp_path: Path, change: dict[str, bytes], message: str) -> None:
    names = ("train/a/1.png", "train/b/1.png", "test/a/1.png")
    with pytest.raises(DataError, match=message):
        formats.read_pictures(write_pictures(tmp_path, dict.fromkeys(names, picture(9)) | change))


def test_no_pictures(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="needs two classes and a test part"):
        formats.read_pictures(write_pictures(tmp_path, {"train/a/1.png": picture(9)}))
    (tmp_path / "a.zip").write_bytes(b"no zip")
    with pytest.raises(DataError, match="not a readable zip"):
        formats.read_pictures(tmp_path / "a.zip")


def test_har_folder(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    windows = {}
    for part, count in (("train", 4), ("test", 2)):
        (tmp_path / part / "Inertial Signals").mkdir(parents=True)
        for axis in "xyz":
            windows[part, axis] = random.normal(size=(count, 128)).astype(np.float32)
            np.savetxt(tmp_path / part / "Inertial Signals" / f"total_acc_{axis}_{part}.txt", windows[part, axis])
        np.savetxt(tmp_path / part / f"y_{part}.txt", np.arange(count) + 1, fmt="%d")
        np.savetxt(tmp_path / part / f"subject_{part}.txt", np.full(count, 7), fmt="%d")
    arrays = formats.read_har_folder(tmp_path)
    assert arrays.x_train.shape == (4, 3, 128)
    np.testing.assert_allclose(arrays.x_test[:, 1], windows["test", "y"])
    assert arrays.y_train.tolist() == [0, 1, 2, 3]
    assert arrays.subjects is not None
    assert arrays.subjects.tolist() == [7, 7, 7, 7]
    (tmp_path / "test" / "y_test.txt").unlink()
    with pytest.raises(DataError, match="not the UCI HAR data set"):
        formats.read_har_folder(tmp_path)
