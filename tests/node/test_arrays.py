"""Values of plug-ins that NumPy can and cannot hold, and what is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from node.algorithms.common import _form
from node.arrays import as_array
from node.messaging.finite import unsendable
from tests.texts import containing

ONES = torch.ones(2)


@pytest.mark.parametrize("value", [ONES, np.ones(2), [1.0, 1.0]])
def test_arrays_tensors_and_lists(value: Any) -> None:
    assert as_array(value).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ONES.bfloat16(), "is a Tensor of type torch.bfloat16, .*; use value.detach"),
        (torch.nn.Parameter(ONES), "is a Parameter of type torch.float32, .*; use value.detach"),
        (ONES.to_sparse(), "is a Tensor of type torch.float32, .*; use value.to_dense"),
    ],
)
def test_what_numpy_cannot_hold(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_array(value)


def test_a_model_of_tensors_has_the_form_of_its_arrays() -> None:
    assert _form({"w": ONES}) == _form({"w": ONES.numpy()})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("tensors", "round", "problem"),
    [
        (None, None, None),
        ({"w": ONES}, 1, None),
        ({"w": ONES}, np.int64(1), None),
        ([ONES], 1, containing("tensors in a list")),
        ({1: ONES}, 1, containing("names a tensor 1")),
        (None, "one", containing("round 'one', a str")),
    ],
)
def test_a_message_that_cannot_be_sent(tensors: object, round: object, problem: str | None) -> None:
    assert unsendable(tensors, round) == problem
