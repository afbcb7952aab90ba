from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.errors import HostError
from orchestrator.planning.data import cache_directory, looked_up, prepare_data
from orchestrator.scenario.schema import DataSpec


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEBED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def spec(*datasets: str, **fields: str) -> DataSpec:
    return DataSpec.model_validate({"dataset": list(datasets), **fields})


def test_the_first_data_set_that_is_here_is_taken(cache: Path, tmp_path: Path) -> None:
    missing = "npz:nowhere.npz"
    assert cache_directory() == cache
    assert prepare_data(spec(missing, "digits"), tmp_path).name == "digits"


def test_none_is_an_error_that_lists_the_places(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"data.dataset: .*nowhere.npz"):
        prepare_data(spec("npz:nowhere.npz"), tmp_path)


def test_paths_are_relative_to_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    x, y = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "mine" / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert prepare_data(spec("npz:data.npz"), tmp_path / "mine").classes == 2
    assert prepare_data(spec("npz:data.npz", path="mine"), tmp_path).classes == 2


def test_looking_up_leaves_no_trace(cache: Path, tmp_path: Path) -> None:
    with looked_up(spec("digits"), tmp_path) as prepared:
        assert len(prepared.train_labels) > 1000
        directory = prepared.directory
    assert not directory.exists()
    assert not cache.exists()
