"""Reader of pictures in class folders. docs/reference/data.md lists what is kept, converted and refused."""

from __future__ import annotations

import io
import unicodedata
import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from node.learning.data.files import TOOLS, below, open_regular, read_regular, refuse_large
from node.learning.data.formats import Arrays
from node.learning.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")  # Pillow's other readers may start programs
SUFFIXES = {
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif"),
    *(".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"),
}
# Suffixes of what lies next to pictures.
NOTES = {".txt", ".md", ".csv", ".json", ".xml", ".html", ".db", ".ini"}
MOST_PIXELS = 89_000_000  # of a picture, as Pillow's own limit
MOST_BYTES = 1 << 28  # of a picture's file
PARTS = ("train", "test")
GREY = ("1", "L", "LA")  # modes of Pillow
COLOURED = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")


class _Named(NamedTuple):
    """A picture: its part, class and file, as text in form NFC, and its name in the folder or zip."""

    part: str
    label: str
    file: str
    name: str


def read_pictures(path: Path) -> Arrays:
    """Pictures named {train,test}/<class>/<file>, in a folder or a zip. Classes are numbered in order of their names.

    All pictures must have one size. They have one channel if all are grey, else three.
    """
    if path.is_dir():
        return _read_pictures(path, below(path), lambda name: read_regular(path / name))
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if len(set(names)) < len(names):
                raise DataError(f"{path}: the zip has two files of one name")
            return _read_pictures(path, names, lambda name: _member(path, archive, name))
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable zip: {error}") from error


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > MOST_BYTES:
        raise DataError(f"{path}: {name} has more than {MOST_BYTES >> 20} MiB")
    return archive.read(name)


def _read_pictures(
    path: Path,
    names: Iterable[str],
    read: Callable[[str], bytes],
) -> Arrays:
    pictures = _sorted_out(path, names)
    classes = sorted({picture.label for picture in pictures if picture.part == "train"})
    test_classes = {picture.label for picture in pictures if picture.part == "test"}
    strangers = sorted(test_classes - set(classes))
    if strangers:
        reason = f"test class {strangers[0]!r} is not in train"
    else:
        reason = "it needs two classes and a test part"
    if len(classes) < 2 or strangers or not test_classes:
        raise DataError(f"{path}: pictures must be named train/<class>/<file> and test/<class>/<file>: {reason}")
    names = [picture.name for picture in pictures]
    x = decoded(path, names, read)
    numbers = [classes.index(picture.label) for picture in pictures]
    y = np.array(numbers, dtype=np.int64)
    train = np.array([picture.part == "train" for picture in pictures])
    test = ~train
    return Arrays(
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        label_names=tuple(classes),
    )


def _sorted_out(path: Path, names: Iterable[str]) -> list[_Named]:
    """The pictures, in an order that depends on their names alone. DataError for a file that cannot be placed, and for
    a class without pictures."""
    pictures = []
    classes = set[str]()
    roots = set[tuple[str, ...]]()
    for name in names:
        folders, file = _folders_and_file(path, name)
        if any(map(_is_left_out, folders)):
            continue
        placed = len(folders) > 1 and folders[-2] in PARTS
        if placed and folders[-2] == "train":
            classes.add(folders[-1])
        suffix = PurePosixPath(file).suffix.lower()
        if file == "" or file.startswith(".") or suffix in NOTES:
            continue
        if set(PARTS).isdisjoint(folders):
            continue
        if not placed:
            raise DataError(
                f"{path}: {name} is not at train/<class>/<file> or test/<class>/<file>; remove or rename it"
            )
        if suffix not in SUFFIXES:
            raise DataError(f"{path}: {name} is no picture by its suffix; remove or rename it")
        roots.add(folders[:-2])
        label = folders[-1]
        pictures.append(_Named(folders[-2], label, file, name))
    with_pictures = {picture.label for picture in pictures if picture.part == "train"}
    empty = sorted(classes - with_pictures)
    if empty:
        raise DataError(f"{path}: class {empty[0]!r} has no pictures in train; remove its folder, or fill it")
    if len(roots) > 1:
        named = sorted("/".join(root) or "." for root in roots)
        shown = named[:3]
        raise DataError(f"{path}: has train or test in {len(roots)} folders ({', '.join(shown)}); name one of them")
    return sorted(pictures)


def _folders_and_file(
    path: Path,
    name: str,
) -> tuple[tuple[str, ...], str]:
    """The folders and the file in a name, as text in form NFC. The name of a folder ends with a slash: it has no
    file."""
    try:
        utf_8 = name.encode("utf-8", "surrogateescape").decode()
        text = unicodedata.normalize("NFC", utf_8)
    except UnicodeError:
        raise DataError(f"{path}: the name of {name!r} is not UTF-8; rename the file") from None
    steps = PurePosixPath(text).parts
    if text.endswith("/"):
        return steps, ""
    return steps[:-1], steps[-1]


def _is_left_out(folder: str) -> bool:
    """Whether a folder is hidden or of a tool."""
    return folder.startswith(".") or folder in TOOLS


def decoded(
    path: Path,
    names: Sequence[str],
    read: Callable[[str], bytes],
) -> NDArray[np.uint8]:
    """The pictures of one size that ``read`` gives, (N, 1, H, W) if all are grey, else (N, 3, H, W). Raises DataError
    naming ``path`` and the picture."""
    pictures: list[NDArray[np.uint8]] = []
    largest = 0
    for name in names:
        pixels = _decoded(path, name, read)
        if pictures:
            _refuse_other_size(path, name, pixels, pictures[0])
        if pixels.nbytes > largest:
            largest = pixels.nbytes
            refuse_large(path, 2 * largest * len(names))
        pictures.append(pixels)
    coloured = any(pixels.ndim == 3 for pixels in pictures)
    if coloured:
        channels = 3
    else:
        channels = 1
    height, width = pictures[0].shape[:2]
    shape = (len(pictures), channels, height, width)
    x = np.empty(shape, np.uint8)
    for index, pixels in enumerate(pictures):
        if pixels.ndim == 3:
            x[index] = pixels.transpose(2, 0, 1)
        else:
            x[index] = pixels
    return x


def _decoded(
    path: Path,
    name: str,
    read: Callable[[str], bytes],
) -> NDArray[np.uint8]:
    """The pixels of a picture. Raises DataError naming ``path`` and the picture."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata; `MOST_PIXELS` is below the limit that it warns of
            content = io.BytesIO(read(name))
            with Image.open(content, formats=FORMATS) as image:
                return _pixels(image)
    except DataError as error:
        reason = str(error)
        if str(path) in reason:
            raise DataError(reason) from None
        raise DataError(f"{path}: {name} {reason}") from None
    except Exception as error:  # decoders of broken files raise anything
        raise DataError(f"{path}: {name} is not a readable picture: {error}") from error


def _refuse_other_size(
    path: Path,
    name: str,
    pixels: NDArray[np.uint8],
    first: NDArray[np.uint8],
) -> None:
    height, width = pixels.shape[:2]
    first_height, first_width = first.shape[:2]
    if (height, width) != (first_height, first_width):
        raise DataError(
            f"{path}: {name} is {width}x{height}, the first picture {first_width}x{first_height}; scale all to one size"
        )


def _pixels(image: Image) -> NDArray[np.uint8]:
    """The pixels of a picture, as it is shown: (H, W) if its mode is grey, else (H, W, 3)."""
    from PIL import Image, ImageOps

    if image.width * image.height > MOST_PIXELS:
        raise DataError(f"has {image.width}x{image.height} pixels, more than {MOST_PIXELS:,}")
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":  # an MPO is a JPEG with more pictures
        raise DataError("has several frames; save one of them")
    ImageOps.exif_transpose(image, in_place=True)
    in_16_bits = image.mode == "I" and image.format in ("PNG", "PPM")
    if in_16_bits or image.mode.startswith("I;16"):
        in_8_bits = np.asarray(image) / 257
        return np.rint(in_8_bits).astype(np.uint8)
    if image.mode not in (*GREY, *COLOURED):
        raise DataError(f"has pixels of mode {image.mode}, which do not fit into 8 bits; scale them to 0..255")
    if image.mode in GREY:
        mode = "L"
    else:
        mode = "RGB"
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return np.asarray(image.convert(mode))
