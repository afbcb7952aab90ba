"""Averaging of model states: dicts of named numpy arrays, as in messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.learning.errors import AggregationError

State = dict[str, NDArray[Any]]
"""A model as named arrays."""

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # names of batch normalisation's buffers


def weighted_mean(
    states: Sequence[Mapping[str, NDArray[Any]]],
    weights: Sequence[float],
) -> State:
    """Σ_k (n_k / n) w_k over states w_k with weights n_k, n = Σ_k n_k (McMahan 2017, Algorithm 1).

    Float entries, with batch normalisation's running statistics, are summed in double precision in the given order and
    returned in their own type. Integer entries (counters) take the maximum. The caller sorts the states, so that the
    result does not depend on the order of arrival. Raises AggregationError naming the place of a state that differs in
    names, shapes or types from the first.
    """
    _check(states, weights)
    total = float(sum(weights))
    mean: State = {}
    for name, first in states[0].items():
        if first.dtype.kind == "f":
            summed = np.zeros(first.shape, dtype=np.float64)
            for state, weight in zip(states, weights, strict=True):
                summed += state[name] * np.float64(weight / total)
            mean[name] = summed.astype(first.dtype)
        else:
            entries = [state[name] for state in states]
            mean[name] = np.asarray(np.maximum.reduce(entries))
    return mean


def _check(
    states: Sequence[Mapping[str, NDArray[Any]]],
    weights: Sequence[float],
) -> None:
    if not states or len(states) != len(weights):
        raise AggregationError(f"{len(states)} states and {len(weights)} weights: there must be as many, and not none")
    for place, weight in enumerate(weights):
        valid = np.isfinite(weight) and weight >= 0
        if not valid:
            raise AggregationError(f"state {place} has weight {weight}; weights are finite and not negative")
    if sum(weights) <= 0:
        raise AggregationError("all weights are 0: no client has samples")
    first = states[0]
    for place, state in enumerate(states):
        if state.keys() != first.keys():
            odd = sorted(state.keys() ^ first.keys())
            raise AggregationError(f"state {place} does not have the names of state 0: {', '.join(odd)}")
        for name, values in state.items():
            expected = first[name]
            if values.shape != expected.shape or values.dtype != expected.dtype:
                raise AggregationError(
                    f"state {place}: {name} is {values.dtype} {values.shape}, "
                    f"in state 0 {expected.dtype} {expected.shape}"
                )
