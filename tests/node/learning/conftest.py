from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from node.learning.data.datasets import Prepared, prepare
from node.learning.errors import DataNotFound


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare("digits", tmp_path_factory.getbasetemp() / "data")


@pytest.fixture(scope="session")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare_or_skip("mnist", tmp_path_factory)


@pytest.fixture(scope="session")
def har(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare_or_skip("har", tmp_path_factory)


def prepare_or_skip(name: str, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A data set that only some machines have, in a folder that EDGEBED_DATA names."""
    try:
        return prepare(name, tmp_path_factory.getbasetemp() / "data", download=False)
    except DataNotFound:
        pytest.skip(f"no {name}: EDGEBED_DATA is {os.environ.get('EDGEBED_DATA', 'not set')!r}")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"
