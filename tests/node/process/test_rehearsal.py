from __future__ import annotations

import os
import threading
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from node.assignment import Assignment, DataAssignment
from node.learning.data.datasets import prepare
from node.learning.training import Learner
from node.process.rehearsal import Rehearsal
from tests.node.assignments import Nodes


@pytest.fixture
def device(tmp_path: Path) -> Assignment:
    digits = prepare("digits", tmp_path / "cache")
    indices: dict[str, Any] = {"device-0": np.arange(20)}
    np.savez(tmp_path / "shards.npz", **indices)
    data = DataAssignment(
        dataset="digits", directory=str(digits.directory), shards=str(tmp_path / "shards.npz"), train_key="device-0"
    )
    return Nodes("device-0").assignment("device-0", {}, data=data)


def in_another_thread(learner: Learner) -> tuple[object, dict[str, object]]:
    """The model that a node's computing thread would train, and its weights."""
    found: list[tuple[object, dict[str, object]]] = []
    thread = threading.Thread(target=lambda: found.append((learner.model, dict(learner.get()))))
    thread.start()
    thread.join()
    return found[0]


def test_a_node_takes_over_the_rehearsed_model_with_its_initial_weights(device: Assignment) -> None:
    rehearsal = Rehearsal.of(device)
    rehearsed = rehearsal.models.model
    rehearsal.models.hand_on()
    node = Learner.from_assignment(device, rehearsal.models_of(replace(device, node="device-1")))
    model, weights = in_another_thread(node)
    assert model is rehearsed
    fresh = Learner.from_assignment(device).initial()
    assert weights.keys() == fresh.keys()
    for name, values in fresh.items():
        np.testing.assert_array_equal(weights[name], values)


@pytest.mark.parametrize("other", [{"model": "mlp"}, {"model_params": {"hidden": 8}}, {"device": "cuda"}])
def test_a_node_with_another_model_makes_its_own(device: Assignment, other: dict[str, Any]) -> None:
    rehearsal = Rehearsal(device.model_kind, object())
    assert rehearsal.models_of(device) is rehearsal.models
    assert rehearsal.models_of(replace(device, **other)) is None


def test_a_rehearsal_leaves_one_thread(device: Assignment) -> None:
    """A process with several threads does not fork safely. The exit code of the fork is their number, plus 40."""

    def rehearse() -> None:
        Rehearsal.of(device)
        os._exit(40 + len(os.listdir("/proc/self/task")))

    process = get_context("fork").Process(target=rehearse)
    process.start()
    process.join()
    assert process.exitcode == 41
