from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from node.learning.data.pictures import read_pictures
from node.learning.errors import DataError


def picture(colour: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (5, 4), colour).save(file, "PNG")
    return file.getvalue()


PICTURES = {
    "set/train/dog/1.png": picture((1, 2, 3)),
    "set/train/cat/1.png": picture((4, 5, 6)),
    "set/train/cat-2/1.png": picture((7, 7, 7)),
    "set/test/dog/9.png": picture((7, 8, 9)),
    "set/train/cat/readme.txt": b"no picture",
}


def test_a_folder_and_a_zip_give_the_same_arrays_in_any_order_of_files(tmp_path: Path) -> None:
    """By class and file name: cat, cat-2, dog. As plain texts, `cat-2/` sorts before `cat/`."""
    for name, names in (("a.zip", list(PICTURES)), ("b.zip", list(reversed(PICTURES)))):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for each in names:
                archive.writestr(each, PICTURES[each])
    for name, data in PICTURES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    for place in ("set", "a.zip", "b.zip"):
        arrays = read_pictures(tmp_path / place)
        assert arrays.label_names == ("cat", "cat-2", "dog")
        assert arrays.x_train.shape == (3, 3, 4, 5)  # height 4, width 5
        assert arrays.x_train[:, :, 0, 0].tolist() == [[4, 5, 6], [7, 7, 7], [1, 2, 3]]
        assert (arrays.y_train.tolist(), arrays.y_test.tolist()) == ([0, 1, 2], [2])
        assert arrays.x_train.dtype == np.uint8


def test_no_pictures(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"needs two classes.*test part"):
        read_pictures(tmp_path)
    (tmp_path / "a.zip").write_bytes(b"no zip")
    with pytest.raises(DataError, match="not a readable zip"):
        read_pictures(tmp_path / "a.zip")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: is a device, pipe"):
        read_pictures(tmp_path / "pipe")
