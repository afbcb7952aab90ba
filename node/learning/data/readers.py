"""The readers of data sets by name, and by the form of their files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from node.catalogue.datasets import EMNIST, TABLES
from node.learning.data import formats, leaf, pictures, tables, texts
from node.learning.data.formats import Arrays

Reader = Callable[..., Arrays]


FORMS: dict[str, Callable[..., Arrays]] = {
    "npz": formats.read_npz,
    "images": pictures.read_pictures,
    "leaf": leaf.read_leaf,
    "text": texts.read_texts,
    **dict.fromkeys(TABLES, tables.read_tables),
}


def _idx_format(place: Path) -> Reader | None:
    if formats.idx_paths(place):
        return functools.partial(formats.read_idx_folder, place)
    return None


def _cifar10_format(place: Path) -> Reader | None:
    if place.is_file():
        if place.suffix == ".zip":
            return functools.partial(pictures.read_pictures, place)
        return functools.partial(formats.read_cifar10, place)
    if (place / formats.CIFAR10_FILES[0]).is_file():
        return functools.partial(formats.read_cifar10, place)
    if (place / "train").is_dir():
        return functools.partial(pictures.read_pictures, place)
    return None


def _cifar100_format(place: Path) -> Reader | None:
    training_part = place / formats.CIFAR100_FILES[0]
    if place.is_file() or training_part.is_file():
        return functools.partial(formats.read_cifar100, place)
    return None


def _emnist_format(split: str, place: Path) -> Reader | None:
    files = formats.emnist_files(split)
    if formats.idx_paths(place, files):
        return functools.partial(formats.read_emnist, place, split)
    return None


def _har_format(
    place: Path,
    signals: Sequence[str] = ("total_acc",),
) -> Reader | None:
    if place.is_file():
        return functools.partial(formats.read_npz, place)
    signals_folder = place / "train" / "Inertial Signals"
    if signals_folder.is_dir():
        return functools.partial(formats.read_har_folder, place, signals)
    return None


FORMATS: dict[str, Callable[[Path], Reader | None]] = {
    "mnist": _idx_format,
    "fashion-mnist": _idx_format,
    "cifar10": _cifar10_format,
    "cifar100": _cifar100_format,
    "har": _har_format,
    "har-9": functools.partial(_har_format, signals=formats.HAR_SIGNALS),
    **{f"emnist-{split}": functools.partial(_emnist_format, split) for split in EMNIST},
}
