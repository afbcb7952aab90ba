from __future__ import annotations

import numpy as np
import pytest

from node.errors import NodeError
from node.messaging.finite import not_finite, reportable, unsendable, unusual


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


def test_one_number_or_text_is_reported_as_pythons_own() -> None:
    for value in (3, 0.5, "text", True):
        assert reportable("x", value) is value
    of_numpy: list[tuple[object, object]] = [
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.array([2.0]), 2.0),
        (np.bool_(True), True),
    ]
    for other, plain in of_numpy:
        found = reportable("x", other)
        assert (found, type(found)) == (plain, type(plain))
    for wrong in (np.zeros(2), None, [1], 1j):
        with pytest.raises(NodeError, match="x is a"):
            reportable("x", wrong)


@pytest.mark.parametrize(
    ("tensors", "round", "why"),
    [
        (None, None, None),
        ({}, 0, None),
        ({"w": 1}, np.int64(3), None),
        ([1], None, "tensors in a list"),
        ({1: 2}, None, "names a tensor 1"),
        ({}, 1.0, "round 1.0, a float"),
        ({}, "1", "round '1', a str"),
        (None, True, "round True, a bool"),
    ],
)
def test_what_a_message_may_hold(tensors: object, round: object, why: str | None) -> None:
    found = unsendable(tensors, round)
    assert (found is None) if why is None else (why in (found or ""))
