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
SUFFIXES = {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"}
NOTES = {".txt", ".md", ".csv", ".json", ".xml", ".html", ".db", ".ini"}  # suffixes of what lies beside pictures
MOST_PIXELS = 89_000_000  # of a picture, as Pillow's own limit
MOST_BYTES = 1 << 28  # of a picture's file
PARTS = ("train", "test")


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


def _read_pictures(path: Path, names: Iterable[str], read: Callable[[str], bytes]) -> Arrays:
    found = _sorted_out(path, names)
    classes = sorted({each.label for each in found if each.part == "train"})
    strangers = sorted({each.label for each in found} - set(classes))
    if len(classes) < 2 or strangers or not any(each.part == "test" for each in found):
        reason = f"test class {strangers[0]!r} is not in train" if strangers else "it needs two classes and a test part"
        raise DataError(f"{path}: pictures must be named train/<class>/<file> and test/<class>/<file>: {reason}")
    x = decoded(path, [each.name for each in found], read)
    y = np.array([classes.index(each.label) for each in found], dtype=np.int64)
    train = np.array([each.part == "train" for each in found])
    return Arrays(x[train], y[train], x[~train], y[~train], label_names=tuple(classes))


def _sorted_out(path: Path, names: Iterable[str]) -> list[_Named]:
    """The pictures, in an order that depends on their names alone. DataError for a file that cannot be placed, and for
    a class without pictures."""
    found = []
    classes = set[str]()
    roots = set[tuple[str, ...]]()
    for name in names:
        try:
            text = unicodedata.normalize("NFC", name.encode("utf-8", "surrogateescape").decode())
        except UnicodeError:
            raise DataError(f"{path}: the name of {name!r} is not UTF-8; rename the file") from None
        *folders, file = (*PurePosixPath(text).parts, "") if text.endswith("/") else PurePosixPath(text).parts
        if any(folder.startswith(".") or folder in TOOLS for folder in folders):
            continue
        placed = len(folders) > 1 and folders[-2] in PARTS
        if placed and folders[-2] == "train":
            classes.add(folders[-1])
        suffix = PurePosixPath(file).suffix.lower()
        if file == "" or file.startswith(".") or suffix in NOTES or not any(folder in PARTS for folder in folders):
            continue
        if not placed or suffix not in SUFFIXES:
            why = "is no picture by its suffix" if placed else "is not at train/<class>/<file> or test/<class>/<file>"
            raise DataError(f"{path}: {name} {why}; remove or rename it")
        roots.add(tuple(folders[:-2]))
        found.append(_Named(folders[-2], folders[-1], file, name))
    empty = sorted(classes - {each.label for each in found if each.part == "train"})
    if empty:
        raise DataError(f"{path}: class {empty[0]!r} has no pictures in train; remove its folder, or fill it")
    if len(roots) > 1:
        listed = ", ".join(sorted("/".join(root) or "." for root in roots)[:3])
        raise DataError(f"{path}: has train or test in {len(roots)} folders ({listed}); name one of them")
    return sorted(found)


def decoded(path: Path, names: Sequence[str], read: Callable[[str], bytes]) -> NDArray[np.uint8]:
    """The pictures of one size that ``read`` gives, (N, 1, H, W) if all are grey, else (N, 3, H, W). Raises DataError
    naming ``path`` and the picture."""
    from PIL import Image

    found: list[NDArray[np.uint8]] = []
    largest = 0
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of odd metadata; `MOST_PIXELS` is below the limit that it warns of
                with Image.open(io.BytesIO(read(name)), formats=FORMATS) as image:
                    pixels = _pixels(image)
        except DataError as error:
            raise DataError(str(error) if str(path) in str(error) else f"{path}: {name} {error}") from None
        except Exception as error:  # decoders of broken files raise anything
            raise DataError(f"{path}: {name} is not a readable picture: {error}") from error
        if found and pixels.shape[:2] != found[0].shape[:2]:
            (height, width), (first_height, first_width) = pixels.shape[:2], found[0].shape[:2]
            raise DataError(
                f"{path}: {name} is {width}x{height}, the first picture {first_width}x{first_height}; scale all to "
                "one size"
            )
        if pixels.nbytes > largest:
            refuse_large(path, 2 * (largest := pixels.nbytes) * len(names))
        found.append(pixels)
    made = np.empty((len(found), 3 if any(each.ndim == 3 for each in found) else 1, *found[0].shape[:2]), np.uint8)
    for index, pixels in enumerate(found):
        if pixels.ndim == 3:
            made[index] = pixels.transpose(2, 0, 1)
        else:
            made[index] = pixels
    return made


def _pixels(image: Image) -> NDArray[np.uint8]:
    """The pixels of a picture, as it is shown: (H, W) if its mode is grey, else (H, W, 3)."""
    from PIL import Image, ImageOps

    if image.width * image.height > MOST_PIXELS:
        raise DataError(f"has {image.width}x{image.height} pixels, more than {MOST_PIXELS:,}")
    if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":  # an MPO is a JPEG with pictures beside it
        raise DataError("has several frames; save one of them")
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return np.rint(np.asarray(image) / 257).astype(np.uint8)
    if image.mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"):
        raise DataError(f"has pixels of mode {image.mode}, which do not fit into 8 bits; scale them to 0..255")
    grey = image.mode in ("1", "L", "LA")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return np.asarray(image.convert("L" if grey else "RGB"))
