from __future__ import annotations

import numpy as np
import pytest

from node.messaging.finite import not_finite, unusual


def test_the_first_tensor_that_is_not_finite_is_named() -> None:
    fine = np.ones((2, 3), np.float32)
    assert not_finite({"a": fine, "b": np.arange(3), "c": np.empty(0)}) is None
    assert not_finite({"a": fine, "b": np.array([1, np.nan]), "c": np.array([np.inf])}) == "b"
    assert not_finite({"both": np.array([np.inf, -np.inf], np.float32)}) == "both"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_largest_numbers_are_finite_though_their_sum_is_not(dtype: type[np.floating]) -> None:
    assert not_finite({"w": np.full(8, np.finfo(dtype).max)}) is None


def test_only_numbers_are_unusual() -> None:
    assert unusual({"loss": float("nan"), "scope": "train", "accuracy": 0.1, "steps": 3, "x": float("-inf")}) == [
        "loss",
        "x",
    ]
