"""The data of the conformance tests."""

from __future__ import annotations

import pytest

from node.learning.data.datasets import Prepared, prepare


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare("digits", tmp_path_factory.getbasetemp() / "data")
