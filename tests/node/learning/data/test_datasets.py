from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from node.catalogue.datasets import Dataset
from node.learning.data import formats
from node.learning.data.datasets import Prepared, open_prepared, prepare
from node.learning.errors import DataError, DataNotFound
from tests.node.learning.data.test_formats import write_idx_folder


def npz(path: Path, **changes: Any) -> Path:
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "x_train": random.integers(0, 256, (40, 6, 5, 3), dtype=np.uint8),
        "y_train": np.arange(40) % 4,
        "x_test": random.integers(0, 256, (8, 6, 5, 3), dtype=np.uint8),
        "y_test": np.arange(8) % 4,
    } | changes
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return path


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEBED_DATA", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_digits_come_with_edgebed(digits: Prepared) -> None:
    assert (digits.shape, digits.classes) == ((1, 8, 8), 10)
    assert (len(digits.train_labels), len(digits.test_labels)) == (1437, 360)
    assert digits.array("x_train").dtype == np.uint8
    # 360 of the 1,797 digits: 35.65 of the 178 zeros are 36 or 35, and so on for each digit.
    both = np.bincount(digits.train_labels) + np.bincount(digits.test_labels)
    assert (np.abs(np.bincount(digits.test_labels) - both * 360 / 1797) < 1).all()
    assert digits.subjects is None


def test_a_second_call_reads_nothing(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"npz:{npz(tmp_path / 'Own data.npz')}"
    first = prepare(name, cache)
    assert first.directory.name.startswith("own-data-")
    monkeypatch.setattr(formats, "read_npz", None)
    assert prepare(name, cache) == first


def test_a_changed_file_is_another_data_set(cache: Path, tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz")
    first = prepare(f"npz:{path}", cache)
    npz(path, y_train=np.arange(40) % 3)
    second = prepare(f"npz:{path}", cache)
    assert first.directory != second.directory
    assert first.sha256 != second.sha256


def test_a_file_that_changes_without_its_size_and_time_is_another_data_set(cache: Path, tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz")
    first, times = prepare(f"npz:{path}", cache), path.stat()
    npz(path, y_train=np.arange(40)[::-1] % 4)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    assert prepare(f"npz:{path}", cache).train_labels.tolist() == list(np.arange(40)[::-1] % 4)
    npz(path)
    os.utime(path, (1, 1))
    assert prepare(f"npz:{path}", cache) == first


ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
SETTINGS = [  # of two processes
    {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1", "UMASK": "022"},
    {"TZ": "Asia/Kathmandu", **ASCII, "PYTHONHASHSEED": "2", "UMASK": "077"},
]
PREPARE = """
import os, stat, sys
from pathlib import Path
os.umask(int(os.environ.get("UMASK", "022"), 8))
from node.learning.data.datasets import prepare
data = prepare("images:set", Path(sys.argv[1]), [Path(".")], download=False)
modes = {oct(stat.S_IMODE(path.stat().st_mode)) for path in data.directory.iterdir()}
print(data.directory.name, data.sha256, ascii(data.label_names), *modes)
"""


def test_a_prepared_data_set_does_not_depend_on_settings_of_the_host(tmp_path: Path) -> None:
    """Name, hash, class names and modes of the files, which other users' nodes read. Files are made in two orders."""
    found = set()
    for index, environment in enumerate(SETTINGS):
        place = tmp_path / "set"
        for name in ("train/\u00e9/1.png", "train/z/1.png", "test/z/1.png")[:: 1 - 2 * index]:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (2, 2), len(name)).save(place / name)
        argv = [sys.executable, "-c", PREPARE, str(tmp_path / f"cache{index}")]
        variables = {**os.environ, **environment}
        found.add(subprocess.run(argv, cwd=tmp_path, env=variables, check=True, capture_output=True).stdout)
        shutil.rmtree(place)
    assert len(found) == 1
    assert found.pop().split()[2:] == [b"('z',", b"'\\xe9')", b"0o644"]


def test_normalisation_is_of_the_training_part(cache: Path, tmp_path: Path) -> None:
    prepared = prepare(f"npz:{npz(tmp_path / 'a.npz')}", cache)
    x = prepared.array("x_train") / 255
    assert x.shape == (40, 3, 6, 5)  # channels first
    assert prepared.mean == pytest.approx(x.mean(axis=(0, 2, 3)))
    assert prepared.std == pytest.approx(x.std(axis=(0, 2, 3)))


def test_sequences_are_not_scaled_and_a_constant_channel_keeps_its_size(cache: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(5, 2, (40, 16, 2))
    x[:, :, 1] = 3
    people = {"subject_train": np.arange(40) // 10, "subject_test": np.arange(8) // 2}
    path = npz(tmp_path / "a.npz", x_train=x, x_test=x[:8], **people)
    prepared = prepare(f"npz:{path}", cache)
    assert prepared.shape == (2, 16)
    assert prepared.mean == pytest.approx([x[:, :, 0].mean(), 3], rel=1e-6)
    assert prepared.std == pytest.approx([x[:, :, 0].std(), 1], rel=1e-6)
    assert prepared.subjects is not None
    assert prepared.subjects.tolist() == [0] * 10 + [1] * 10 + [2] * 10 + [3] * 10
    assert prepared.test_subjects is not None
    assert prepared.test_subjects.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("unit", [5e-7, 1e-12, 1e9])
def test_the_unit_does_not_count(unit: float, cache: Path, tmp_path: Path) -> None:
    """Volts, tesla and whatever else: the model gets the same numbers."""
    x = np.random.default_rng(0).normal(5, 2, (40, 16, 2))
    one, other = (
        prepare(f"npz:{npz(tmp_path / f'{scale}.npz', x_train=x * scale, x_test=x[:8] * scale)}", cache)
        for scale in (1.0, unit)
    )
    assert other.mean == pytest.approx(np.array(one.mean) * unit, rel=1e-6)
    assert other.std == pytest.approx(np.array(one.std) * unit, rel=1e-6)


def test_rounding_is_no_variation_and_a_small_variation_is_none_of_rounding(cache: Path, tmp_path: Path) -> None:
    """0.1 + 0.2 is 0.30000000000000004. Air pressure in pascal varies by a thousandth of itself."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    x[:, 0] = np.where(np.arange(40) % 2, 0.3, np.float32(0.3) + np.spacing(np.float32(0.3)))
    x[:, 1] = 1e-13 * (1 + np.spacing(1.0) * (np.arange(40) % 2))
    x[:, 2] = 101325 + 100 * x[:, 2]
    prepared = prepare(f"npz:{npz(tmp_path / 'a.npz', x_train=x, x_test=x[:8])}", cache)
    assert prepared.std == pytest.approx([1, 1, x[:, 2].std()], rel=1e-3)


def test_what_single_precision_cannot_hold_is_refused(cache: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    for unit, message in (
        (1e-60, "x_train holds numbers below 1e-45 only"),
        (1e-40, "channel . of the samples varies"),
    ):
        path = npz(tmp_path / f"{unit}.npz", x_train=x * unit, x_test=x[:8] * unit)
        with pytest.raises(DataError, match=f"{message}.*write them in a smaller unit"):
            prepare(f"npz:{path}", cache)


def test_sequences_without_a_label_that_counts_are_left_out(cache: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 7, (10, 4))
    y = np.where(np.arange(10)[:, None] % 5 == 3, -100, np.where(np.arange(4) < 2, x, -100))
    people = {"subject_train": np.arange(10), "subject_test": np.arange(10)}
    path = npz(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y, **people)
    prepared = prepare(f"npz:{path}", cache)
    kept = [0, 1, 2, 4, 5, 6, 7, 9]
    assert prepared.unlabelled == 4
    assert prepared.array("x_train").tolist() == x[kept].tolist()
    assert prepared.array("y_test").tolist() == y[kept].tolist()
    assert prepared.subjects is not None
    assert prepared.subjects.tolist() == kept
    assert prepared.train_labels.tolist() == x[kept, 1].tolist()  # the last label that counts
    nothing = npz(tmp_path / "b.npz", x_train=x, y_train=y, x_test=x, y_test=np.full((10, 4), -100))
    with pytest.raises(DataError, match=r"labels.*test part are -100"):
        prepare(f"npz:{nothing}", cache)
    y[0, 0] = -1
    wrong = npz(tmp_path / "c.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(DataError, match="tokens, or -100 where a label"):
        prepare(f"npz:{wrong}", cache)


def test_samples_without_a_label_that_counts_are_left_out(cache: Path, tmp_path: Path) -> None:
    """Of one label for each sample; of several labels none can be ignored alone."""
    x = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    y = np.where(np.arange(10) % 5 == 3, -100, np.arange(10) % 2)
    people = {"subject_train": np.arange(10), "subject_test": np.arange(10)}
    prepared = prepare(f"npz:{npz(tmp_path / 'a.npz', x_train=x, y_train=y, x_test=x, y_test=y, **people)}", cache)
    kept = [0, 1, 2, 4, 5, 6, 7, 9]
    assert prepared.unlabelled == 4
    assert prepared.array("x_test").tolist() == x[kept].tolist()
    assert prepared.train_labels.tolist() == y[kept].tolist()
    assert prepared.test_subjects is not None
    assert prepared.test_subjects.tolist() == kept
    several = np.stack([y % 2, np.where(y == -100, -100, 1)], axis=1)
    path = npz(tmp_path / "b.npz", x_train=x, y_train=several, x_test=x, y_test=several)
    with pytest.raises(DataError, match=r"y_train\[3\].*label -100"):
        prepare(f"npz:{path}", cache)


def test_runs_that_prepare_at_once_agree(cache: Path, tmp_path: Path) -> None:
    name = f"npz:{npz(tmp_path / 'a.npz')}"
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: prepare(name, cache), range(8)))
    assert len(set(results)) == 1
    assert [entry.name for entry in cache.iterdir()] == [results[0].directory.name]


def test_idx_files_by_name_of_the_folder_or_by_the_scenario(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fashion = write_idx_folder(tmp_path / "fashion-mnist", side=28, classes=10)
    assert prepare("fashion-mnist", cache, [tmp_path]).source == str(fashion)
    assert prepare("fashion-mnist", cache, [fashion]).source == str(fashion)
    monkeypatch.setenv("EDGEBED_DATA", f"/nowhere:{tmp_path}")
    assert prepare("fashion-mnist", cache).source == str(fashion)
    with pytest.raises(DataNotFound):  # its files are named alike, but the folder is Fashion-MNIST's
        prepare("mnist", cache, download=False)


def test_not_found_says_where_it_looked_and_what_to_do(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEBED_DATA", "/some/data")
    with pytest.raises(DataNotFound) as error:
        prepare("cifar10", cache, [tmp_path / "mine"], download=False)
    message = str(error.value)
    assert "binary version" in message
    for place in (str(tmp_path / "mine"), "/some/data", "/usr/share/datasets", "cifar10.zip"):
        assert place in message


def test_unknown_names(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match=r"no data set 'minst'.*npz:PATH"):
        prepare("minst", cache)
    with pytest.raises(DataNotFound, match=r"no file at /no/such\.npz"):
        prepare("npz:/no/such.npz", cache)
    with pytest.raises(DataNotFound, match=r"no file at .*/~nobody-here/a\.npz"):
        prepare("npz:~nobody-here/a.npz", cache)


def test_a_place_where_this_user_cannot_look_has_no_data(cache: Path) -> None:
    """The kernel refuses a name of 300 characters, also to root, as it refuses ordinary users a folder of others."""
    place = Path("/") / ("a" * 300)
    with pytest.raises(DataNotFound, match=f"no file at {place}"):
        prepare(f"npz:{place}", cache)
    with pytest.raises(DataNotFound, match=f"in: {place}"):
        prepare("mnist", cache, [place], download=False)


def test_a_named_data_set_has_no_labels_below_0(cache: Path, tmp_path: Path) -> None:
    x, y = np.zeros((12, 128, 3)), np.arange(12) % 6
    path = npz(tmp_path / "har.npz", x_train=x, y_train=np.append(y[:-1], -1), x_test=x, y_test=y)
    with pytest.raises(DataError, match=r"label -1 at y_train\[11\]"):
        prepare("har", cache, [path])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"x_train": np.array([[0.0, 1.0]] * 30 + [[np.nan, 1.0]] * 10), "x_test": np.zeros((8, 2))},
            r"10 of .* 40 .* x_train\[30\]",
        ),
        (
            {"x_train": np.zeros((40, 2)), "x_test": np.array([[0.0, -np.inf]] * 8)},
            r"8 of .* 8 .* x_test\[0\]",
        ),
        ({"subject_train": np.arange(3)}, "3 subjects for 40 train samples"),
        ({"subject_test": np.arange(3)}, "3 subjects for 8 test samples"),
    ],
)
def test_arrays_that_do_not_fit(cache: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        prepare(f"npz:{npz(tmp_path / 'a.npz', **changes)}", cache)


def test_open_refuses_other_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a prepared data set"):
        open_prepared(tmp_path)
    (tmp_path / "meta.json").write_text(json.dumps({"name": "x"}))
    with pytest.raises(DataError, match="not a prepared data set"):
        open_prepared(tmp_path)


def test_the_floats_of_map_style_data_sets_are_not_normalised(cache: Path) -> None:
    x, y = np.random.default_rng(0).normal(3, 2, (20, 5)).astype(np.float32), np.arange(20) % 2
    samples = list(zip(x, y, strict=True))
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    pairs = {"mine": Dataset("mine", where="mine.py", read=lambda: (samples, samples))}
    given = prepare("mine", cache, known=pairs)
    assert (given.shape, given.classes, given.mean, given.std) == ((5,), 2, (0.0,) * 5, (1.0,) * 5)
    np.testing.assert_array_equal(given.array("x_train"), x)
    assert prepare("mine", cache, known=pairs) == given
    named = {"mine": Dataset("mine", where="mine.py", read=lambda: arrays)}
    other = prepare("mine", cache, known=named)
    assert other.mean == pytest.approx(x.mean(axis=0), rel=1e-5)
    assert other.sha256 != given.sha256


def test_a_mistake_in_a_plug_ins_data_names_the_plug_in(cache: Path) -> None:
    samples = [(np.zeros(3), 0), (np.zeros(4), 1)]
    known = {"mine": Dataset("mine", where="mine.py", read=lambda: (samples, samples))}
    with pytest.raises(DataError, match=r"^data set mine \(mine.py\): train\[1\]"):
        prepare("mine", cache, known=known)


@pytest.mark.parametrize("length", [2**62, 10**30])
def test_an_empty_array_with_an_axis_beyond_any_memory(cache: Path, tmp_path: Path, length: int) -> None:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': (8, 0, {length})}}\n".encode()
    with zipfile.ZipFile(npz(tmp_path / "a.npz", x_test=None), "a") as archive:
        archive.writestr("x_test.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    with pytest.raises(DataError, match="not an npz file of plain"):
        prepare(f"npz:{tmp_path / 'a.npz'}", cache)
