"""An update that cannot be averaged costs its sender an event, and the others nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from node.algorithms.common import average, fitting, report_mean
from node.algorithms.registry import ALGORITHMS
from node.learning.data.datasets import Prepared
from node.messaging.wire import Message
from node.parameters import read_parameters
from node.role import Role
from node.testing import Federation, hierarchy, star

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
        (update("b", {}), "does not have the names, types"),
        (update("b", W | {"more": np.zeros(1)}), "does not have the names, types"),
        (update("b", W | {"weight": np.zeros((3, 2), np.float32)}), "does not have the names, types"),
        (update("b", W | {"weight": np.zeros((2, 3), np.int32)}), "does not have the names, types"),
    ],
)
def test_what_does_not_fit_is_left_out_and_reported(odd: Message, reason: str) -> None:
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


LITERAL: dict[str, Any] = {"base": "fednova", "normalisation": "algorithm-4", "exchange": False, "epochs_max": 1}
SHORT = {"inner_rounds": 1, "generator_steps": 1}
SILOS = hierarchy([1, 1], cloud=False)


@pytest.mark.parametrize(
    ("name", "tree", "sender", "kind", "params"),
    [
        ("phe-fl", hierarchy([1, 1, 1]), "edge-2", "update", {}),
        ("edgecloud", hierarchy([1, 1, 1]), "edge-0", "update", {}),  # the first of the messages
        ("fedfeat", star(2), "device-1", "update", {"batch_size": 16, "features": "averaged"}),
        ("fededs", star(2, "edge"), "edge-0", "update", LITERAL),
        ("feelpgen", SILOS, "device-0-0", "update", SHORT),
        ("feelpgen", SILOS, "edge-0", "silo", SHORT),
    ],
)
def test_a_model_that_does_not_fit_ends_no_node(
    name: str,
    tree: Mapping[str, str | None],
    sender: str,
    kind: str,
    params: dict[str, Any],
    digits: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sends, sent = Role.send, set[tuple[str, str]]()

    async def send(role: Role, to: Any, what: str, tensors: Any = None, **more: Any) -> None:
        sent.add((role.name, what))
        await sends(role, to, what, {"odd": np.zeros(1)} if (role.name, what) == (sender, kind) else tensors, **more)

    monkeypatch.setattr(Role, "send", send)
    chosen = read_parameters(ALGORITHMS[name].params, params)
    run = Federation(digits, tree, name, chosen, tmp_path, rounds=2, personal=0.2).run()
    refusals = [each for journal in run.journals.values() for each in journal.events if each[0] == "bad_message"]
    assert refusals
    assert {fields["peer"] for *_, fields in refusals} == {sender}
    assert (sender, "features") not in sent  # of an update that is left out, FedFeat+ asks no features


class Reporting:
    """As much of a role as `report_mean` needs, with what it reports."""

    def __init__(self) -> None:
        self.client_reports: dict[str, dict[str, float]] = {}
        self.reported: list[dict[str, float | str]] = []
        self.learner: Any = SimpleNamespace(data=SimpleNamespace(task="classification"))

    def report(self, round: int, **values: float | str) -> None:
        self.reported.append(values)


def evaluated_by(client: str, found: dict[str, Any]) -> Message:
    return Message("update", client, 1, {"samples": 2} | found, W)


def test_metrics_of_classes_are_means_over_the_clients_that_have_them() -> None:
    """Client a has no test samples of class 3. Client b, which is away in round 2, counts with its last report."""
    role: Any = Reporting()
    a = evaluated_by("a", {"global": 0.5, "own": 0.25, "own.macro_f1": 0.2})
    b = evaluated_by("b", {"global": 0.7, "own": 0.75, "own.macro_f1": 0.4, "own.recall_3": 1.0})
    report_mean(role, [a, b], 1)
    report_mean(role, [a], 2)
    of_own = {"accuracy": 0.5, "clients": 2, "macro_f1": pytest.approx(0.3), "recall_3": 1.0, "scope": "own"}
    assert role.reported[1] == role.reported[3] == of_own
    assert role.reported[0] == {"accuracy": pytest.approx(0.6), "clients": 2, "scope": "global"}
