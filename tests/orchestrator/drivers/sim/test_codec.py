from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from node.algorithms.fedprox import ProximalTerm
from node.algorithms.parameters import FedAvg
from node.learning.aggregation import weighted_mean
from node.learning.evaluation import Evaluation
from node.learning.training import TrainResult
from node.process.standstill import Times
from orchestrator.drivers.sim.codec import CannotCrossError, read, write


def cross(value: Any, *, copy: bool = True, size: int = 1 << 20) -> Any:
    memory = memoryview(bytearray(size))
    return read(memory, write(value, memory), copy=copy)


@pytest.mark.parametrize(
    "value", [None, 3, 2.5, "text", b"bytes", True, [1, [2, None]], {"a": 1, 2: "b"}, (1, (2, "x")), [("a", 1)], {}]
)
def test_plain_values_keep_their_types(value: Any) -> None:
    crossed = cross(value)
    assert crossed == value
    assert type(crossed) is type(value)


def test_numbers_of_numpy_become_pythons() -> None:
    assert cross([np.float64(0.1), np.int64(7), np.bool_(True)]) == [0.1, 7, True]


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(4), np.zeros((0, 3)), np.arange(8)[::2], np.eye(3).T],
)
def test_arrays_cross_bit_by_bit(array: np.ndarray[Any, Any]) -> None:
    for crossed in (cross(array), cross({"w": array})["w"], cross([array, 1])[0]):
        assert crossed.dtype == array.dtype
        assert crossed.shape == array.shape
        np.testing.assert_array_equal(crossed, array)


def test_views_are_read_only_and_copies_are_ones_own() -> None:
    w = {"w": np.ones(3), "b": np.zeros(2)}
    assert not cross(w, copy=False)["w"].flags.writeable
    cross(w)["w"] += 1


def test_records_and_functions_of_node() -> None:
    weights = {"w": np.arange(3.0), "n": np.array(2)}
    result = cross(TrainResult(weights, 10, 2, 0.5))
    assert isinstance(result, TrainResult)
    assert (result.samples, result.steps, result.loss) == (10, 2, 0.5)
    np.testing.assert_array_equal(result.weights["w"], weights["w"])
    records = [Evaluation(1.0, 3, {"accuracy": 0.5}), FedAvg(learning_rate=0.3)]
    assert cross(records) == records
    assert cross(weighted_mean) is weighted_mean
    term = cross(ProximalTerm(weights, 0.1))
    assert term.mu == 0.1
    np.testing.assert_array_equal(term.w_t["n"], 2)


def test_named_tuples_keep_their_names() -> None:
    crossed = cross(Times(1, 2, 3, 4))
    assert crossed == Times(1, 2, 3, 4)
    assert type(crossed) is Times


def test_constants_are_shared_and_keep_their_types() -> None:
    params = FedAvg(learning_rate=0.3)
    first, again = cross([params, params]), cross(params)
    assert first == [params, params]
    assert first[0] is first[1] is again
    whole, real = cross([Evaluation(1, 1, {}), Evaluation(1.0, 1, {})])
    assert type(whole.loss) is int
    assert type(real.loss) is float


@pytest.mark.parametrize(
    "value",
    [
        *(lambda: 1, object(), print, Any, np.complex64(1j), "\ud800"),
        *(np.array([None]), np.zeros(1, "i4, f8"), np.ma.masked_equal([1, 2], 2), {"w": np.ma.masked_equal([1, 2], 2)}),
    ],
    ids=[
        *("lambda", "object", "builtin", "type form", "complex number of numpy", "half of a character"),
        *("array of objects", "structured array", "masked array", "map of masked arrays"),
    ],
)
def test_what_cannot_cross_says_so(value: Any) -> None:
    with pytest.raises(CannotCrossError):
        cross([value])


def test_too_much_does_not_cross() -> None:
    for value in (np.zeros(1000), {"w": np.zeros(1000)}, "x" * 5000):
        with pytest.raises(CannotCrossError, match="more than 4096 bytes"):
            cross(value, size=4096)
