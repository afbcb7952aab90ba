from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from node.checkpoint import checkpoint_path, load, packed, write
from node.errors import CheckpointError


def keep(path: Path, node: str, round: int, tensors: dict[str, np.ndarray], fields: dict[str, float]) -> None:
    write(path, packed(node, round, tensors, fields))


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = checkpoint_path(tmp_path / "checkpoints", "cloud")
    keep(path, "cloud", 3, {"w": np.arange(5, dtype=np.float32), "n": np.array(2)}, {"best": 0.5})
    got = load(path)
    assert got is not None
    assert (got.round, got.fields) == (3, {"best": 0.5})
    assert got.tensors["w"].tolist() == [0, 1, 2, 3, 4]
    assert got.tensors["n"] == 2
    assert got.tensors["w"].flags.aligned


def test_a_later_one_replaces_it_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = checkpoint_path(tmp_path, "cloud")
    for round in (1, 2):
        keep(path, "cloud", round, {}, {})
    got = load(path)
    assert got is not None
    assert got.round == 2
    assert list(tmp_path.iterdir()) == [path]


def test_a_crash_while_saving_leaves_the_old_one(tmp_path: Path) -> None:
    path = checkpoint_path(tmp_path, "cloud")
    keep(path, "cloud", 1, {}, {})
    path.with_name(path.name + ".new").write_bytes(b"half a check")
    got = load(path)
    assert got is not None
    assert got.round == 1


def test_none_is_none(tmp_path: Path) -> None:
    assert load(tmp_path / "absent") is None


def test_a_damaged_one_is_refused_by_name(tmp_path: Path) -> None:
    path = checkpoint_path(tmp_path, "cloud")
    keep(path, "cloud", 1, {"w": np.zeros(3)}, {})
    good = path.read_bytes()
    for bad in (b"", b"EBCP", good[:-1], good + b"x", b"x" + good[1:], good[:20] + b"\xc1" + good[21:]):
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"cloud\.checkpoint: not a checkpoint .*; delete it"):
            load(path)
