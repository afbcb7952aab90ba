"""docs/reference/data.md stays true: each row of its tables is tried, with files as tools and people write them.

Expected values follow from the rows: 16-bit 20005 is 20005 / 257 = 77.8, white paper below a half transparent black
(alpha 51 of 255) is 255 · 204 / 255 = 204, and so on, as noted at each case.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from node.learning.data.datasets import Prepared, prepare
from node.learning.data.pictures import MOST_PIXELS
from node.learning.errors import DataError
from orchestrator.errors import PlanError, ScenarioError
from orchestrator.planning.learning.shards import make_shards
from orchestrator.record.kept_files import LARGEST_FILE
from orchestrator.scenario.choices import MAX_ROUNDS
from orchestrator.scenario.fault_validation import MAX_FAULTS
from orchestrator.scenario.language import syntax
from orchestrator.scenario.reading import parse
from orchestrator.scenario.sections import topology
from tests.orchestrator.labels import prepared

PAGE = (Path(__file__).parents[1] / "docs/reference/data.md").read_text()


def rows(heading: str) -> list[str]:
    """The first column of the table below a heading."""
    table = PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")][1:]


Check = str | Callable[[Prepared], bool]  # what the message says, or whether the prepared arrays are right
Case = tuple[Callable[[Path], str], Check]


def try_case(case: Case, tmp_path: Path) -> None:
    make, check = case
    name = make(tmp_path)
    if isinstance(check, str):
        with pytest.raises(DataError, match=check):
            prepare(name, tmp_path / "cache", [tmp_path], download=False)
        assert not (tmp_path / "cache").exists()
    else:
        assert check(prepare(name, tmp_path / "cache", [tmp_path], download=False))


# pictures


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def plain(mode: str, colour: Any, size: tuple[int, int] = (5, 4)) -> Image.Image:
    return Image.new(mode, size, colour)


GREY = saved(plain("L", 9))
USUAL = {"train/a/1.png": GREY, "train/b/1.png": GREY, "test/a/1.png": GREY}


def pictures(changes: dict[str, bytes | None] | None = None, usual: bytes = GREY) -> Callable[[Path], str]:
    """A folder of three pictures, with these files in addition or instead. None: an empty folder."""

    def make(path: Path) -> str:
        for name, data in (dict.fromkeys(USUAL, usual) | (changes or {})).items():
            file = path / "set" / os.fsdecode(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            if data is None:
                file.mkdir()
            else:
                file.write_bytes(data)
        return "images:set"

    return make


def archive(entries: list[tuple[str, bytes]]) -> Callable[[Path], str]:
    def make(path: Path) -> str:
        with zipfile.ZipFile(path / "set.zip", "w") as file:
            for name, data in entries:
                file.writestr(name, data)
        return "images:set.zip"

    return make


def linked(target: str, name: str, directory: bool = False) -> Callable[[Path], str]:
    def make(path: Path) -> str:
        found = pictures()(path)
        (path / "elsewhere").mkdir()
        (path / "elsewhere/1.png").write_bytes(GREY)
        os.mkfifo(path / "pipe")
        (path / "set" / name).symlink_to(target, target_is_directory=directory)
        return found

    return make


def with_password(path: Path) -> str:
    name = archive(list(USUAL.items()))(path)
    data = bytearray((path / "set.zip").read_bytes())
    for start, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # bit 0 of the flags (APPNOTE 4.4.4)
        for match in re.finditer(re.escape(start), bytes(data)):
            data[match.start() + at] |= 1
    (path / "set.zip").write_bytes(data)
    return name


def sixteen(values: list[int]) -> bytes:
    return saved(Image.fromarray(np.array([values, values], np.uint16)))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour: int, data: bytes) -> bytes:
    """A PNG as its specification has it: https://www.w3.org/TR/png-3."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def pixels_are(*pixels: tuple[int, ...]) -> Callable[[Prepared], bool]:
    """The first pixel of each training picture, by channels."""
    return lambda data: data.array("x_train")[:, :, 0, 0].tolist() == [list(pixel) for pixel in pixels]


def all_are(*pixel: int) -> Callable[[Prepared], bool]:
    return pixels_are(pixel, pixel)


def as_usual(data: Prepared) -> bool:
    return data.array("x_train").shape == (2, 1, 4, 5) and (data.array("x_train") == 9).all() and data.classes == 2


def three(data: Prepared) -> bool:
    return len(data.train_labels) == 3 and bool((data.array("x_train") == 9).all())


HALF = Image.new("RGBA", (5, 4), (0, 0, 0, 51))
ROTATED = plain("L", 0, (4, 5))
ROTATED.putpixel((0, 0), 200)  # orientation 6: to be turned clockwise by a quarter, so top left goes to top right
EXIF = Image.Exif()
EXIF[0x0112] = 6
PALETTE = plain("P", 1)
PALETTE.putpalette([0, 0, 0, 10, 20, 30])


def frames(kind: str) -> bytes:
    return saved(plain("L", 9), kind, save_all=True, append_images=[plain("L", 200)])


PICTURES: dict[str, Sequence[Case]] = {
    "8 bits, grey or colour": [
        (pictures(), as_usual),
        (pictures(usual=saved(plain("RGB", (1, 2, 3)))), all_are(1, 2, 3)),
        (pictures(usual=saved(plain("L", 7), "BMP")), all_are(7)),
    ],
    "grey next to colour": [  # sorted first or last, the grey picture decides nothing
        (pictures({f"train/{label}/1.png": saved(plain("RGB", (200, 0, 1)))}), pixels_are(*pixels))
        for label, pixels in (("a", [(200, 0, 1), (9, 9, 9)]), ("b", [(9, 9, 9), (200, 0, 1)]))
    ],
    "black and white": [(pictures(usual=saved(plain("1", 1))), all_are(255))],
    "palette": [(pictures(usual=saved(PALETTE)), all_are(10, 20, 30))],
    "transparency": [
        (pictures(usual=saved(HALF)), all_are(204, 204, 204)),  # 255 · (1 - 51 / 255)
        (pictures(usual=saved(HALF.convert("LA"))), all_are(204)),
        (pictures(usual=saved(PALETTE, transparency=1)), all_are(255, 255, 255)),
        (pictures(usual=saved(plain("RGBA", (1, 2, 3, 255)))), all_are(1, 2, 3)),
    ],
    "CMYK or YCbCr": [
        (pictures(usual=saved(plain("CMYK", (0, 255, 255, 0)), "TIFF")), all_are(255, 0, 0)),
        (pictures(usual=saved(plain("YCbCr", (100, 128, 128)), "TIFF")), all_are(100, 100, 100)),
    ],
    "16 bits, grey": [
        (
            pictures(usual=sixteen([0, 20005, 51994, 65535])),
            lambda data: data.array("x_train")[0, 0, 0].tolist() == [0, 78, 202, 255],
        ),
        (
            pictures(usual=saved(Image.frombytes("I;16B", (1, 1), b"\x4e\x25"), "TIFF")),  # 0x4e25 = 20005
            lambda data: data.array("x_train")[0, 0, 0].tolist() == [78],
        ),
        (
            pictures(usual=b"P5 2 1 65535 \x4e\x25\xff\xff"),
            lambda data: data.array("x_train")[0, 0, 0].tolist() == [78, 255],
        ),
    ],
    "16 bits, colour": [
        (
            pictures(usual=png(1, 1, 16, 2, b"\0\x4e\x25\xff\xff\x01\x00")),
            lambda data: data.array("x_train")[0, :, 0, 0].tolist() == [0x4E, 0xFF, 1],
        )
    ],
    "32 bits or floats": [
        (pictures({"train/a/2.tif": saved(plain(mode, 70000), "TIFF")}), rf"train/a/2\.tif has pixels of mode {mode}")
        for mode in "IF"
    ],
    "EXIF orientation": [
        (
            pictures(usual=saved(ROTATED, "PNG", exif=EXIF)),
            lambda data: data.shape == (1, 4, 5) and data.array("x_train")[0, 0, 0].tolist() == [0, 0, 0, 0, 200],
        )
    ],
    "several frames": [
        (pictures({f"train/a/2.{kind}": frames(kind)}), f"2.{kind} has several frames")
        for kind in ("gif", "png", "tiff", "webp")
    ],
    "JPEG with more pictures in it (MPO)": [(pictures({"train/a/2.jpg": frames("MPO")}), three)],
    "different sizes": [
        (
            pictures({"train/a/2.png": saved(plain("L", 9, (6, 4)))}),
            r"train/a/2\.png is 6x4, the first picture 5x4; scale all to one size",
        )
    ],
    "broken or cut off": [
        (pictures({"train/b/2.jpg": data}), r"train/b/2\.jpg is not a readable picture")
        for data in (
            b"",
            b"text",
            saved(Image.effect_noise((64, 64), 50), "JPEG")[:-300],
            GREY[:50],
            GREY.replace(b"IDAT", b"IDAX"),
        )
    ],
    "another format of the list than the suffix says": [
        (pictures({"train/a/2.bmp": saved(plain("L", 9)), "train/a/1.png": saved(plain("L", 9), "BMP")}), three)
    ],
    "another format under the suffix of a picture": [
        (pictures({"train/a/2.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n"}), "not a readable picture")
    ],
    "upper-case suffix": [(pictures({"train/a/2.PNG": GREY}), three)],
    "hidden files, `__MACOSX`, `@eaDir`, `Thumbs.db`, `desktop.ini`, texts and tables": [
        (
            pictures(
                dict.fromkeys(
                    (
                        "train/a/._1.png",
                        "train/a/.DS_Store",
                        "train/.ipynb_checkpoints/1.png",
                        "__MACOSX/train/a/1.png",
                        "train/b/@eaDir/1.png",
                        "train/a/Thumbs.db",
                        "test/a/Desktop.ini",
                        "train/labels.csv",
                        "README.TXT",
                        "LICENSE",
                    ),
                    b"\0\5\26\7",
                )
            ),
            as_usual,
        ),
        (archive([("train/a/", b""), ("train/a/._1.png", b"x"), *USUAL.items()]), as_usual),
    ],
    "any other file in a class folder": [
        (pictures({f"train/a/{name}": b"x"}), f"train/a/{name} is no picture by its suffix")
        for name in ("1.npy", "1", "1.dcm")
    ],
    "picture that is not at train/<class>/<file> or test/<class>/<file>": [
        (pictures({name: GREY}), f"{name} is not at train/<class>/<file>")
        for name in ("train/2.png", "train/a/b/2.png")
    ]
    + [(archive([*USUAL.items(), *((f"more/{name}", data) for name, data in USUAL.items())]), "train or test in 2")],
    "folders next to train and test, such as val": [(pictures({"val/a/1.png": b"x", "notes/1.doc": b"x"}), as_usual)],
    "class without pictures in train": [
        (pictures({"train/c": None}), "class 'c' has no pictures in train"),
        (pictures({"train/c/Thumbs.db": b"x"}), "class 'c' has no pictures in train"),
        (archive([("train/c/", b""), *USUAL.items()]), "class 'c' has no pictures in train"),
        (pictures({"test/c/1.png": GREY}), "test class 'c' is not in train"),
    ],
    "class names in Unicode forms NFC and NFD": [
        (
            pictures({"train/\u00e4/1.png": GREY, "test/a\u0308/1.png": GREY}),
            lambda data: data.label_names == ("a", "b", "\u00e4") and data.test_labels.tolist() == [0, 2],
        )
    ],
    "names that are not UTF-8": [(pictures({"train/b/\udcff.png": GREY}), "is not UTF-8; rename the file")],
    "symbolic links to files and folders": [
        (linked("../../../elsewhere/1.png", "train/a/2.png"), three),
        (linked("../../elsewhere", "train/c", directory=True), three),
    ],
    "symbolic links in a circle": [(linked("..", "train/c", directory=True), "symbolic links lead to this folder")],
    "pipes, devices and links to them": [
        (linked(target, "train/a/2.png"), r"train/a/2\.png: is a device, pipe or socket, not a file")
        for target in ("/dev/zero", "../../../pipe")
    ]
    + [(linked("nowhere", "train/a/2.png"), r"train/a/2\.png: cannot be read \(No such file or directory\)")],
    "over 89 million pixels in a picture": [
        (pictures({"train/a/2.png": png(10_000, 10_000, 1, 0, b"")}), "has 10000x10000 pixels, more than 89,000,000"),
        (pictures({"train/a/2.png": png(50_000, 50_000, 1, 0, b"")}), r"train/a/2\.png is not a readable picture"),
    ],
    "zip with two files of one name": [(archive([*USUAL.items(), ("x", b""), ("x", b"")]), "two files of one name")],
    "zip with a password": [(with_password, "is not a readable picture: .*encrypted")],
}


@pytest.mark.filterwarnings("ignore:Duplicate name")  # of Python's zipfile, which writes what it warns of
@pytest.mark.parametrize("row", [row for row in rows("Pictures") if "into memory" not in row])
def test_pictures(row: str, tmp_path: Path) -> None:
    for index, case in enumerate(PICTURES[row]):
        (tmp_path / str(index)).mkdir()
        try_case(case, tmp_path / str(index))


# arrays and labels


def npz(**changes: Any) -> Callable[[Path], str]:
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "x_train": random.integers(0, 256, (8, 6, 5, 3), dtype=np.uint8),
        "y_train": np.arange(8) % 4,
        "x_test": random.integers(0, 256, (4, 6, 5, 3), dtype=np.uint8),
        "y_test": np.arange(4),
    } | changes

    def make(path: Path) -> str:
        np.savez(path / "a.npz", allow_pickle=True, **{key: each for key, each in arrays.items() if each is not None})
        return "npz:a.npz"

    return make


def samples(x: Any) -> Callable[[Path], str]:
    """Eight training samples, of which four are test samples too."""
    return npz(x_train=x, x_test=np.asarray(x)[:4])


def header(text: str, data: bytes = b"") -> Callable[[Path], str]:
    """An npz whose x_train has this header."""

    def make(path: Path) -> str:
        name = npz(x_train=None)(path)
        packed = (text + " " * (63 - (len(text) + 10) % 64) + "\n").encode()
        with zipfile.ZipFile(path / "a.npz", "a") as file:
            file.writestr("x_train.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(packed)) + packed + data)
        return name

    return make


def declared(shape: str, kind: str = "|u1") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"


def x_is(expected: Any) -> Callable[[Prepared], bool]:
    kind = np.asarray(expected).dtype
    return lambda data: data.array("x_train").dtype == kind and np.array_equal(data.array("x_train"), expected)


def y_is(*expected: int) -> Callable[[Prepared], bool]:
    return lambda data: data.train_labels.tolist() == list(expected) and data.train_labels.dtype == np.int64


def pipe(path: Path) -> str:
    os.mkfifo(path / "a.npz")
    return "npz:a.npz"


class Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, ("unpickled",)


BYTES = np.arange(8 * 6 * 5 * 3, dtype=np.uint8).reshape(8, 6, 5, 3)
FLOATS = np.linspace(-3, 3, 32, dtype=np.float32).reshape(8, 4)
LABELS = np.arange(8) % 4
TOKENS = np.arange(32).reshape(8, 4)
ARRAYS: dict[str, Sequence[Case]] = {
    "x: uint8 (N, H, W)": [(samples(BYTES[..., 0]), x_is(BYTES[:, None, :, :, 0]))],
    "x: uint8 (N, H, W, C) or (N, C, H, W), C 1, 3 or 4": [
        (samples(BYTES), x_is(BYTES.transpose(0, 3, 1, 2))),
        (samples(BYTES.transpose(0, 3, 1, 2)), x_is(BYTES.transpose(0, 3, 1, 2))),
    ],
    "x: float32 (N, F) or (N, T, C)": [
        (samples(FLOATS), x_is(FLOATS)),
        (samples(FLOATS.reshape(8, 2, 2)), x_is(FLOATS.reshape(8, 2, 2).transpose(0, 2, 1))),
    ],
    "x: float16, float64, other byte order, Fortran order": [
        (samples(FLOATS.astype(kind)), x_is(FLOATS.astype(kind).astype(np.float32)))
        for kind in ("f2", "f8", ">f4", ">f8")
    ]
    + [(samples(np.asfortranarray(FLOATS)), x_is(FLOATS))],
    "x: NaN, infinities, numbers beyond float32": [
        (
            samples(np.where(FLOATS > 2, value, FLOATS.astype(float))),
            r"hold NaN or an infinity, the first is x_train\[6\]",
        )
        for value in (np.nan, -np.inf, 1e300)
    ],
    "x: numbers so small that float32 cannot normalise them (below about 1e-38)": [
        (samples(FLOATS.astype(float) * 1e-60), "x_train holds numbers below 1e-45 only"),
        (samples(FLOATS.astype(float) * 1e-42), "too little for single precision; write them in a smaller unit"),
    ],
    "x: integers from 0 up (N, T), not uint8": [
        *((samples(TOKENS.astype(kind)), lambda data: data.tokens and data.shape == (4,)) for kind in ("i2", ">u8")),
        (samples(TOKENS - 1), "x_train must hold whole numbers from 0 to 2147483647 as tokens"),
    ],
    "x: a structured type (several parts)": [
        (
            samples(np.array([((1, 2), True, 0.5)] * 8, [("tokens", "<i8", (2,)), ("mask", "?"), ("at", "<f8")])),
            lambda data: (
                data.form.parts == (("tokens", "int64", (2,)), ("mask", "bool", ()), ("at", "float32", ()))
                and data.mean == (0.5,)
            ),
        ),
        (samples(np.array([(1,)] * 8, [("a", "<c8")])), "x_train: part a is complex64; take one of bool"),
    ],
    "x: booleans, integers of other shapes, complex numbers, strings": [
        (samples(BYTES.astype(kind)), f"a.npz: x_train is {kind} .*take uint8")
        for kind in ("bool", "int8", "uint16", "int64", "complex64", "<U3")
    ],
    "x: floats with four axes": [(samples(BYTES / 255), r"float64 \(8, 6, 5, 3\).*must be scaled to 0..255")],
    "Python objects": [
        (npz(**{name: np.array([Trap()] * 8)}), f"{name} holds Python objects, which are not read")
        for name in ("x_train", "y_train")
    ],
    "header that declares more or less than the file has": [
        (header(declared("(1099511627776, 8, 8)"), b"0" * 99), "x_train declares .*, 70,368,744,177,664 bytes"),
        (header(declared("(8, 4, 4)"), b"0" * 129), "declares uint8 .*128 bytes, and holds 129"),
        (header(declared("(-8, -4, 4)"), b"0" * 128), "declares uint8"),
        (header("(" * 400 + ")" * 400), "x_train is not a plain array"),
        (header("(__import__('os').mkdir('x'),)"), "x_train is not a plain array"),
        (header("{" + " " * 20_000), "x_train is not a plain array"),
    ],
    "other arrays in the file": [(npz(extra=np.array([Trap()])), lambda data: len(data.train_labels) == 8)],
    "missing array": [(npz(y_test=None), "no array 'y_test'")],
    "x and y of different lengths, or empty": [
        (npz(y_train=LABELS[:7]), "train has 8 samples and 7 labels"),
        (npz(x_test=BYTES[:0], y_test=LABELS[:0]), "test has 0 samples and 0 labels"),
        (samples(np.zeros((8, 0), np.float32)), r"a sample has the shape \(0,\)"),
    ],
    "train and test of different shape or type": [
        (npz(x_test=BYTES[:4, :5]), "they must be alike"),
        (npz(x_test=FLOATS[:4]), "they must be alike"),
    ],
    "path that is a pipe or device": [
        (pipe, r"a\.npz: is a device, pipe or socket, not a file"),
        (lambda _: "npz:/dev/zero", "/dev/zero: is a device"),
    ],
}


@pytest.mark.parametrize("row", [row for row in rows("Arrays") if "into memory" not in row])
def test_arrays(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for index, case in enumerate(ARRAYS[row]):
        (tmp_path / str(index)).mkdir()
        try_case(case, tmp_path / str(index))
    assert not (tmp_path / "unpickled").exists()


def labels(y: Any, test: Any = None) -> Callable[[Path], str]:
    y = np.asarray(y)
    return npz(y_train=y, y_test=y[:4] if test is None else test)


TRUTHS = (LABELS[:, None] + np.arange(3)) % 3 > 0
STRAY = "labels count from 0 without gaps"
TOKEN_LABELS = np.where(np.arange(4) < 3, TOKENS, -100)
UNLABELLED = np.where(np.arange(len(TOKENS))[:, None] == 0, -100, TOKENS)
LABEL_CASES: dict[str, Sequence[Case]] = {
    "whole numbers of any width and byte order": [
        (labels(LABELS.astype(kind)), y_is(*LABELS.tolist())) for kind in ("i1", "u1", ">i2", "u4", ">u8")
    ],
    "(N, 1)": [(labels(LABELS[:, None]), y_is(*LABELS.tolist()))],
    "(N, T), for tokens (N, T)": [
        (
            npz(x_train=TOKENS, y_train=TOKENS, x_test=TOKENS[:4], y_test=TOKENS[:4]),
            lambda data: (data.labels, data.classes, data.train_labels.tolist()) == ((4,), 32, TOKENS[:, 3].tolist()),
        ),
        (npz(x_train=TOKENS, y_train=TOKENS[:, :3], x_test=TOKENS[:4]), "it needs one label for each token"),
    ],
    "-100 for a token": [
        (
            npz(x_train=TOKENS, y_train=TOKEN_LABELS, x_test=TOKENS[:4], y_test=TOKEN_LABELS[:4]),
            lambda data: (data.classes, data.train_labels.tolist()) == (32, TOKENS[:, 2].tolist()),
        ),
    ],
    "-100 for all tokens of a sample": [
        (
            npz(x_train=TOKENS, y_train=UNLABELLED, x_test=TOKENS, y_test=TOKENS),
            lambda data: (data.unlabelled, data.array("x_train").tolist()) == (1, TOKENS[1:].tolist()),
        ),
    ],
    "columns of 0 and 1, or of truth values (N, K), not one for each sample": [
        (labels(TRUTHS.astype(kind)), lambda data: (data.task, data.classes) == ("multi-label", 3))
        for kind in ("bool", "u1", ">i4")
    ],
    "floats (N,) or (N, K)": [
        (labels(LABELS / kind(2)), lambda data: (data.task, data.classes) == ("regression", 1))
        for kind in (np.float16, np.float64)
    ]
    + [(labels(FLOATS), lambda data: data.classes == 4 and (data.array("y_train") == FLOATS).all())],
    "floats: NaN, infinities, numbers beyond float32": [
        (labels(np.where(LABELS == 2, value, LABELS / 2)), r"y_train\[2\] is NaN, an infinity or beyond float32")
        for value in (np.nan, -np.inf, 1e300)
    ],
    "floats that are all whole numbers": [
        (labels(LABELS * 1.0), r"one axis of whole numbers, not float64 .*y\.astype\(int\) for classes, or y / y\.std"),
        (labels(TRUTHS * 1.0), r"not float64 \(8, 3\); write y\.argmax.* y\.astype\(int\) for several labels"),
    ],
    "truth values, texts, a column for each class": [
        (labels(LABELS > 1), "not bool .*astype"),
        (labels(np.array(["cat", "dog"] * 4)), r"not <U3 .*np\.unique"),
        (labels(np.eye(4, dtype=int)[LABELS]), r"\(8, 4\); write y\.argmax"),
    ],
    "negative": [(labels(np.where(LABELS == 2, -1, LABELS)), r"label -1 at y_train\[2\]; labels count from 0")],
    "from 1 up": [(labels(LABELS + 1), "labels count from 1 to 4; they must count from 0: subtract 1")],
    "a gap or a stray label": [
        (
            labels(np.where(np.arange(8) == 4, np.uint32(2**32 - 1), LABELS.astype(np.uint32))),
            rf"label 4294967295 at y_train\[4\], .* label 4: without it 4 of 4294967296 classes occur; {STRAY}",
        ),
        (labels(LABELS, [0, 1, 2_000_000, 3]), r"label 2000000 at y_test\[2\], .* without it 4 of 2000001 classes"),
        (
            labels(np.where(LABELS == 2, 4, LABELS)),
            r"label 3 at y_train\[3\], but no .* label 2: without it 3 of 5 classes",
        ),
    ],
    "beyond 64 bits with a sign": [
        (
            labels(np.where(LABELS == 2, np.uint64(2**64 - 1), LABELS.astype(np.uint64))),
            r"y_train\[2\] is 18446744073709551615",
        )
    ],
    "a class that only the test part has": [(labels(LABELS, [0, 1, 2, 4]), lambda data: data.classes == 5)],
    "other classes than those of a named data set": [
        (lambda path: idx_set(path, classes=9), "and 9 classes are not mnist, which has")
    ],
}


@pytest.mark.parametrize("row", rows("Labels"))
def test_labels(row: str, tmp_path: Path) -> None:
    for index, case in enumerate(LABEL_CASES[row]):
        (tmp_path / str(index)).mkdir()
        try_case(case, tmp_path / str(index))


# IDX, CIFAR-10, UCI-HAR


def idx(values: Any, kind: int = 8) -> bytes:
    """The IDX form of an array, written from its description."""
    values = np.asarray(values)
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, kind, values.ndim, *values.shape)
    return header + bytes(values.tobytes())


def idx_set(path: Path, classes: int = 10, **files: bytes) -> str:
    """MNIST's four files of 30 and 20 samples. ``files``: train_labels and so on, instead."""
    for part, count in (("train", 30), ("t10k", 20)):
        for name, content in (
            ("images-idx3", np.full((count, 28, 28), 7, np.uint8)),
            ("labels-idx1", (np.arange(count) % classes).astype(np.uint8)),
        ):
            data = files.get(f"{part}_{name[:6]}", idx(content))
            (path / f"{part}-{name}-ubyte").write_bytes(data)
    return "mnist"


def with_file(name: str, data: bytes) -> Callable[[Path], str]:
    """MNIST's files, with this one instead."""
    return lambda path: idx_set(path, 10, **{name: data})


def cifar(names: list[str], size: int = 3073 * 10) -> Callable[[Path], str]:
    def make(path: Path) -> str:
        for name in names:
            (path / name).write_bytes(b"".join(bytes([label]) + b"\x05" * 3072 for label in range(10))[:size])
        return "cifar10"

    return make


def cut_archive(path: Path) -> str:
    cifar(BATCHES)(path)
    with tarfile.open(path / "whole", "w:gz") as tar:
        for name in BATCHES:
            tar.add(path / name, name)
            (path / name).unlink()
    (path / "cifar-10-binary.tar.gz").write_bytes((path / "whole").read_bytes()[:400])
    return "cifar10"


def har(**changes: str) -> Callable[[Path], str]:
    def make(path: Path) -> str:
        for part in ("train", "test"):
            signals = path / part / "Inertial Signals"
            signals.mkdir(parents=True)
            tables = {f"Inertial Signals/total_acc_{axis}": "1.5e-01 " * 128 + "\n" for axis in "xyz"}
            tables = {name: text * 6 for name, text in tables.items()} | {
                "y": "1\n2\n3\n4\n5\n6\n",
                "subject": "7\n" * 6,
            }
            for name, text in tables.items():
                (path / part / f"{name}_{part}.txt").write_text(changes.get(f"{part} {name[-5:]}", text))
        return "har"

    return make


BATCHES = [*(f"data_batch_{index}.bin" for index in range(1, 6)), "test_batch.bin"]
COUNT = np.full((30, 28, 28), 7)
IDX: dict[str, Sequence[Case]] = {
    "gzipped or plain, with any suffix of the two": [
        (lambda path: idx_set(path), lambda data: (len(data.train_labels), data.array("x_test").max()) == (30, 7)),
        (
            lambda path: idx_set(path, train_labels=gzip.compress(idx(np.arange(30, dtype=np.uint8) % 10))),
            lambda data: data.train_labels.tolist() == [index % 10 for index in range(30)],
        ),
    ],
    "values that are not unsigned bytes, or another number of axes": [
        (
            lambda path: idx_set(path, train_images=idx(COUNT.astype(">f4"), 13)),
            r"train-images-idx3-ubyte: has 3 axes of 32-bit float values; take a file of 3 axes of unsigned bytes",
        ),
        (lambda path: idx_set(path, train_labels=idx(np.zeros((30, 1), np.uint8))), "has 2 axes of unsigned bytes"),
    ],
    "no IDX file": [
        (with_file("t10k_labels", data), "t10k-labels-idx1-ubyte: not an IDX file")
        for data in (b"", b"\0\0\x08", b"<html>not found</html>", gzip.compress(idx(COUNT))[:20])
    ],
    "cut off, or longer than declared": [
        (
            with_file("train_images", data),
            r"train-images-idx3-ubyte: not a complete IDX file of unsigned bytes of shape \(30, 28, 28\)",
        )
        for data in (idx(COUNT.astype(np.uint8))[:-1], idx(COUNT.astype(np.uint8)) + b"1")
    ],
    "declared shape that does not fit into memory": [
        (
            lambda path: idx_set(path, train_images=struct.pack(">BBBB3I", 0, 0, 8, 3, *[2**31] * 3)),
            r"needs [\d,.]+ GB of memory, and this host has",
        )
    ],
}
OTHERS: dict[str, Sequence[Case]] = {
    "CIFAR: missing batches or partial records": [
        (cifar(BATCHES[:-1]), "not all of data_batch_1.bin"),
        (cifar(BATCHES, size=3072), r"data_batch_1\.bin: 3072 bytes are not whole records of 3073"),
    ],
    "CIFAR: archive that is cut off": [(cut_archive, r"cifar-10-binary\.tar\.gz: not a readable archive")],
    "HAR: accelerations in g, labels from 1 to 6": [
        (
            har(),
            lambda data: (
                data.train_labels.tolist() == [0, 1, 2, 3, 4, 5]
                and float(data.array("x_train")[0, 0, 0]) == np.float32(0.15)
            ),
        )
    ],
    "HAR: missing, empty or other tables": [
        (har(**{"test y": ""}), r"y_test\.txt: not a table of the UCI HAR data set: it is empty"),
        (har(**{"train acc_y": "1 2\n3\n"}), r"total_acc_y_train\.txt: not a table of the UCI HAR data set"),
        (har(**{"train acc_y": "1 2\n"}), "the axes have different numbers of values"),
        (har(**{"train y": "1.5\n" * 6}), r"y_train\.txt: not a table"),
    ],
}


@pytest.mark.parametrize(
    ("cases", "row"), [(IDX, row) for row in rows("IDX")] + [(OTHERS, row) for row in rows("CIFAR and UCI-HAR")]
)
def test_idx_cifar_and_har(cases: dict[str, Sequence[Case]], row: str, tmp_path: Path) -> None:
    for index, case in enumerate(cases[row]):
        (tmp_path / str(index)).mkdir()
        try_case(case, tmp_path / str(index))


# LEAF


def leaf(train: dict[str, str], sample: Any = (1.5, 2)) -> Callable[[Path], str]:
    """Files of the training part, by name, and a test part of one user."""

    def make(path: Path) -> str:
        for part, files in (("train", train), ("test", {"0.json": of_users(bob=[(sample, 1), (sample, 0)])})):
            (path / "leaf" / part).mkdir(parents=True)
            for name, text in files.items():
                (path / "leaf" / part / name).write_text(text)
        return "leaf:leaf"

    return make


def of_users(**users: list[tuple[Any, Any]]) -> str:
    data = {user: {"x": [x for x, _ in held], "y": [y for _, y in held]} for user, held in users.items()}
    return json.dumps({"users": [*users], "num_samples": [len(held) for held in users.values()], "user_data": data})


INK = [0.0] * 783 + [0.8]  # 0.8 · 255 = 204
TWO = of_users(bob=[((3, 4), 0)])
LEAF: dict[str, Sequence[Case]] = {
    "samples of F numbers": [
        (
            leaf({"b.json": TWO, "a.json": of_users(ann=[((5, 6), 1)], zoe=[((7, 8), 0), ((9, 9), 1)])}),
            lambda data: (
                data.array("x_train").tolist() == [[5, 6], [3, 4], [7, 8], [9, 9]]
                and data.train_labels.tolist() == [1, 0, 0, 1]
                and data.array("subjects").tolist() == [0, 1, 2, 2]
                and data.array("test_subjects").tolist() == [1, 1]
            ),
        )
    ],
    "samples of 784 numbers from 0 to 1 (FEMNIST)": [
        (
            leaf({"a.json": of_users(bob=[(INK, 0)])}, INK),
            lambda data: data.shape == (1, 28, 28) and data.array("x_train")[0, 0, 27].tolist() == [0] * 27 + [204],
        )
    ],
    "texts and names of pictures (Shakespeare, Sent140, CelebA)": [
        (leaf({"a.json": of_users(bob=[(x, 0)])}), "user 'bob': a sample must be a list of numbers")
        for x in ("to be or", ["1", "text"], "1.jpg")
    ],
    "samples of different lengths": [
        (leaf({"a.json": of_users(bob=[((1, 2), 0), ((1,), 1)])}), "user 'bob': samples have different lengths"),
        (leaf({"a.json": of_users(bob=[((1, 2), 0)], ann=[((1,), 1)])}), "users have samples of different lengths"),
    ],
    "a user in two files": [(leaf({"a.json": TWO, "b.json": TWO}), "b.json: .*user 'bob' is in another file too")],
    "`num_samples` that is not the number of samples": [
        (leaf({"a.json": TWO.replace("[1]", "[2]")}), "num_samples is 2 for user 'bob', who has 1"),
        (leaf({"a.json": TWO.replace('["bob"]', '["ann"]')}), "have different users"),
    ],
    "a key twice, NaN, or no JSON": [
        (leaf({"a.json": TWO.replace('"y"', '"x"')}), "it has the key 'x' more than once"),
        (leaf({"a.json": TWO.replace("3", "NaN")}), "it has NaN, which is no number"),
        (leaf({"a.json": "[" * 100_000}), "nested too deeply"),
        (leaf({"a.json": "{}"}), "the key 'user_data' is missing"),
        (leaf({}), "has no JSON files"),
    ],
    "byte order mark": [(leaf({"a.json": "\ufeff" + TWO}), lambda data: data.array("x_train").tolist() == [[3, 4]])],
}


@pytest.mark.parametrize("row", rows("LEAF"))
def test_leaf(row: str, tmp_path: Path) -> None:
    for index, case in enumerate(LEAF[row]):
        (tmp_path / str(index)).mkdir()
        try_case(case, tmp_path / str(index))


# a partition from a file


SCENARIO = "algorithm: hierfavg\ntopology: {edges: 2, devices_per_edge: [2, 1]}\ndata: {partition: {file: f.json}}\n"
CLIENTS = ["device-0-0", "device-0-1", "device-1-0"]


def divided(text: str) -> dict[str, list[list[int]]]:
    """The training and own test samples that each client of `SCENARIO` gets by this file, of 1,000 and 200."""
    made = make_shards(parse(SCENARIO, "f.yaml", files={"f.json": text}), prepared())
    return {
        "train": [made.train[client].tolist() for client in CLIENTS],
        "test": [made.own_test[node].tolist() for node in (*CLIENTS, "edge-0")],
    }


TRAIN = [[0, 5, 7], [1, 2], [999]]
BY_NAME = dict(zip(CLIENTS, TRAIN, strict=True))
LISTS: dict[str, Sequence[tuple[Any, list[list[int]] | str]]] = {
    "samples in no list": [
        (BY_NAME, TRAIN),
        (TRAIN, TRAIN),
        ({"train": TRAIN}, TRAIN),
        ([[5, 7, 0], [2, 1], [999]], TRAIN),
    ],
    "an empty list": [([[0], [], [1]], [[0], [], [1]])],
    "index out of range": [
        ([[0], [1000], [1]], "f.json: train: device-0-1 has 1000; samples are 0 to 999"),
        ([[0], [-1], [1]], "f.json: train: device-0-1 has -1; samples are 0 to 999"),
        ({"train": TRAIN, "test": [[200], [], []]}, "f.json: test: device-0-0 has 200; samples are 0 to 199"),
    ],
    "a training sample listed twice": [
        ([[0, 0], [1], [2]], "f.json: train: device-0-0 has 0 twice"),
        ([[0], [2], [1, 2]], "f.json: train: sample 2 is in the lists of device-0-1, device-1-0"),
    ],
    "a client that is missing or unknown": [
        ([[0], [1]], "f.json: train has 2 lists for 3 clients"),
        ({**BY_NAME, "edge-0": []}, "f.json: train has edge-0; clients are device-0-0, device-0-1, device-1-0"),
        ({"device-0-0": [0]}, "f.json: train lacks device-0-1, device-1-0; give clients without samples an empty list"),
        ({"train": TRAIN, "test": BY_NAME | {"cloud": []}}, "f.json: test has cloud; clients are"),
    ],
    "not whole numbers": [
        ([[0], [1.0], [2]], "f.json: train: device-0-1 has the number 1.0, which is no whole number"),
        ([[0], [True], [2]], "f.json: train: device-0-1 has the truth value true, which is no whole number"),
        ([[0], "1", [2]], "f.json: train: device-0-1 must be a list of indices"),
        (7, "f.json has no lists of training samples: write"),
        ({"test": TRAIN}, "f.json has no lists of training samples: write"),
        ({"train": TRAIN, "validation": TRAIN}, "f.json has the key 'validation' next to train or test: write"),
    ],
}


@pytest.mark.parametrize("row", rows("A partition from a file"))
def test_lists(row: str) -> None:
    for content, expected in LISTS[row]:
        if isinstance(expected, str):
            with pytest.raises((PlanError, ScenarioError), match=f"data.partition(.file)?: {re.escape(expected)}"):
                divided(json.dumps(content))
        else:
            assert divided("\ufeff" + json.dumps(content))["train"] == expected


def test_own_test_sets_from_a_file() -> None:
    """Clients may share test samples; an edge has those of its devices."""
    made = divided(json.dumps({"train": TRAIN, "test": {"device-1-0": [], "device-0-0": [9, 3], "device-0-1": [3]}}))
    assert made["test"] == [[3, 9], [3], [], [3, 9]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[1], [2]", "f.json is not JSON"),
        ('{"a": [1], "a": [2]}', "f.json is not JSON: it has the key 'a' more than once"),
    ],
)
def test_a_partition_file_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=f"f.yaml:3: data.partition.file: {message}"):
        divided(text)
    with pytest.raises(ScenarioError, match="No such file"):
        parse(SCENARIO.replace("f.json", "none.json"), "f.yaml")
    with pytest.raises(ScenarioError, match="name a file"):
        parse(SCENARIO.replace("{file: f.json}", "file"), "f.yaml")


# memory


@pytest.mark.parametrize(
    "make",
    [
        pictures(usual=saved(plain("RGB", (1, 2, 3), (300, 300)))),
        samples(np.zeros((8, 300, 300), np.uint8)),
        leaf({"a.json": of_users(bob=[([0.123456789] * 20_000, 0)])}, [0.5] * 20_000),
        cifar(BATCHES, size=3073 * 10),
    ],
    ids=["pictures", "npz", "leaf", "cifar"],
)
def test_data_that_does_not_fit_into_memory_is_refused(
    make: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes are known from headers and file sizes. This host has 100 kB."""
    monkeypatch.setattr("node.learning.data.files.available_bytes", lambda: 100_000)
    try_case((make, r"needs .* GB of memory, and this host has 0\.0 GB left; take a part of the data"), tmp_path)


@pytest.mark.parametrize(
    ("row", "figures"),
    [
        ("nodes of a run", [topology.MAX_NODES]),
        ("pairs of nodes with a link", [topology.MAX_PAIRS]),
        ("clients of a population, and of a round of it", [topology.MAX_POPULATION, topology.MAX_SELECTED]),
        ("rounds", [MAX_ROUNDS]),
        ("planned faults", [MAX_FAULTS]),
        ("a scenario's file", [syntax.MAX_CHARACTERS, syntax.MAX_VALUES, syntax.MAX_DEPTH]),
        ("a file of a schedule, an availability or a partition", [LARGEST_FILE]),
        ("pixels of a picture", [MOST_PIXELS]),
    ],
)
def test_the_page_of_limits_has_the_figures_of_the_code(row: str, figures: list[int]) -> None:
    page = (Path(__file__).parents[1] / "docs/reference/limits.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row} |")]
    assert [int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*\b", line.split(" | ")[1])] == figures
