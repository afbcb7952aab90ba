"""Notes on a plan: when there is one, and its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.planning.learning.memory import FRAMEWORK
from orchestrator.planning.making import make_plan
from orchestrator.planning.notes import of_clients_at_once, of_data, of_files, of_images, of_links, of_memory, of_mtus
from orchestrator.planning.plan import NodePlan
from orchestrator.scenario.reading import parse
from orchestrator.scenario.sections.drivers import DriverKind, kind_of

MODEL = 3_000_000  # bytes for training


def device(memory: int) -> NodePlan:
    node = make_plan(parse("algorithm: fedavg\ntopology: {devices: 1}\n", "f.yaml"), None).node("device-0")
    return replace(node, hardware=replace(node.hardware, memory=memory))


@pytest.mark.parametrize(
    ("memory", "driver", "words"),
    [
        (MODEL + FRAMEWORK, "namespaces", None),
        (MODEL + FRAMEWORK - 1, "namespaces", "which do not count"),
        (MODEL, "namespaces", "which do not count"),
        (MODEL - 1, "namespaces", "run out of memory"),
        (MODEL + FRAMEWORK - 1, "docker", "run out of memory"),
        (MODEL, "sim", "no limits of memory"),
    ],
)
def test_memory_is_noted_if_it_is_less_than_training_needs(memory: int, driver: str, words: str | None) -> None:
    notes = list(of_memory([device(memory)], {"device-0": MODEL}, kind_of(driver)))
    assert len(notes) == (words is not None)
    assert words is None or words in notes[0]


def test_one_class_without_samples_is_noted_as_one() -> None:
    assert "samples of class 3 of" in "".join(of_data([3], []))
    assert "samples of classes 3, 4 of" in "".join(of_data([3, 4], []))


def test_clients_train_at_once_in_a_simulation_only() -> None:
    assert list(of_clients_at_once(1, kind_of("namespaces"))) == []
    assert list(of_clients_at_once(2, kind_of("sim"))) == []
    (note,) = of_clients_at_once(2, kind_of("namespaces"))
    assert "the driver sim trains 2 clients" in note


def test_a_link_has_two_directions() -> None:
    (note,) = of_mtus(6, kind_of("sim"))
    assert note.endswith("the mtu of 3 links")
    assert list(of_mtus(6, kind_of("namespaces"))) == []


def test_links_that_a_driver_does_not_shape() -> None:
    unshaped = DriverKind("plain", "", shapes_links=False)
    (note,) = of_links(6, unshaped)
    assert "plain" in note
    assert "6 link directions" in note
    assert list(of_links(0, unshaped)) == []
    assert list(of_links(6, kind_of("namespaces"))) == []


def test_the_drivers_that_use_images_are_named() -> None:
    (note,) = of_images(["mine"], kind_of("sim"))
    assert "docker" in note
    assert "namespaces" not in note


def test_rows_that_are_not_used_are_noted() -> None:
    """A file has a name, and a trace another one."""
    files = {"file": {"csv": "a.csv", "rows": 3, "used": 2}, "availability": {"trace": "b.csv", "rows": 9, "used": 1}}
    assert [note.partition(" has ")[0] for note in of_files(files)] == ["a.csv", "b.csv"]
    assert list(of_files({"file": {"csv": "a.csv", "rows": 3, "used": 3}})) == []
