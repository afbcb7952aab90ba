"""Reader of LEAF's JSON. S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv 1812.01097.

A folder has the folders train and test. Each of their files is `{"users": [...], "num_samples": [...], "user_data":
{user: {"x": [...], "y": [...]}}}`, where a sample is a list of numbers. Texts, and names of pictures, are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.arrays import Array, Integers
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
    train = _users(path / "train")
    test = _users(path / "test")
    parts = {"train": train, "test": test}
    names = sorted(train.keys() | test.keys())
    entries: dict[str, Array] = {}
    for part, users in parts.items():
        of_part = sorted(users)
        x = [users[user][0] for user in of_part]
        y = [users[user][1] for user in of_part]
        try:
            entries[f"x_{part}"] = np.concatenate(x)
            entries[f"y_{part}"] = np.concatenate(y)
        except ValueError:
            raise DataError(f"{path / part}: users have samples of different lengths") from None
        numbers = np.searchsorted(names, of_part)
        counts = [len(labels) for labels in y]
        entries[f"subject_{part}"] = np.repeat(numbers, counts)
    if _is_picture(entries["x_train"]) and _is_picture(entries["x_test"]):
        entries["x_train"] = _pictures(entries["x_train"])
        entries["x_test"] = _pictures(entries["x_test"])
    return arrays_of(entries, str(path))


def _is_picture(x: Array) -> bool:
    """Whether the samples (N, F) are pictures of FEMNIST."""
    if x.shape[1] != FEMNIST:
        return False
    from_0_to_1 = x.min() >= 0 and x.max() <= 1
    return bool(from_0_to_1)


def _pictures(x: Array) -> NDArray[np.uint8]:
    brightness = np.rint(x * 255).astype(np.uint8)
    pictures: NDArray[np.uint8] = brightness.reshape(-1, 28, 28)
    return pictures


Users = dict[str, tuple[NDArray[np.float32], Integers]]
"""The samples and labels of users by name."""


def _users(folder: Path) -> Users:
    """The samples and labels of each user of a part, from all its files."""
    names = [name for name in below(folder) if name.endswith(".json")]
    files = sorted(folder / name for name in names)
    if not files:
        raise DataError(f"{folder}: has no JSON files; LEAF's preprocess.sh writes them to train and test")
    largest = max(file.stat().st_size for file in files)
    refuse_large(folder, EXPANSION * largest)
    users: Users = {}
    for file in files:
        try:
            content = parse_json(read_text(file))
            for user, data in content["user_data"].items():
                if user in users:
                    raise ValueError(f"user {user!r} is in another file too")
                users[user] = _samples(data, f"{file}: user {user!r}")
            _refuse_other(content, users)
        except KeyError as error:
            raise DataError(f"{file}: not a file of LEAF: the key {error} is missing") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{file}: not a file of LEAF: {error}") from None
    with_samples = {}
    for user, (x, y) in users.items():
        if len(y):
            with_samples[user] = (x, y)
    if not with_samples:
        raise DataError(f"{folder}: has no samples")
    return with_samples


def _refuse_other(content: Any, samples: Users) -> None:
    """ValueError unless `users` and `num_samples` agree with `user_data`."""
    users = content["users"]
    counts = content["num_samples"]
    same_users = sorted(users) == sorted(content["user_data"])
    if not same_users or len(counts) != len(users):
        raise ValueError("users, num_samples and user_data have different users")
    for user, count in zip(users, counts, strict=True):
        _, labels = samples[user]
        if count != len(labels):
            raise ValueError(f"num_samples is {count} for user {user!r}, who has {len(labels)} samples")


def _samples(
    data: Any,
    where: str,
) -> tuple[NDArray[np.float32], Integers]:
    """The samples (N, F) and labels (N,) of one user."""
    try:
        x = np.asarray(data["x"])
        y = np.asarray(data["y"])
    except ValueError:
        raise DataError(f"{where}: samples have different lengths") from None
    if len(x) != len(y):
        raise DataError(f"{where}: has {len(x)} samples and {len(y)} labels")
    if not len(x):
        no_samples = np.empty((0, 0), np.float32)
        return no_samples, np.empty(0, np.int64)
    if x.dtype.kind not in "iuf" or x.ndim != 2:
        raise DataError(f"{where}: a sample must be a list of numbers; texts and names of pictures are not read")
    with np.errstate(over="ignore"):  # what is beyond float32 becomes an infinity, which is refused
        x = x.astype(np.float32)
    return x, whole_numbers({"y": y}, where)["y"]
