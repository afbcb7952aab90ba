from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from node.learning.aggregation import State, weighted_mean
from node.learning.errors import AggregationError


def state(**values: Any) -> State:
    return {name: np.asarray(value, dtype=np.float32) for name, value in values.items()}


def test_two_states_worked_example() -> None:
    # 3/4 of [[1, 2], [3, 4]] and 1/4 of [[5, 6], [7, 8]]: [[2, 3], [4, 5]].
    mean = weighted_mean([state(w=[[1, 2], [3, 4]]), state(w=[[5, 6], [7, 8]])], [30, 10])
    assert mean["w"].tolist() == [[2, 3], [4, 5]]
    assert mean["w"].dtype == np.float32


def test_counters_take_the_maximum_and_running_statistics_are_averaged() -> None:
    first = state(mean=[0.0]) | {"batches": np.array(7)}
    second = state(mean=[1.0]) | {"batches": np.array(3)}
    mean = weighted_mean([first, second], [1, 1])
    assert mean["mean"].tolist() == [0.5]
    assert mean["batches"] == 7
    assert mean["batches"].dtype == np.int64
    assert all(isinstance(values, np.ndarray) for values in mean.values())


def test_double_precision_inside() -> None:
    # In single precision 1e8 + 1 is 1e8; the ones would be lost.
    states = [state(w=[1e8]), state(w=[1.0]), state(w=[1.0]), state(w=[-1e8])]
    assert weighted_mean(states, [1, 1, 1, 1])["w"].tolist() == [0.5]


def test_no_one_is_changed() -> None:
    states = [state(w=[1.0]), state(w=[3.0])]
    weighted_mean(states, [1, 1])
    assert [s["w"].tolist() for s in states] == [[1.0], [3.0]]


@given(
    values=st.lists(arrays(np.float32, (2, 2), elements=st.floats(-100, 100, width=32)), min_size=1, max_size=5),
    data=st.data(),
)
def test_between_the_extremes_and_nearly_free_of_order(values: list[np.ndarray[Any, Any]], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(1, 1000), min_size=len(values), max_size=len(values)))
    mean = weighted_mean([{"w": v} for v in values], weights)["w"]
    assert (mean <= np.max(values, axis=0) + 1e-4).all()
    assert (mean >= np.min(values, axis=0) - 1e-4).all()
    turned = weighted_mean([{"w": v} for v in values[::-1]], weights[::-1])["w"]
    np.testing.assert_allclose(mean, turned, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("states", "weights", "message"),
    [
        ([], [], "0 states and 0 weights"),
        ([state(w=[1])], [1, 2], "1 states and 2 weights"),
        ([state(w=[1]), state(w=[1])], [0, 0], "no client has samples"),
        ([state(w=[1]), state(w=[1])], [1, -1], "state 1 has weight -1"),
        ([state(w=[1]), state(v=[1])], [1, 1], r"state 1 .* state 0: v, w"),
        ([state(w=[1]), state(w=[1, 2])], [1, 1], r"state 1: w is float32 \(2,\)"),
    ],
)
def test_states_that_cannot_be_averaged(states: list[State], weights: list[float], message: str) -> None:
    with pytest.raises(AggregationError, match=message):
        weighted_mean(states, weights)
