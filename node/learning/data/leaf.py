"""Reader of LEAF's JSON. S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv 1812.01097.

A folder has the folders train and test. Each of their files is `{"users": [...], "num_samples": [...], "user_data":
{user: {"x": [...], "y": [...]}}}`, where a sample is a list of numbers. Texts, and names of pictures, are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.catalogue.json_text import parse_json
from node.learning.data.files import below, read_text, refuse_large
from node.learning.data.formats import Arrays, arrays_of
from node.learning.data.labels import whole_numbers
from node.learning.errors import DataError

FEMNIST = 28 * 28  # numbers of a sample that is a picture, from 0 (black) to 1 (white)
EXPANSION = 8  # bytes of Python's numbers for each byte of text, at most


def read_leaf(path: Path) -> Arrays:
    """The samples (N, F) float32, or FEMNIST's pictures (N, 1, 28, 28) uint8, and their users as people.

    People are numbered in order of their names. Samples are ordered by user, then as in the file.
    """
    parts = {part: _users(path / part) for part in ("train", "test")}
    names = sorted(parts["train"].keys() | parts["test"].keys())
    made: dict[str, NDArray[Any]] = {}
    for part, users in parts.items():
        x, y = zip(*(users[user] for user in sorted(users)), strict=True)
        try:
            made[f"x_{part}"], made[f"y_{part}"] = np.concatenate(x), np.concatenate(y)
        except ValueError:
            raise DataError(f"{path / part}: users have samples of different lengths") from None
        made[f"subject_{part}"] = np.repeat(np.searchsorted(names, sorted(users)), list(map(len, y)))
    samples = {name: made[name] for name in ("x_train", "x_test")}
    if all(x.shape[1] == FEMNIST and x.min() >= 0 and x.max() <= 1 for x in samples.values()):
        made |= {name: np.rint(x * 255).astype(np.uint8).reshape(-1, 28, 28) for name, x in samples.items()}
    return arrays_of(made, str(path))


def _users(folder: Path) -> dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """The samples and labels of each user of a part, from all its files."""
    files = sorted(folder / name for name in below(folder) if name.endswith(".json"))
    if not files:
        raise DataError(f"{folder}: has no JSON files; LEAF's preprocess.sh writes them to train and test")
    refuse_large(folder, EXPANSION * max(file.stat().st_size for file in files))
    found: dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]] = {}
    for file in files:
        try:
            content = parse_json(read_text(file))
            for user, data in content["user_data"].items():
                if user in found:
                    raise ValueError(f"user {user!r} is in another file too")
                found[user] = _samples(data, f"{file}: user {user!r}")
            _refuse_other(content, found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"the key {error} is missing" if isinstance(error, KeyError) else error
            raise DataError(f"{file}: not a file of LEAF: {what}") from None
    if not any(len(y) for _, y in found.values()):
        raise DataError(f"{folder}: has no samples")
    return {user: data for user, data in found.items() if len(data[1])}


def _refuse_other(content: Any, found: dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]) -> None:
    """ValueError unless `users` and `num_samples` say what `user_data` has."""
    users = content["users"]
    counts = content["num_samples"]
    if sorted(users) != sorted(content["user_data"]) or len(counts) != len(users):
        raise ValueError("users, num_samples and user_data have different users")
    for user, count in zip(users, counts, strict=True):
        if count != len(found[user][1]):
            raise ValueError(f"num_samples is {count} for user {user!r}, who has {len(found[user][1])} samples")


def _samples(data: Any, where: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The samples (N, F) and labels (N,) of one user."""
    try:
        x = np.asarray(data["x"])
        y = np.asarray(data["y"])
    except ValueError:
        raise DataError(f"{where}: samples have different lengths") from None
    if len(x) != len(y):
        raise DataError(f"{where}: has {len(x)} samples and {len(y)} labels")
    if not len(x):
        return np.empty((0, 0), np.float32), np.empty(0, np.int64)
    if x.dtype.kind not in "iuf" or x.ndim != 2:
        raise DataError(f"{where}: a sample must be a list of numbers; texts and names of pictures are not read")
    with np.errstate(over="ignore"):  # what is beyond float32 becomes an infinity, which is refused
        x = x.astype(np.float32)
    return x, whole_numbers({"y": y}, where)["y"]
