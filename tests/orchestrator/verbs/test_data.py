"""`data`: what this host has, and how to get the rest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from node.catalogue.datasets import DATASETS
from node.learning.data import downloads
from orchestrator.cli.main import cli
from orchestrator.errors import HostError, MistakeError
from tests.texts import containing


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EDGEBED_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "cache"


def data(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["data", *map(str, words)])


def test_the_list_says_where_each_is_or_how_to_get_it(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    np.savez(tmp_path / "mine" / "har.npz", x_train=np.zeros(1))
    told = json.loads(data("--json").stdout)
    found = {each["name"]: each["found"] for each in told["datasets"]}
    assert found["digits"] == DATASETS["digits"].where
    assert found["har"] == str(tmp_path / "mine" / "har.npz")
    assert found["cifar10"] is None
    assert told["searched"][0] == str(tmp_path / "mine")
    assert told["searched"][-1] == str(cache / "downloads")
    table = data().output
    assert "missing: run `edgebed data cifar10` while online, or set data.path" in table
    assert f"searched, after the scenario's folder: {tmp_path / 'mine'}, " in table
    assert not cache.exists()


def test_one_is_checked_and_prepared(cache: Path) -> None:
    told = json.loads(data("digits", "--json").stdout)
    assert told["samples"] == {"train": 1437, "test": 360}
    assert Path(told["folder"]).parent == cache
    done = data("digits")
    assert done.stdout == containing("digits: 1,437 training", "360 test samples, ready")
    assert told["sha256"] in done.stderr
    assert data("digits", "-q").stderr == ""


@pytest.mark.usefixtures("cache")
def test_one_that_is_missing_and_cannot_be_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str, directory: Path) -> Path:
        raise OSError("no route to host")

    monkeypatch.setattr(downloads, "download", offline)
    error = data("cifar10").exception
    assert isinstance(error, HostError)
    assert "no data set cifar10" in str(error)
    assert "the network (no route to host)" in str(error)


@pytest.mark.usefixtures("cache")
def test_names_that_do_not_exist_and_files_that_are_broken(tmp_path: Path) -> None:
    unknown = data("mnst").exception
    assert isinstance(unknown, MistakeError)
    assert "did you mean 'mnist'?" in str(unknown)
    (tmp_path / "mine.npz").write_text("text")
    broken = data(f"npz:{tmp_path / 'mine.npz'}").exception
    assert isinstance(broken, HostError)
    assert "not an npz file" in str(broken)


def test_a_cache_that_cannot_be_written(cache: Path) -> None:
    cache.write_text("a file")
    assert "in the variable EDGEBED_CACHE" in str(data("digits").exception)
