from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from node.learning.data.shards import read_indices
from node.learning.errors import DataError


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16, ">i8", np.uint8])
def test_indices_are_those_that_numpy_wrote(tmp_path: Path, kind: Any) -> None:
    arrays: dict[str, Any] = {"one": np.array([5, 3, 250], kind), "none": np.array([], kind), "other": np.arange(9)}
    np.savez(tmp_path / "shards.npz", **arrays)
    one, absent, none = read_indices(tmp_path / "shards.npz", ("one", None, "none"))
    assert absent is None
    for found, written in ((one, arrays["one"]), (none, arrays["none"])):
        assert found is not None
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, written)


@pytest.mark.parametrize("array", [np.zeros((2, 2), np.int64), np.zeros(3, [("x", np.int64)]), np.array(7)])
def test_another_form_of_array_is_refused(tmp_path: Path, array: Any) -> None:
    arrays: dict[str, Any] = {"one": array}
    np.savez(tmp_path / "shards.npz", **arrays)
    with pytest.raises(DataError, match="not an array of one dimension"):
        read_indices(tmp_path / "shards.npz", ("one",))
