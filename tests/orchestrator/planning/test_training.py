"""What a plan says of training before the data is read, and of classes that no node holds."""

from __future__ import annotations

import dataclasses

import pytest

from node.catalogue.datasets import Form
from node.catalogue.sizes import Size
from orchestrator.planning.gathering import System, round_work
from orchestrator.planning.learning.deadlines import RoundWork, TierNodes, deadlines
from orchestrator.planning.learning.model_size import model_sizes
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared


@pytest.mark.parametrize("dataset", ["digits", "npz:file.npz"])
def test_a_plan_without_data_has_nodes_without_samples(dataset: str) -> None:
    """The form of digits is known by its name. That of a file is not: its model has no size, and a sample is one number
    of one class."""
    text = f'algorithm: fedavg\ndata: {{dataset: "{dataset}"}}\nmodel: mlp\ntopology: {{devices: 2}}\n'
    scenario = parse(text, "f.yaml")
    made = make_plan(scenario, None)
    form = Form((1,), 1)
    sizes = [Size(0)]
    if dataset == "digits":
        form = Form((1, 8, 8), 10)
        sizes = model_sizes(scenario, form)
    assert made.model_bytes == sizes[0].bytes
    speed = made.node("device-0").hardware.expected_speed
    clients = TierNodes(count=2, speed=speed, samples=0, tests=0)
    work = RoundWork(sizes, form.shape, form.classes, clients, None)
    system = System(made.nodes, {}, population=None, clients=None)
    assert round_work(scenario, system, sizes, form, None) == work
    down = [link.profile for link in made.links if link.source == "cloud"]
    up = [link.profile for link in made.links if link.target == "cloud"]
    expected = deadlines(work, scenario.parameters, [("cloud", down, up)], given=None, given_above=None, across=[])
    assert made.gathering.deadlines == expected


def test_a_population_holds_the_classes_of_its_data_and_no_other() -> None:
    """Its clients draw from all training samples, which have the classes 0 to 4 in the second data set."""
    text = "algorithm: fedavg\ntopology: {population: 20, selected: 5}\ndriver: sim\n"
    text += "data: {samples_per_client: 4}\n"
    data = prepared()
    few = dataclasses.replace(data, train=data.train[data.train < 5])
    assert make_plan(parse(text, "f.yaml"), data).data.unheld == ()
    assert make_plan(parse(text, "f.yaml"), few).data.unheld == (5, 6, 7, 8, 9)


def test_a_rule_for_every_round_acts_in_each_of_them() -> None:
    """On one of two devices."""
    text = "algorithm: {name: fedavg, rounds: 3}\ntopology: {devices: 2}\nfaults:\n"
    text += "  - {every_round: 50%, of: devices, action: disconnect}\n"
    made = make_plan(parse(text, "f.yaml"), prepared())
    assert [fault.round for fault in made.faults] == [1, 2, 3]
