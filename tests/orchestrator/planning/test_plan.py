"""The plan: addresses, relations, links, data and gathering, all from the scenario and the labels alone."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
from typing import Any

import numpy as np
import pytest

from netem.library import PROFILES
from node.assignment import Stop, Timeouts, derive_seed
from node.catalogue.datasets import Form
from node.catalogue.models import MODELS
from orchestrator.errors import PlanError
from orchestrator.planning.faults.timeline import FaultTime
from orchestrator.planning.hosts.placement import Placement
from orchestrator.planning.learning.memory import training_bytes
from orchestrator.planning.learning.shards import Shards
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan, StopPlan
from orchestrator.scenario.reading import parse
from orchestrator.scenario.sections.hardware import HARDWARE
from tests.orchestrator.labels import prepared
from tests.texts import containing

TEXT = """\
name: small
seed: 7
algorithm: {name: hierfavg, rounds: 6, kappa2: 3, learning_rate: 0.1}
data: {dataset: digits, partition: {dirichlet: 0.5}, samples_per_client: 60, evaluate_samples: 150}
model: {name: mlp, hidden: 50}
topology: {edges: 2, devices_per_edge: [2, 3]}
hardware: {device: raspberry-pi-4, device-1-2: phone, cloud: edge-server}
links:
  device-edge: lte
  edge-cloud: {latency: 40ms, rate: 50mbit, up: {rate: 10mbit}}
  edge-1 -> cloud: {loss: 1%}
faults:
  - {at: 3s, node: device-1-2, action: join}
  - {every_round: 40%, of: devices, action: disconnect}
timeouts: {beat: 500ms}
stop: {after: 2min, accuracy: 90%}
restart: never
engine: userspace
probe: false
""".replace("probe: false", "probe: {before: false}")


def plan(text: str = TEXT, *overrides: str) -> Plan:
    return make_plan(parse(text, "f.yaml", overrides), prepared())


def test_nodes_are_numbered_from_the_cloud_down() -> None:
    assert [(node.index, node.name, node.address, node.mac) for node in plan().nodes][:4] == [
        (1, "cloud", "10.77.0.1", "02:ed:00:00:00:01"),
        (2, "edge-0", "10.77.0.2", "02:ed:00:00:00:02"),
        (3, "edge-1", "10.77.0.3", "02:ed:00:00:00:03"),
        (4, "device-0-0", "10.77.0.4", "02:ed:00:00:00:04"),
    ]
    assert {node.port for node in plan().nodes} == {7000}


def test_addresses_continue_beyond_a_byte() -> None:
    nodes = plan("algorithm: fedavg\ntopology: {devices: 400}").nodes
    assert (nodes[255].address, nodes[255].mac) == ("10.77.1.0", "02:ed:00:00:01:00")  # number 256
    assert len({node.address for node in nodes}) == len({node.mac for node in nodes}) == 401
    assert all(ipaddress.ip_address(node.address) in ipaddress.ip_network("10.77.0.0/16") for node in nodes)


def test_relations_go_both_ways() -> None:
    made = plan()
    assert made.node("cloud").children == ("edge-0", "edge-1")
    assert made.node("edge-1").children == ("device-1-0", "device-1-1", "device-1-2")
    assert made.node("edge-1").parent == "cloud"
    assert made.node("device-1-0").parent == "edge-1"
    assert made.node("edge-0").neighbours == ()


def test_an_edge_to_edge_link_makes_neighbours() -> None:
    made = plan("algorithm: hierfavg\ntopology: {edges: 3}\nlinks: {edge-edge: lan}")
    assert made.node("edge-1").neighbours == ("edge-0", "edge-2")
    assert len([link for link in made.links if link.link_class == "edge-edge"]) == 6


def test_hardware_is_that_of_the_node_else_of_its_tier_else_the_host() -> None:
    made = plan()
    assert made.node("device-0-0").hardware is HARDWARE["raspberry-pi-4"]
    assert made.node("device-1-2").hardware is HARDWARE["phone"]
    assert made.node("edge-0").hardware is HARDWARE["host"]


IMAGES = "algorithm: hierfavg\nhardware: {device: {image: pi}, device-0-1: phone, edge: {image: jetson}}\n"


def test_images_are_those_of_the_hardware_and_only_docker_has_a_use_for_them() -> None:
    made = plan(IMAGES, "driver=docker")
    names = ("cloud", "edge-0", "device-0-0", "device-0-1")
    assert [made.node(name).image for name in names] == [None, "jetson", "pi", None]
    assert made.images == ["jetson", "pi"]
    assert made.to_json()["nodes"][1]["image"] == "jetson"
    assert made.notes() == []
    assert plan().notes() == []
    (said,) = plan(IMAGES, "driver=sim").notes()
    assert "not their images (jetson, pi)" in said


def test_a_class_that_no_one_holds_is_noted() -> None:
    """D1: edge e has the label e alone, so that three edges hold 0, 1 and 2 of ten."""
    made = plan("algorithm: hierfavg\ndata: {partition: labels-per-edge}\ntopology: {edges: 3}")
    said = containing("classes 3, 4, 5, 6, 7,", "9")
    assert made.data.unheld == (3, 4, 5, 6, 7, 8, 9)
    assert made.notes() == made.recorded["notes"] == [said]
    assert plan("algorithm: hierfavg\ntopology: {edges: 3}").notes() == []


def test_what_a_small_share_leaves_out_is_noted() -> None:
    """Of 1000 samples, a hundred of each class, two clients keep two each: at most four classes."""
    made = plan("algorithm: fedavg\ntopology: {devices: 2}\ndata: {partition: iid, samples_per_client: 2}")
    held = {label for node in made.nodes for label, count in enumerate(node.label_counts) if count}
    assert set(made.data.unheld) == set(range(10)) - held
    assert len(made.data.unheld) >= 6


def test_a_class_without_test_samples_is_not_missed() -> None:
    data = prepared()
    lacking = dataclasses.replace(data, test=data.test[data.test < 4])
    text = "algorithm: hierfavg\ndata: {partition: labels-per-edge}\ntopology: {edges: 3}"
    assert make_plan(parse(text, "f.yaml"), lacking).data.unheld == (3,)
    tokens = dataclasses.replace(lacking, form=Form((1, 8, 8), 10, labels=(64,)))
    assert make_plan(parse(text, "f.yaml"), tokens).data.unheld == ()


@pytest.mark.parametrize(("count", "samples"), [(1, "1 sample has"), (3, "3 samples have")])
def test_samples_without_a_label_that_counts_are_noted(count: int, samples: str) -> None:
    data = dataclasses.replace(prepared(), unlabelled=count)
    made = make_plan(parse("algorithm: fedavg\ntopology: {devices: 2}", "f.yaml"), data)
    assert made.notes() == [containing(f"{samples} no label that counts (-100")]


def test_clients_with_nothing_are_noted_by_name() -> None:
    text = "algorithm: fedavg\ntopology: {devices: %d}\ndata: {partition: {iid: {min_samples: 0}}}"
    few = make_plan(parse(text % 5, "f.yaml"), prepared(train=3))
    assert few.notes()[1] == containing("device-3, device-4 hold no training samples")
    one = make_plan(parse(text % 4, "f.yaml"), prepared(train=3))
    assert one.notes()[1] == containing("device-3 holds no training samples")
    many = make_plan(parse(text % 60, "f.yaml"), prepared(train=3)).notes()[1]
    assert many.startswith("device-3, device-4, ")
    assert "device-21 and 38 more hold no" in many


RETRAINING_OFF = "algorithm: {name: fedfeat, retrain_epochs: 0%s}\ntopology: {devices: 2}"


@pytest.mark.parametrize(
    ("values", "notes"),
    [
        (", noise: none", []),
        (
            "",
            [containing("retrain_epochs: 0", "noise: gaussian", "FedAvg", "clip_norm")],
        ),
        (
            ", noise: laplace, clip_norm: 2, noise_in: sent, share: 0.5",
            [
                containing("share: 0.5, since retrain_epochs: 0 sends"),
                containing("noise: laplace, since retrain_epochs: 0 sends"),
                containing("retrain_epochs: 0 sends no", "clip_norm: 2 acts", "FedAvg", "clip_norm"),
            ],
        ),
    ],
)
def test_what_acts_in_fedfeat_without_retraining_is_noted(values: str, notes: list[str]) -> None:
    made = plan(RETRAINING_OFF % values)
    assert made.notes() == made.recorded["notes"] == notes
    assert "scenario_notes" not in made.recorded
    assert plan("algorithm: fedfeat\ntopology: {devices: 2}").notes() == []


def test_without_data_nothing_is_noted() -> None:
    assert make_plan(parse("algorithm: hierfavg", "f.yaml"), None).notes() == []


def test_every_pair_has_a_link_each_way_with_a_seed_of_its_own() -> None:
    links = {(link.source, link.target): link for link in plan().links}
    assert len(links) == 2 * (2 + 5)
    assert links["device-0-0", "edge-0"].profile == PROFILES["lte-up"]
    assert links["edge-0", "device-0-0"].profile == PROFILES["lte"]
    assert links["edge-0", "cloud"].profile.rate == 10e6
    assert links["cloud", "edge-0"].profile.rate == 50e6
    assert links["edge-1", "cloud"].profile.loss == 0.01
    assert links["cloud", "edge-1"].profile.loss == 0.0
    assert links["edge-0", "cloud"].link_class == "edge-cloud"
    assert links["edge-0", "cloud"].seed == derive_seed(7, "link", "edge-0", "cloud")
    assert len({link.seed for link in links.values()}) == 14


def test_the_leading_tier_leads() -> None:
    assert [node.name for node in plan().nodes if node.leads] == ["cloud"]
    alone = plan("algorithm: onlyedge\ntopology: {edges: 2, cloud: false}")
    assert [node.name for node in alone.nodes if node.leads] == ["edge-0", "edge-1"]


def test_devices_hold_the_data() -> None:
    made = plan()
    holders = [node for node in made.nodes if node.samples]
    assert [node.tier for node in holders] == ["device"] * 5
    assert all(node.samples == sum(node.label_counts) == 60 for node in holders)
    assert made.node("edge-0").label_counts == ()
    assert (made.data.used_samples, made.data.train_samples, made.data.test_samples) == (300, 1000, 200)
    assert made.data.partition_params == {
        "min_samples": 10,
        "samples_per_client": 60,
        "alpha": 0.5,
        "variant": "class",
        "over": "clients",
    }


def test_settings_arrive() -> None:
    made = plan()
    assert made.params["learning_rate"] == 0.1
    assert made.params["evaluate_samples"] == 150
    assert made.params["kappa2"] == 3
    assert made.model_params == {"features": None, "hidden": 50, "layers": 1}
    assert {node.model for node in made.nodes} == {"mlp"}
    assert made.model_bytes == 4 * (65 * 50 + 51 * 10)  # 8x8 inputs and a bias to 50, then to ten classes; float32
    assert made.timeouts == Timeouts(beat=0.5, lost_after=8.0, lease=10.0)
    assert made.stop == StopPlan(rounds=6, accuracy=0.9, after=120.0)
    assert (made.restart, made.engine, made.driver, made.probe) == ("never", "userspace", "namespaces", False)
    assert made.node("device-1-2").joins == FaultTime(3.0, None)
    assert made.node("device-1-1").joins is None
    assert len(made.faults) == 1 + 6 * 2  # 40 % of five devices in each of six rounds


def test_nodes_of_a_tier_have_the_models_of_a_group_in_turn() -> None:
    text = "algorithm: dffke\nmodel: small\ntopology: {edges: 6, devices_per_edge: 0, mesh: true}"
    made = plan(text)
    names = [made.node(f"edge-{number}").model for number in range(6)]
    assert names == ["cnn", "mlp", "lenet", "tiny-resnet", "separable-cnn", "cnn"]
    params = parse(text, "f.yaml").parameters
    for number, name in enumerate(names):
        node = made.node(f"edge-{number}")
        tests = sum(node.test_counts) + 200  # its own, and those of all
        size = MODELS[name].size((1, 8, 8), 10)
        assert made.training_bytes[node.name] == training_bytes(size, params, node.samples, 0, tests)


def test_a_peer_that_is_silent_for_less_than_two_beats_is_not_lost() -> None:
    assert plan(TEXT, "timeouts.beat=5s").timeouts.lost_after == 10.0


def test_the_model_of_unknown_data_has_no_size() -> None:
    text = "algorithm: fedavg\ntopology: {devices: 2}\nmodel: mlp\ndata: {dataset: 'npz:mine.npz'}"
    assert make_plan(parse(text, "f.yaml"), None).model_bytes == 0


def deadline(text: str, **fields: Any) -> float:
    """That of the cloud."""
    data = dataclasses.replace(prepared(), **fields)
    return make_plan(parse(text, "f.yaml"), data).gathering.deadlines["cloud"]


def test_a_tier_waits_for_its_own_links_only() -> None:
    """10 s, 4 · (1 s down + 2 s up), and one round of the edges, of 5 s."""
    links = "links: {edge-cloud: {latency: 1s, up: {latency: 2s}}, device-edge: {latency: 9s}}\n"
    text = f"algorithm: {{name: hierfavg, kappa2: 1}}\n{links}gathering: {{deadline: 5s}}\n"
    assert make_plan(parse(text, "f.yaml"), None).gathering.deadlines == {"edge": 5.0, "cloud": 27.0}
    flat = "algorithm: fedavg\ntopology: {devices: 2}\ngathering: {deadline: 5s}\n"
    assert make_plan(parse(flat, "f.yaml"), None).gathering.deadlines == {"cloud": 5.0}


def test_clients_wait_for_what_they_send_one_another() -> None:
    """Over links of 5 s instead of 1 s: 4 · 4 s more."""
    text = "algorithm: fededs\ntopology: {edges: 2, devices_per_edge: 0, mesh: true}\nlinks: {edge-edge: {latency: %s}}"
    assert deadline(text % "5s") - deadline(text % "1s") == 16.0


HEAVY = "algorithm: {name: fedavg, epochs: 200}\nmodel: lenet\ntopology: {devices: 2}\n"


def test_the_slowest_client_and_the_one_with_most_samples_count() -> None:
    slow = "hardware: {device-1: {speed: 0.1}}\n"
    assert deadline(HEAVY + slow) == deadline(HEAVY + "hardware: {device: {speed: 0.1}}\n")
    assert deadline(HEAVY + slow) > deadline(HEAVY)
    share = "data: {dataset: har, partition: {by-subject: {min_samples: 1}}}\n"
    even, uneven = (
        deadline(HEAVY + share, subjects=np.repeat([0, 1], [first, 1000 - first]), test_subjects=None)
        for first in (500, 900)
    )
    assert uneven - 10 == pytest.approx((even - 10) * 900 / 500, rel=0.05)
    slowest = HEAVY.replace("200", "1") + share + "hardware: {device: {speed: 0.001}}\n"
    even, uneven = (
        deadline(
            slowest,
            subjects=np.repeat([0, 1], 500),
            test_subjects=np.repeat([0, 1], [first, 200 - first]),
        )
        for first in (100, 20)
    )
    assert uneven > even  # the one with most test samples, too
    crowd = "algorithm: {name: fedavg, epochs: 200}\nmodel: lenet\ndriver: sim\ndata: {samples_per_client: 500}\n"
    crowd += "topology: {population: 9, selected: 2}\nclients: {speed: {uniform: {low: %s, high: %s}}}\n"
    assert deadline(crowd % (0.0999, 0.1)) == pytest.approx(deadline(HEAVY + slow), rel=0.05)


EDGES = "algorithm: %s\nmodel: {name: mlp, hidden: 1000}\ntopology: {edges: 5, devices_per_edge: 0, mesh: true}\n"


@pytest.mark.parametrize(
    ("algorithm", "labels", "all_tests"),
    [
        ("fedavg", 1, 0),
        ("fedavg", 64, 0),  # each sample has 64 labels
        ("dffke", 1, 200),  # models are personal, so clients evaluate them on the global test set too
    ],
)
def test_clients_evaluate_on_test_samples_of_their_own_or_on_all(algorithm: str, labels: int, all_tests: int) -> None:
    """The memory of a client has 3 · 1,000 numbers for each test sample, of which a batch has 250."""
    data = prepared()
    if labels > 1:
        tokens = np.tile(data.test[:, None], labels)
        data = dataclasses.replace(data, form=Form((1, 8, 8), 10, labels=(labels,)), test_tokens=tokens)
    text = EDGES % algorithm + "data: {partition: labels-per-edge}\n"
    made = make_plan(parse(text, "f.yaml"), data)
    own = sum(made.node("edge-0").test_counts) // labels
    assert own == 20  # of its label
    size = MODELS["mlp"].size((1, 8, 8), 10, {"features": None, "hidden": 1000})
    params = parse(text, "f.yaml").parameters
    assert made.training_bytes["edge-0"] == training_bytes(size, params, 100, 0, own + all_tests)


def test_a_given_deadline_is_for_the_tier_above_the_clients() -> None:
    """The cloud waits for kappa2 = 3 edge rounds of 5 s, 10 s, and four times one model of 15 040 bytes each way:
    down at 50 mbit and up at 10 mbit, 40 ms each: 15 + 10 + 4 * (0.0424 + 0.052) = 25.4, in whole seconds 26."""
    assert plan(TEXT, "gathering.deadline=5s").gathering.deadlines == {"edge": 5.0, "cloud": 26.0}


def test_the_same_scenario_gives_the_same_bytes() -> None:
    assert plan() == plan()
    assert json.dumps(plan().to_json()) == json.dumps(plan().to_json())
    assert plan(TEXT, "seed=8").data.shards_sha256 != plan().data.shards_sha256


def test_what_follows_from_the_rest_or_is_of_this_host_does_not_make_plans_differ() -> None:
    made = plan()
    other = dataclasses.replace(
        made,
        shards=Shards(),
        data_directory="/elsewhere",
        folder="/home/ada",
        placement=Placement({}, {}, {}, {}, (), ()),
        population=plan(CROWD).population,
        training_bytes={"cloud": 7},
    )
    assert other == made
    for name in ("shards=", "placement=", "population=", "training_bytes="):
        assert name not in repr(other)


CROWD = "algorithm: fedavg\ndriver: sim\ntopology: {population: 9, selected: 2}\ndata: {samples_per_client: 20}\n"


def test_links_wait_only_for_devices_that_move() -> None:
    text = "algorithm: hierfavg\ntopology: {edges: 2, devices_per_edge: 1}\n"
    assert not any(link.waits for link in plan(text).links)
    move = "faults: [{at: 9s, node: device-0-0, action: move, to: edge-1}]\n"
    waiting = {(link.source, link.target) for link in plan(text + move).links if link.waits}
    assert waiting == {("device-0-0", "edge-1"), ("edge-1", "device-0-0")}


def test_nodes_stop_after_their_rounds_or_at_the_goals() -> None:
    stop = StopPlan(rounds=6, accuracy=0.9, after=120.0)
    assert (stop.of_nodes, stop.without_goals) == (Stop(rounds=6, accuracy=0.9), Stop(rounds=6))
    endless = StopPlan(rounds=None, accuracy=0.9, after=120.0)
    assert (endless.of_nodes, endless.without_goals) == (Stop(rounds=0, accuracy=0.9), Stop(rounds=0))


def test_plan_json_is_plain_and_whole() -> None:
    made = json.loads(json.dumps(plan().to_json()))
    assert made["algorithm"]["name"] == "hierfavg"
    assert made["algorithm"]["params"]["kappa2"] == 3
    assert made["links"][0] == {
        "source": "edge-0",
        "target": "cloud",
        "link_class": "edge-cloud",
        "profile": {"latency": "40ms", "rate": "10mbit"},
        "seed": derive_seed(7, "link", "edge-0", "cloud"),
    }
    assert made["nodes"][0]["hardware"]["name"] == "edge-server"
    assert made["faults"][0]["action"] == "join"
    assert made["stop"] == {"rounds": 6, "accuracy": 0.9, "target": None, "after": 120.0, "bytes": None}
    assert not {"shards", "data_directory"} & set(made)


def test_without_labels_there_is_a_plan_to_look_at() -> None:
    made = make_plan(parse(TEXT, "f.yaml"), None)
    assert made.node("device-0-0").samples == 0
    assert made.data.sha256 == ""
    assert made.model_bytes == plan().model_bytes  # the catalogue knows the shape of digits


def test_too_little_data_is_reported_with_the_path() -> None:
    with pytest.raises(PlanError, match=r"^data\.partition: 12 samples do.*5 clients"):
        make_plan(parse(TEXT, "f.yaml"), prepared(train=12))


def test_a_model_that_does_not_take_the_data_is_refused() -> None:
    scenario = parse("algorithm: fedavg\nmodel: phefl-cnn\ndata: {dataset: har}\ntopology: {devices: 2}", "f.yaml")
    with pytest.raises(PlanError, match=r"^model: phefl-cnn: .* 4x4"):
        make_plan(scenario, None)


def test_many_nodes_are_planned_quickly() -> None:
    made = make_plan(
        parse("algorithm: hierfavg\ntopology: {edges: 20, devices_per_edge: 50}", "f.yaml"), prepared(train=20_000)
    )
    assert len(made.nodes) == 1021
    assert len(made.links) == 2 * 1020


def test_a_schedule_is_in_plan_json_as_it_was_written() -> None:
    text = (
        "algorithm: hierfavg\nlinks:\n  edge-cloud: {latency: 5ms, schedule: {steps: [{at: 10s, rate: 5mbit}],"
        " ramp: [{at: 20s, over: 1h, to: {rate: 1mbit}}], repeat: 2h}}\n"
    )
    made = json.loads(json.dumps(plan(text).to_json()))
    assert made["links"][0]["schedule"] == {
        "steps": [{"at": "10s", "rate": "5mbit"}],
        "ramp": [{"at": "20s", "over": "1h", "to": {"rate": "1mbit"}}],
        "repeat": "2h",
    }
    assert [link for link in made["links"] if "schedule" in link] == made["links"][:4]
    assert plan(text) == plan(text)
