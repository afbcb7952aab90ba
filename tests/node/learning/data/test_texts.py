"""Texts of authors as sequences of characters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from node.learning.data.datasets import prepare
from node.learning.data.texts import WINDOW, read_texts
from node.learning.errors import DataError


def write(folder: Path) -> None:
    """Two authors: one file, and a folder of two files. Of 5 and 10 windows."""
    (folder / "bea").mkdir(parents=True)
    (folder / "adam.txt").write_text("ab" * (5 * WINDOW // 2) + "c")
    (folder / "bea" / "1.txt").write_text("d" * (6 * WINDOW))
    (folder / "bea" / "2.txt").write_text("é" * (4 * WINDOW) + "d")
    for stray in (".git", "README.md", "Thumbs.db", "bea/.DS_Store"):
        (folder / stray).write_bytes(b"\0hidden")


def test_windows_and_the_characters_after_them(tmp_path: Path) -> None:
    write(tmp_path / "texts")
    found = read_texts(tmp_path / "texts")
    assert (found.x_train.shape, found.x_test.shape) == ((12, WINDOW), (3, WINDOW))
    for x, y in ((found.x_train, found.y_train), (found.x_test, found.y_test)):
        np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    assert found.y_test[0, -1] == 2  # "c" of "abcdé", in the last window of the first author
    assert found.subjects is not None
    assert found.test_subjects is not None
    assert (found.subjects.tolist(), found.test_subjects.tolist()) == ([0] * 4 + [1] * 8, [0, 1, 1])


def test_a_prepared_data_set_keeps_tokens(tmp_path: Path) -> None:
    write(tmp_path / "texts")
    data = prepare(f"text:{tmp_path / 'texts'}", tmp_path / "cache")
    assert (data.tokens, data.shape, data.labels, data.classes) == (True, (WINDOW,), (WINDOW,), 5)
    np.testing.assert_array_equal(data.train_labels, data.array("y_train")[:, -1])
    (tmp_path / "texts" / "bea" / "2.txt").write_text("f" * (4 * WINDOW) + "d")
    assert prepare(f"text:{tmp_path / 'texts'}", tmp_path / "cache").directory != data.directory


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has no texts"),
        ({"short.txt": "x" * 2 * WINDOW}, r"short.txt: has 128 characters"),
        ({"a.txt": b"\xff\xfe\xff"}, "a.txt: is not UTF-8 text"),
        ({"a.bin": b"\0" * 200}, "a.bin: holds the character NUL"),
    ],
)
def test_what_is_refused(tmp_path: Path, files: dict[str, str | bytes], said: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=said):
        read_texts(tmp_path)


def test_a_file_is_no_folder_of_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 200)
    with pytest.raises(DataError, match=r"a.txt: is a file"):
        prepare(f"text:{tmp_path / 'a.txt'}", tmp_path / "cache")
