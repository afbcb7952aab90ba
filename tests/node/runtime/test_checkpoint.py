from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import CheckpointError
from node.runtime.checkpoint import checkpoint_path, load, packed, write


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


def test_it_may_hold_the_models_of_many_nodes(tmp_path: Path) -> None:
    path, tensors = checkpoint_path(tmp_path, "cloud"), 100 * 122  # 100 of a resnet18
    keep(path, "cloud", 1, {f"edge-{place}": np.zeros(1, np.uint8) for place in range(tensors)}, {})
    got = load(path)
    assert got is not None
    assert len(got.tensors) == tensors


def test_a_crash_while_saving_leaves_the_old_one(tmp_path: Path) -> None:
    path = checkpoint_path(tmp_path, "cloud")
    keep(path, "cloud", 1, {}, {})
    path.with_name(path.name + ".new").write_bytes(b"half a check")
    got = load(path)
    assert got is not None
    assert got.round == 1


def test_none_is_none(tmp_path: Path) -> None:
    assert load(tmp_path / "absent") is None


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cloud")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(tmp_path / "cloud")


def test_a_damaged_one_is_refused_by_name(tmp_path: Path) -> None:
    path = checkpoint_path(tmp_path, "cloud")
    keep(path, "cloud", 1, {"w": np.zeros(3)}, {})
    good = path.read_bytes()
    for bad in (b"", b"EBCP", good[:-1], good + b"x", b"x" + good[1:], good[:20] + b"\xc1" + good[21:]):
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"cloud\.checkpoint: not a checkpoint .*; delete it"):
            load(path)


SMALL = {"w": np.arange(6, dtype=np.float32), "n": np.array(2)}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = checkpoint_path(tmp_path_factory.mktemp("checkpoints"), "cloud")
    keep(path, "cloud", 3, SMALL, {"best": 0.5})
    return path


@settings(max_examples=300)
@given(st.data())
def test_any_flipped_bit_is_found(small: Path, data: st.DataObject) -> None:
    good = small.read_bytes()
    bit = data.draw(st.integers(0, 8 * len(good) - 1))
    flipped = bytearray(good)
    flipped[bit // 8] ^= 1 << bit % 8
    damaged = small.with_name("damaged.checkpoint")
    damaged.write_bytes(flipped)
    with pytest.raises(CheckpointError, match=r"damaged\.checkpoint: not a checkpoint .*; delete it"):
        load(damaged)


def test_one_of_the_format_without_a_checksum_is_refused_by_its_version(tmp_path: Path) -> None:
    path = tmp_path / "cloud.checkpoint"
    header, *parts = packed("cloud", 3, SMALL, {})
    body = b"".join(parts)
    path.write_bytes(b"EBCP" + struct.pack(">QQ", len(header), len(body)) + bytes(header) + body)
    with pytest.raises(CheckpointError, match="of version 0"):
        load(path)


def test_a_round_beyond_the_runs_last_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cloud.checkpoint"
    keep(path, "cloud", 1_000_000_000, {}, {})
    with pytest.raises(CheckpointError, match=r"round 1000000000.*a run of 40\)"):
        load(path, 40)
    keep(path, "cloud", 40, {}, {})
    assert load(path, 40) is not None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_diverged_training_is_not_continued(tmp_path: Path, value: float) -> None:
    path = tmp_path / "cloud.checkpoint"
    keep(path, "cloud", 7, {"w": np.array([1.0, value])}, {})
    with pytest.raises(CheckpointError, match="tensor 'w' is not"):
        load(path)
