"""Entries of a model's state that cannot travel are refused when the model is made."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from node.catalogue.models import ModelEntry
from node.learning.errors import ModelError
from node.learning.models import build


class Layer(nn.Module):
    """A linear layer, and a parameter or a buffer next to it."""

    def __init__(self, parameter: Tensor | None = None, buffer: Tensor | None = None, persistent: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        if parameter is not None:
            self.gain = nn.Parameter(parameter, requires_grad=parameter.is_floating_point() or parameter.is_complex())
        if buffer is not None:
            self.register_buffer("mask", buffer, persistent=persistent)


def made(make: Callable[[], nn.Module]) -> object:
    entry = ModelEntry("own", "a layer", build=lambda *_: make())
    return build("own", (4,), 3, 0, known={"own": entry})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Layer(torch.zeros(2, dtype=torch.complex64)),
            r"parameter extractor.gain, of type complex64",
        ),
        (
            lambda: Layer(torch.zeros(2, dtype=torch.bfloat16)),
            r"parameter extractor.gain, of type bfloat16",
        ),
        (
            lambda: Layer(buffer=torch.zeros(2, dtype=torch.float8_e4m3fn)),
            r"buffer extractor.mask, of type float8_e4m3fn",
        ),
        (lambda: Layer(torch.zeros(2, device="meta")), r"the parameter extractor.gain.*device meta"),
        (lambda: Layer(buffer=torch.eye(3).to_sparse()), r"extractor.mask, which is sparse \(sparse_coo\)"),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)),
            r"parameter extractor.1.weight, whose size is unknown",
        ),
        (
            lambda: Layer(buffer=torch.tensor([0.0, -math.inf])),
            r"extractor.mask, which holds NaN.*persistent=False",
        ),
        (lambda: Layer(torch.tensor([math.nan])), "the parameter extractor.gain, which holds NaN.*finite values"),
    ],
)
def test_what_cannot_travel(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ModelError, match=f"model own has .*{message}"):
        made(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Layer(torch.zeros(2, dtype=torch.float64)),
        lambda: Layer(torch.zeros(4, 3).T),  # not contiguous
        lambda: Layer(buffer=torch.tensor([True, False])),
        lambda: Layer(buffer=torch.zeros(2, dtype=torch.int16)),
        lambda: Layer(buffer=torch.tensor([-math.inf]), persistent=False),
        lambda: Layer(buffer=torch.zeros(2, dtype=torch.complex64), persistent=False),
    ],
)
def test_what_travels_or_stays(make: Callable[[], nn.Module]) -> None:
    made(make)
