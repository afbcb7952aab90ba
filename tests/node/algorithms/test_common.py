"""An update that cannot be averaged costs its sender an event, and the others nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from node.algorithms.common import average, fitting
from node.messaging.wire import Message

W = {"weight": np.zeros((2, 3), np.float32), "steps": np.array(0)}


class Coordinator:
    """As much of a role as these steps need."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []

    def refuse(self, message: Message, reason: str) -> None:
        self.notes.append((message.sender, reason))

    async def compute(self, fn: Any, *args: Any, mode: str) -> Any:
        return fn(*args)


def update(sender: str, tensors: dict[str, Any] | None = None, round: int | None = 1, **fields: Any) -> Message:
    return Message("update", sender, round, {"samples": 2} | fields, W if tensors is None else tensors)


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (update("b", samples="2"), "has no whole number of samples"),
        (update("b", samples=-1), "has no whole number of samples"),
        (update("b", samples=2.0), "has no whole number of samples"),
        (update("b", samples=True), "has no whole number of samples"),
        (update("b", samples=2**60), "has no whole number of samples"),
        (Message("update", "b", 1, {}, W), "has no whole number of samples"),
        (update("b", round=None), "has no round"),
        (update("b", {}), "does not have the names, types and shapes"),
        (update("b", W | {"more": np.zeros(1)}), "does not have the names, types and shapes"),
        (update("b", W | {"weight": np.zeros((3, 2), np.float32)}), "does not have the names, types and shapes"),
        (update("b", W | {"weight": np.zeros((2, 3), np.int32)}), "does not have the names, types and shapes"),
    ],
)
def test_what_does_not_fit_is_left_out_and_told(odd: Message, reason: str) -> None:
    role: Any = Coordinator()
    ones = {"weight": np.ones((2, 3), np.float32), "steps": np.array(4)}
    mean = asyncio.run(average(role, [update("a", ones), odd], W))
    assert mean["weight"].tolist() == ones["weight"].tolist()
    ((peer, said),) = role.notes
    assert peer == "b"
    assert reason in said


def test_other_counts_and_those_without_samples() -> None:
    role: Any = Coordinator()
    nothing = update("a", {}, samples=0, steps=0)
    fit = fitting(role, [nothing, update("b", steps=3), update("c")], W, "steps")
    assert [each.sender for each in fit] == ["a", "b"]
    assert role.notes == [("c", "has no whole number of steps")]
