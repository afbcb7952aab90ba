from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from node.learning.errors import DataNotFound
from orchestrator.errors import HostError, PlanError
from orchestrator.planning.learning import dataset
from orchestrator.planning.learning.dataset import cache_directory, looked_up, prepare_data
from orchestrator.scenario.sections.data import DataSpec
from tests.texts import containing


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEBED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def spec(*datasets: str, **fields: object) -> DataSpec:
    return DataSpec.model_validate({"dataset": list(datasets), **fields})


def test_the_first_data_set_that_is_here_is_taken(cache: Path, tmp_path: Path) -> None:
    missing = "npz:nowhere.npz"
    assert cache_directory() == cache
    assert prepare_data(spec(missing, "digits"), tmp_path).name == "digits"


def test_prepared_data_is_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEBED_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "edgebed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "home" / ".cache" / "edgebed"


def test_only_the_last_data_set_is_downloaded_and_none_to_look_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def prepare(name: str, *_: object, download: bool, **settings: object) -> None:
        tried.append((name, download))
        raise DataNotFound(name)

    monkeypatch.setattr(dataset, "prepare", prepare)
    both = spec("fashion-mnist", "digits")
    with pytest.raises(PlanError):
        prepare_data(both, tmp_path)
    assert tried == [("fashion-mnist", False), ("digits", True)]
    tried.clear()
    with pytest.raises(PlanError), looked_up(both, tmp_path):
        raise AssertionError
    assert tried == [("fashion-mnist", False), ("digits", False)]


def test_none_is_an_error_that_lists_the_places(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        prepare_data(spec("npz:nowhere.npz", "images:nowhere"), tmp_path)
    here = Path.cwd()
    assert str(caught.value) == (
        containing(
            "data.dataset: data set npz:nowhere.npz",
            f"{here}/nowhere.npz or {tmp_path}/nowhere.npz",
            "images:nowhere",
            f"{here}/nowhere or {tmp_path}/nowhere",
        )
    )


def test_a_place_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError, match=f"^data.dataset: data set npz:mine.npz: no file at {tmp_path}/mine.npz$"):
        prepare_data(spec("npz:mine.npz"), Path())


@pytest.mark.parametrize("path", ["nowhere", "x" * 300])  # the second is no name that a file can have
def test_a_path_that_leads_nowhere_is_refused_also_where_it_is_not_needed(path: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=f"^data.path: there is nothing at {tmp_path}/{path}$"):
        prepare_data(spec("digits", path=path), tmp_path)


def test_a_broken_data_set_is_reported_as_one(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    with pytest.raises(PlanError, match=r"^data\.dataset: .*broken\.npz"):
        prepare_data(spec("npz:broken.npz"), tmp_path)


def test_a_cache_that_cannot_be_made_is_the_hosts_fault(cache: Path, tmp_path: Path) -> None:
    cache.write_text("in the way")
    with pytest.raises(HostError, match=r"digits .* \((Not a directory|File exists)\): .*EDGEBED_CACHE"):
        prepare_data(spec("digits"), tmp_path)


def test_paths_are_relative_to_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    x, y = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "mine" / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert prepare_data(spec("npz:data.npz"), tmp_path / "mine").classes == 2
    assert prepare_data(spec("npz:data.npz", path="mine"), tmp_path).classes == 2


def test_the_columns_of_a_table_are_those_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "houses.csv").write_text("rooms,area,price\n" + "3,70.5,200000\n" * 10)
    columns = {"target": "price", "inputs": ["rooms"], "task": "regression"}
    data = prepare_data(spec("csv:nowhere.csv", "csv:houses.csv", columns=columns), tmp_path)
    assert (data.task, data.shape) == ("regression", (1,))
    assert data.array("y_train")[0].tolist() == [200_000]
    assert prepare_data(spec("csv:houses.csv", columns="rooms"), tmp_path).shape == (2,)


def test_looking_up_leaves_no_trace(cache: Path, tmp_path: Path) -> None:
    with looked_up(spec("digits"), tmp_path) as prepared:
        assert len(prepared.train_labels) > 1000
        directory = prepared.directory
    assert not directory.exists()
    assert not cache.exists()


@pytest.mark.parametrize("name", ["My set (2).npz", "данные.npz", f"{'n' * 250}.npz"])
def test_looking_up_uses_what_is_cached_and_adds_nothing(cache: Path, tmp_path: Path, name: str) -> None:
    """Also for names that are no names of folders, and for a file that changed since."""
    x, y = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 0, 1])
    np.savez(tmp_path / name, x_train=x, y_train=y, x_test=x, y_test=y)
    kept = prepare_data(spec(f"npz:{name}"), tmp_path)
    with looked_up(spec(f"npz:{name}"), tmp_path) as prepared:
        assert prepared.directory == kept.directory
    np.savez(tmp_path / name, x_train=x, y_train=1 - y, x_test=x, y_test=y)
    with looked_up(spec(f"npz:{name}"), tmp_path) as prepared:
        assert prepared.train_labels.tolist() == [1, 0, 1, 0]
        assert prepared.directory.parent != cache
    assert list(cache.iterdir()) == [kept.directory]
