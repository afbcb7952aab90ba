"""The scenario file: every key, every kind of mistake, and the way back to text."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from netem.library import PROFILES
from netem.profile import LinkProfile
from netem.units import parse_duration, parse_fraction, parse_rate, parse_size
from node.algorithms.registry import ALGORITHMS
from node.catalogue.models import MODEL_GROUPS, MODELS
from node.catalogue.partitions import PARTITIONS
from orchestrator.errors import ScenarioError
from orchestrator.planning.making import make_plan
from orchestrator.scenario.language.quantities import DURATION_SCHEMA, FRACTION_SCHEMA, RATE_SCHEMA, SIZE_SCHEMA, Quorum
from orchestrator.scenario.reading import load, parse
from orchestrator.scenario.schema import Scenario, effective, json_schema
from orchestrator.scenario.sections.links import resolve
from orchestrator.scenario.sections.topology import LINK_CLASSES
from orchestrator.sweep.reading import SweepFile
from tests.shipped import SCENARIOS
from tests.texts import containing

EDGES = """\
name: everything
plugins: []
programs: {}
seed: 7
algorithm: {name: hierfavg, rounds: 30, kappa2: 3, learning_rate: 0.05}
data:
  dataset: [fashion-mnist, digits]
  path: /somewhere/else
  partition: {dirichlet: {alpha: 0.1, variant: client}}
  samples_per_client: 100
  evaluate_samples: 500
  metrics: [macro_f1]
  test: balanced
  personalisation: 15%
model: {name: mlp, hidden: 50, lora: {rank: 4, alpha: 8, targets: [classifier]}}
topology: {edges: 3, devices_per_edge: [4, 4, 2], cloud: true, mesh: true}
stack: {device: {congestion: bbr, syn_retries: 3, keepalive: 30s, retries2: 8, rmem: 4mb, wmem: 4mb}}
hardware:
  device: raspberry-pi-4
  device-0-1: {class: phone, speed: 0.2, cores: 2, memory: 2gib, image: "edgebed-node:arm64"}
  edge-0: {class: host, accelerator: "cuda:1"}
hosts: {}
compute: {device: cuda, clients_at_once: 16, precision: bf16}
links:
  device-edge: {profile: wifi, loss: 2%, up: {rate: 10mbit}, down: lte, nat_timeout: 60s, mtu: 1400}
  edge-edge: {latency: 2ms, rate: 1gbit}
  edge-cloud:
    latency: 40ms
    jitter: 5ms
    distribution: uniform
    loss: 0.5%
    rate: 50mbit
    buffer: 64kb
    duplicate: 0.1%
    corrupt: 0.1%
    reorder: 0.1%
    drop_above: 1400
  device-1-2 -> edge-1: {loss: {gilbert-elliott: {p: 2%, r: 30%}}}
  edge-0 <-> edge-1: {rate: null, schedule: null}
shared:
  cell-0: {up: 20mbit, down: 100mbit, duplex: full, share: airtime, buffer: 200ms, members: [device-0-*],
           rates: {device-0-2: 5mbit}, schedule: null}
  cell-1: {profile: lte-cell, rate: 54mbit}
  backhaul: {rate: 100mbit, members: ["edge-* <-> cloud", "edge-0 <-> device-0-*"]}
routes:
  device-0-* <-> edge-0: [cell-0, backhaul]
cross_traffic:
  - {on: backhaul, direction: up, kind: on-off, rate: 30mbit, on_for: 2s, off_for: 5s, at: 10s, for: 60s}
  - {on: backhaul, direction: down, kind: trace, csv: others.csv}
faults:
  - {at: 20s, node: device-1-2, action: crash, for: 15s}
  - {every_round: 30%, of: devices, action: disconnect}
  - {at: 40s, between: [edge-0, cloud], action: partition, for: 10s}
  - {at: 40s, between: [[edge-0, edge-1], edge-2], action: degrade, profile: dsl, latency: 200ms, jitter: 1ms,
     distribution: normal, loss: 1%, rate: 1mbit, buffer: 10ms, duplicate: 1%, corrupt: 1%, reorder: 1%,
     drop_above: 1200}
  - {random: {mean: 30s, until: 5min}, of: devices, count: 2, action: pause, for: 2s}
  - {round: 3, nodes: [device-0-0, device-0-1], action: slow, factor: 4}
  - {at: 20s, node: device-2-1, action: join}
  - {at: 10s, medium: cell-0, direction: up, action: degrade, rate: 2mbit, for: 5s}
  - {at: 20s, node: device-0-0, action: handover, to: cell-1}
  - {at: 30s, node: device-0-0, action: new-address}
  - {round: 10, of: devices, fraction: 20%, action: leave}
  - {event: half way, node: edge-0, action: pause, for: 1s}
gathering: {quorum: 50%, deadline: 30s, cloud_deadline: 2min, late: keep}
timeouts: {beat: 500ms, lost_after: 3s, lease: 12s}
restart: never
stop: {rounds: 20, accuracy: 85%, after: 10min, bytes: 500MB}
driver: namespaces
engine: userspace
probe: {before: false, longest: 5min}
expect:
  accuracy: 50%
  rounds: 15
  duration: 9min
  bytes: {total: 1gb, device-edge: 500mb, edge-edge: 0b, edge-cloud: 100mb}
  abandoned: 25%
  metrics:
    - {name: loss, scope: train, node: device-0-0, at_least: 0, at_most: 2.5}
    - {name: accuracy, scope: own, at_least: 70%}
  checks: [links on time, compute on time]
"""

DEVICES = """\
algorithm: fedavg
topology: {devices: 3, edges: 0, cloud: true}
clients: {file: clients.csv}
links: {device-cloud: lte}
expect: {bytes: {device-cloud: 20mb}}
"""


POPULATION = """\
algorithm: fedavg
driver: sim
topology: {population: 1000, selected: 10}
clients:
  selection: {name: oort, alpha: 1}
  over: 30%
  availability:
    day-and-night:
      start: 20h
      time_zones: {-6h: 50%, 8h: 50%}
      wifi: 90%
      nights: 80%
      bedtime: 23h
      sleep: 7h
      spread: 1h
      day_charges: 30%
      day_charge: 40min
  hardware: {phone: 60%, raspberry-pi-3: 40%}
  links: {wifi: 60%, lte: 40%}
  samples: {lognormal: {median: 40, sigma: 0.5, low: 5, high: 200}}
"""

TRACED = """\
algorithm: fedavg
driver: sim
data: {samples_per_client: 20}
topology: {population: 1000, selected: 10}
clients:
  availability: {trace: stays.csv, repeat: 24h}
  speed: {uniform: {low: 0.1, high: 0.4}}
"""
FILES = {"stays.csv": "device,from,until\n0,0,3600\n", "clients.csv": "node,speed\ndevice-0,0.1\n"}
FILES["others.csv"] = "t_s,rate_mbit\n0,20\n10,0\n"

PROGRAMS = """\
programs:
  cloud: {command: "serve --on {self}", ready: {port: 8000, within: 5s}, environment: {COLOUR: blue}, image: "serve:1"}
  device: {command: [ask, "{cloud}"], after: cloud, ready: {line: here}, expected_to_end: true}
  control: {on: cloud, command: end, after: [cloud, device], ready: {delay: 1s}, ends_the_run: true, stop_grace: 20s}
topology: {devices: 3, edges: 0, cloud: true}
faults: [{at: 5s, node: cloud, program: control, action: crash, for: 1s}]
"""

RANKS = """\
algorithm: flexlora
model: {name: mlp, lora: {rank: 3, alpha: 16, targets: [classifier], ranks: {phone: 4, raspberry-pi-4: 2}}}
topology: {devices: 3}
data:
  dataset: "csv:a.csv"
  columns: {target: y, inputs: [x], subject: who, task: classification, test: dev, split: random}
stop: {target: {name: f1, at_least: 0.9, at_most: 1}}
hardware: {device-0: phone, device-1: {class: raspberry-pi-4, memory: 1gib}}
"""


def messages(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml", overrides)
    return str(caught.value).splitlines()


def models(value: Any) -> Iterator[BaseModel]:
    """Every model in a scenario, itself included."""
    if isinstance(value, BaseModel):
        yield value
        for name in type(value).model_fields:
            yield from models(getattr(value, name))
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from models(item)


def test_the_samples_here_have_every_key() -> None:
    given: defaultdict[type[BaseModel], set[str]] = defaultdict(set)
    for text in (EDGES, DEVICES, POPULATION, TRACED, PROGRAMS, RANKS):
        for model in models(parse(text, "f.yaml", files=FILES)):
            given[type(model)] |= model.model_fields_set
    for kind, names in given.items():
        if kind.__name__ not in ("LinkKeys", "DirectionSpec"):  # whose keys are a link's
            assert names >= set(kind.model_fields), kind


def test_quantities_are_typed() -> None:
    scenario = parse(EDGES, "f.yaml", files=FILES)
    assert scenario.stop.after == 600.0
    assert scenario.stop.accuracy == 0.85
    assert scenario.timeouts.beat == 0.5
    assert scenario.hardware["device-0-1"].memory == 2 * 1024**3
    assert scenario.faults[1].every_round == 0.3
    assert scenario.faults[4].random is not None
    assert scenario.faults[4].random.mean == 30.0
    assert scenario.gathering.deadline == 30.0
    assert scenario.expect.duration == 540.0
    assert scenario.expect.bytes.given() == {
        "total": 10**9,
        "device-edge": 5 * 10**8,
        "edge-edge": 0,
        "edge-cloud": 10**8,
    }
    assert scenario.expect.metrics[1].at_least == 0.7
    assert parse("algorithm: hierfavg\nexpect: {bytes: 3mb}", "f.yaml").expect.bytes.given() == {"total": 3 * 10**6}
    assert not parse("algorithm: hierfavg\nexpect: {abandoned: 0%}", "f.yaml").expect.asks()


@pytest.mark.parametrize("off", ["{name: fededs, exchange: false}", "{name: dffke, exchange_epochs: 0}"])
def test_without_an_exchange_one_edge_is_enough(off: str) -> None:
    assert parse(f"algorithm: {off}\ntopology: {{edges: 1, devices_per_edge: 0}}\n", "f.yaml").topology.edges == 1


def test_the_algorithm_alone_is_a_scenario() -> None:
    scenario = parse("algorithm: hierfavg\n", "some/Nice name.yaml")
    assert scenario.name == "nice-name"
    assert scenario.topology.per_edge == [2, 2]
    assert scenario.data.dataset == ["digits"]
    assert scenario.data.partition.name == "iid"
    assert (scenario.rounds, scenario.model.name, scenario.gathering.deadline) == (10, "cnn", "auto")
    assert effective(scenario)["links"] == {"device-edge": {"profile": "lan"}, "edge-cloud": {"profile": "lan"}}


def test_rounds_are_those_of_the_algorithm_unless_stop_has_fewer() -> None:
    assert parse("algorithm: {name: hierfavg, rounds: 7}", "f.yaml").rounds == 7
    assert parse("algorithm: hierfavg\nstop: {rounds: 4}", "f.yaml").rounds == 4
    assert parse(EDGES, "f.yaml", files=FILES).rounds == 20


@pytest.mark.parametrize(
    "text", [EDGES, DEVICES, POPULATION, "algorithm: onlyedge", "programs: {cloud: a, edge: b, device: c}"]
)
def test_the_effective_scenario_reads_back(text: str) -> None:
    scenario = parse(text, "f.yaml", files=FILES)
    written = json.dumps(effective(scenario))
    again = parse(written, "f.yaml", files=FILES)
    assert effective(again) == json.loads(written)
    assert again.rounds == scenario.rounds
    assert again.faults == scenario.faults
    assert again.topology == scenario.topology


def test_a_class_with_a_partner_for_upload_uses_it() -> None:
    scenario = parse("algorithm: fedavg\ntopology: {devices: 1}\nlinks: {device-cloud: lte}", "f.yaml")
    profiles = resolve(scenario.links, scenario.topology.pairs(mesh=False)).profiles
    assert profiles == {("device-0", "cloud"): PROFILES["lte-up"], ("cloud", "device-0"): PROFILES["lte"]}


def test_what_is_said_of_two_nodes_goes_over_their_class() -> None:
    scenario = parse(EDGES, "f.yaml", files=FILES)
    profiles = resolve(scenario.links, scenario.topology.pairs(scenario.mesh)).profiles
    wifi = PROFILES["wifi"]
    assert profiles["device-0-0", "edge-0"] == wifi.merged(loss=0.02, rate=10e6)
    assert profiles["device-1-2", "edge-1"].mean_loss == pytest.approx(0.02 / 0.32)  # p / (p + r)
    assert profiles["device-1-2", "edge-1"].rate == 10e6
    assert profiles["edge-1", "device-1-2"] == PROFILES["lte"]
    assert profiles["edge-0", "edge-1"] == profiles["edge-1", "edge-0"] == LinkProfile(latency=0.002)
    assert profiles["edge-0", "edge-2"] == LinkProfile(latency=0.002, rate=1e9)


def test_overrides_reach_below_short_forms_and_defaults() -> None:
    scenario = parse(
        "algorithm: hierfavg\nlinks: {device-edge: wifi}\nhardware: {device: phone}\nexpect: {bytes: 5mb}\n",
        "f.yaml",
        [
            "algorithm.rounds=3",
            "links.device-edge.latency=9ms",
            "hardware.device.cores=2",
            "topology.edges=5",
            "links.edge-cloud.rate=1mbit",
            "data.partition={dirichlet: 0.2}",
            "expect.bytes.edge-cloud=1mb",
        ],
    )
    assert scenario.rounds == 3
    assert scenario.links["device-edge"].changes()["latency"] == "9ms"
    assert scenario.links["device-edge"].profile == "wifi"
    assert scenario.hardware["device"].resolve().cores == 2
    assert scenario.topology.edges == 5
    assert scenario.data.partition.params == {"alpha": 0.2}
    assert scenario.expect.bytes.given() == {"total": 5 * 10**6, "edge-cloud": 10**6}


LINK_KEYS = (
    "profile, latency, jitter, distribution, loss, rate, buffer, duplicate, corrupt, reorder, drop_above, schedule, "
    "up, down, nat_timeout, mtu"
)
SECTIONS = (
    "name, plugins, seed, algorithm, programs, data, model, topology, clients, hardware, stack, hosts, compute, "
    "links, shared, routes, cross_traffic, faults, gathering, timeouts, restart, stop, expect, driver, engine, probe"
)

MISTAKES = [
    (
        "algorithm: {name: hierfavg, rounds: 5}\nexpect:\n  acuracy: 3\n  rounds: many\n  duration: 5\n"
        "  bytes: {edge-clod: 1mb, total: 5}\n  checks: [links ontime]\n  metrics:\n    - {name: loss}\n"
        "    - {name: loss, at_least: 3, at_most: 2}\n    - {at_most: much}\n    - {name: loss, atmost: 1}\n",
        [
            "f.yaml:3: expect.acuracy: unknown key; did you mean 'accuracy'? (allowed here: accuracy, rounds, "
            "duration, bytes, abandoned, metrics, checks)",
            containing("f.yaml:4: expect.rounds: write a whole", "'many'"),
            containing("f.yaml:5: expect.duration: 5 has no unit"),
            containing("f.yaml:6: expect.bytes.total: 5 has no unit"),
            "f.yaml:6: expect.bytes.edge-clod: unknown key; did you mean 'edge-cloud'? (allowed here: total, "
            "device-edge, device-cloud, edge-edge, edge-cloud)",
            containing("f.yaml:7: expect.checks.0: 'links ontime'"),
            containing("f.yaml:9: expect.metrics.0: give", "at_least, at_most"),
            containing("f.yaml:10: expect.metrics.1.at_least: 3", "at_most, 2"),
            "f.yaml:11: expect.metrics.2: 'name' is missing",
            containing("f.yaml:11: expect.metrics.2.at_most: write a number", "'much'"),
            "f.yaml:12: expect.metrics.3.atmost: unknown key; did you mean 'at_most'? (allowed here: name, at_least, "
            "at_most, scope, node)",
        ],
    ),
    (
        "algorithm: {name: hierfavg, rounds: 5}\nexpect:\n  rounds: 6\n  bytes: {device-cloud: 1mb}\n  metrics:\n"
        "    - {name: loss, node: edge-7, at_most: 1}\n",
        [
            containing("f.yaml:3: expect.rounds: 6 is more"),
            containing("f.yaml:4: expect.bytes.device-cloud: the topology has no"),
            containing("f.yaml:6: expect.metrics.0.node", "no node 'edge-7'"),
        ],
    ),
    (
        "algoritm: hierfavg\n",
        [f"f.yaml:1: algoritm: unknown key; did you mean 'algorithm'? (allowed here: {SECTIONS})"],
    ),
    (
        "algorithm: hierfavg\nname: My Run\nseed: 1.5\ndriver: docer\nfaults: 3\n",
        [
            containing("f.yaml:2: name: 'My Run'", "most 40"),
            containing("f.yaml:3: seed: write a whole"),
            containing("f.yaml:4: driver: 'docer' is not"),
            containing("f.yaml:5: faults: write a list"),
        ],
    ),
    (
        "algorithm:\n  name: hierfavg\n  kapa2: 3\n  learning_rate: -1\nmodel: cnnn",
        [
            "f.yaml:3: algorithm.kapa2: unknown parameter 'kapa2'; did you mean 'kappa2'? (allowed: name, rounds, "
            "optimizer, learning_rate, learning_rate_decay, learning_rate_decay_rounds, momentum, weight_decay, "
            "batch_size, epochs, steps, gradient_clipping, "
            "gradient_accumulation, gradient_checkpointing, evaluate_samples, kappa1, kappa2, participation, "
            "statistics)",
            containing("f.yaml:4: algorithm.learning_rate: -1", "above 0"),
            "f.yaml:5: model.name: 'cnnn' is no model; did you mean 'cnn'? "
            f"(known: {', '.join([*MODELS, *MODEL_GROUPS])})",
        ],
    ),
    (
        "algorithm: hierfavg\ndata:\n  dataset: minst\n  partition: {dirichlet: 0}\n",
        [
            containing("f.yaml:3: data.dataset: 'minst' is no data"),
            containing("f.yaml:4: data.partition.dirichlet: alpha: 0", "above 0"),
        ],
    ),
    (
        "algorithm: dffke\ntopology: {edges: 2, devices_per_edge: 0}\n"
        "model:\n  name: small\n  lora: {targets: [classifier]}\n",
        [containing("f.yaml:5: model.lora: the models of small")],
    ),
    (
        "algorithm: hierfavg\nlinks:\n  edge-cloud:\n    lattency: 4ms\n    latency: 40\n  device-edge: wfi\n",
        [
            f"f.yaml:4: links.edge-cloud.lattency: unknown key; did you mean 'latency'? (allowed here: {LINK_KEYS})",
            containing("f.yaml:5: links.edge-cloud.latency: 40 has no unit"),
            "f.yaml:6: links.device-edge.profile: 'wfi' is no named profile; did you mean 'wifi'? "
            f"(known: {', '.join(PROFILES)}, real)",
        ],
    ),
    (
        "algorithm: hierfavg\nlinks:\n  edge-clod: wifi\n  edge-edge: {up: wifi, down: wifi}\n  device-cloud: lan\n"
        "  device-0-0 -> edge-1: {loss: 1%}\n  device-0-9 -> edge-1: {loss: 1%}\n  edge-cloud: {buffer: 5ms}\n"
        "  device-0-0 <-> edge-0: {up: wifi}\n",
        [
            containing("f.yaml:8: links.edge-cloud: buffer: needs a rate"),
            containing("f.yaml:3: links.edge-clod: unknown key"),
            containing("f.yaml:4: links.edge-edge: up and down"),
            containing("f.yaml:5: links.device-cloud: the topology has no"),
            "f.yaml:6: links.device-0-0 -> edge-1: device-0-0 and edge-1 have no link",
            containing("f.yaml:7: links.device-0-9 -> edge-1", "'device-0-9'"),
            containing("f.yaml:9: links.device-0-0 <-> edge-0"),
        ],
    ),
    (
        "algorithm: hierfavg\nhardware:\n  device: {image: my node}\n  edge: {image: 3}\n  cloud: {picture: x}\n",
        [
            containing("f.yaml:3: hardware.device.image: 'my node'", "edgebed-node:arm64"),
            containing("f.yaml:4: hardware.edge.image: write a text"),
            "f.yaml:5: hardware.cloud.picture: unknown key (allowed here: class, speed, cores, memory, image, "
            "accelerator)",
        ],
    ),
    (
        "algorithm: hierfavg\nhardware:\n  device: phon\n  gateway: host\n",
        [
            containing("f.yaml:3: hardware.device: 'phon' is no hardware"),
            containing("f.yaml:4: hardware.gateway", "no node 'gateway'"),
        ],
    ),
    (
        "algorithm: dffke\ntopology: {edges: 1, devices_per_edge: 0}\n",
        [containing("f.yaml:2: topology.edges: 1, but edges")],
    ),
    (
        "algorithm: fedavg\ntopology: {edges: 2}\n",
        [containing("f.yaml:2: topology: fedavg knows one layer")],
    ),
    (
        "algorithm: fedavg\ntopology: {devices: 2}\ndata: {partition: labels-per-edge, samples_per_client: 5}\n"
        "stop: {rounds: 30}\ntimeouts: {beat: 5s, lost_after: 2s}\ngathering: {deadline: 0s}",
        [
            containing("f.yaml:3: data.partition: labels-per-edge gives labels"),
            containing("f.yaml:5: timeouts.lost_after: must", "least"),
            "f.yaml:6: gathering.deadline: must be above 0s",
        ],
    ),
    (
        "algorithm: {name: hierfavg, rounds: 5, evaluate_samples: 3}\nstop: {rounds: 6}\n"
        "data: {partition: {dirichlet: 0.1}, samples_per_client: 5, evaluate_samples: 9}\n"
        "topology: {devices_per_edge: [1, 0]}\nlinks: {edge-cloud: {latency: 2s}}\ntimeouts: {lost_after: 8s}\n",
        [
            containing("f.yaml:4: topology.devices_per_edge: edge-1", "least 1"),
            containing("f.yaml:2: stop.rounds: 6", "algorithm.rounds, 5"),
            containing("f.yaml:3: data.samples_per_client: 5", "min_samples 10"),
            containing("f.yaml:3: data.evaluate_samples: given twice, here"),
            containing("f.yaml:6: timeouts.lost_after: must be above"),
        ],
    ),
]


def test_a_mistake_in_a_class_of_links_makes_no_others() -> None:
    link = "  device-0-0 <-> edge-0: {latency: 5ms}\n"
    fault = "faults: [{at: 1s, between: [edge-0, device-0-0], action: partition}]\n"
    found = messages("algorithm: hierfavg\nlinks:\n  device-edge: {buffer: 5ms}\n" + link + fault)
    assert found == [containing("f.yaml:3: links.device-edge: buffer: needs a rate")]


@pytest.mark.parametrize(("text", "expected"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_reported_with_place_and_remedy(text: str, expected: list[str]) -> None:
    assert messages(text) == expected


TOPOLOGIES = [
    ("{edges: 0}", "topology.edges: without edges give devices, the"),
    ("{devices: 2, cloud: false}", "topology.cloud: without edges and without a"),
    (
        "{edges: 2, devices: 2}",
        "topology.devices: devices attach to the cloud",
    ),
    (
        "{edges: 0, devices: 2, devices_per_edge: 3}",
        "topology.devices_per_edge: there are no edges; give",
    ),
    ("{edges: 2, devices_per_edge: [1, 2, 3]}", "topology.devices_per_edge: the list has 3 numbers"),
    ("{devices_per_edge: many}", "topology.devices_per_edge: write a whole number, not"),
    ("{devices_per_edge: [1, -2]}", "topology.devices_per_edge: must be at least 0"),
    ("{edges: 1, mesh: true}", "topology.mesh: takes two edges or more"),
    ("{edges: 300, devices_per_edge: 300}", "topology.edges: 90301 nodes are more than"),
]


@pytest.mark.parametrize(("topology", "expected"), TOPOLOGIES)
def test_topologies_that_do_not_add_up(topology: str, expected: str) -> None:
    (message,) = messages(f"algorithm: hierfavg\ntopology: {topology}\n")
    assert message.startswith(f"f.yaml:2: {expected}")


FAULTS = [
    (
        "{at: 1s, node: device-9, action: crash}",
        ".node: there is no node 'device-9'",
    ),
    (
        "{at: 1s, nodes: [edge-0, edge-7], action: crash}",
        ".nodes: there is no node 'edge-7'",
    ),
    (
        "{node: cloud, action: crash}",
        ": a fault says when with exactly",
    ),
    (
        "{at: 1s, round: 2, node: cloud, action: crash}",
        ": a fault says when with exactly",
    ),
    (
        "{at: 1s, action: crash}",
        ": a fault says whom with exactly",
    ),
    ("{at: 1s, of: devices, action: crash}", ".of: say how many of the"),
    ("{at: 1s, node: cloud, count: 2, action: crash}", ".count: goes with of: devices or"),
    ("{at: 1s, of: devices, count: 5, action: crash}", ".count: 5 is more than there"),
    (
        "{every_round: 10%, node: edge-0, action: crash}",
        ".every_round: is a share of a",
    ),
    ("{every_round: 10%, of: edges, count: 1, action: crash}", ".count: every_round already says how many"),
    ("{at: 1s, node: edge-0, action: partition}", ".action: partition needs between, e.g. between"),
    ("{at: 1s, between: [edge-0, cloud], action: crash}", ".between: goes with partition and degrade"),
    (
        "{at: 1s, between: [edge-0], action: partition}",
        ".between: write the two sides, each",
    ),
    ("{at: 1s, between: [edge-0, edge-1], action: partition}", ".between: no link joins the two"),
    ("{at: 1s, between: [edges, [edge-1, cloud]], action: partition}", ".between: edge-1 is on both sides"),
    (
        "{at: 1s, between: [edges, clod], action: partition}",
        ".between: there is no node 'clod'",
    ),
    (
        "{at: 1s, node: cloud, action: slow}",
        ".action: slow needs a factor; factor",
    ),
    ("{at: 1s, node: cloud, action: pause, factor: 2}", ".factor: goes with slow, not pause"),
    ("{at: 1s, node: cloud, action: slow, factor: 0.5}", ".factor: must be above 1, not"),
    ("{at: 1s, node: cloud, action: degrade}", ".action: degrade needs a profile or"),
    ("{at: 1s, node: cloud, action: crash, loss: 3%}", ".loss: goes with degrade, not crash"),
    ("{at: 1s, node: edge-0, action: degrade, loss: 3}", ".loss: 3 has no unit; write"),
    (
        "{at: 1s, node: edge-0, action: degrade, reorder: 3%}",
        ": on the link edge-0 -> cloud",
    ),
    ("{round: 40, node: cloud, action: crash}", ".round: the run has 10 rounds"),
    ("{at: 10min, node: cloud, action: crash}", ".at: the run is over by"),
    (
        "{at: 1s, node: device-0-0, action: join, for: 5s}",
        ".for: join has no end; a",
    ),
    ("{every_round: 10%, of: devices, action: leave}", ".action: leave happens once: say when"),
    ("{at: 1s, node: cloud, action: leave}", ".action: cloud leads the rounds and"),
    (
        "{at: 1s, node: cloud, action: crsh}",
        ".action: 'crsh' is not one of",
    ),
    ("{at: 1s, node: device-0-0, action: move}", ".action: move needs to, the name"),
    (
        "{at: 1s, node: device-0-0, action: move, to: edge-9}",
        ".to: there is no node 'edge-9'",
    ),
    ("{at: 1s, node: device-0-0, action: move, to: cloud}", ".to: there is no node 'cloud'"),
    (
        "{at: 1s, node: edge-0, action: move, to: edge-1}",
        ".action: edge-0 is no device: only",
    ),
    (
        "{at: 1s, of: devices, count: 1, action: move, to: edge-1}",
        ".of: name the devices that move",
    ),
    (
        "{at: 1s, node: device-0-0, action: move, to: edge-1, for: 5s}",
        ".for: a move has no end",
    ),
    (
        "{at: 1s, node: device-0-0, action: new-address, for: 5s}",
        ".for: a new address stays; say",
    ),
    (
        "{every_round: 10%, of: devices, action: new-address}",
        ".every_round: a new address stays; say",
    ),
    (
        "{at: 1s, between: [edge-0, cloud], action: new-address}",
        ".between: goes with partition and degrade",
    ),
    ("{at: 1s, node: cloud}", ": 'action' is missing"),
]


@pytest.mark.parametrize(("fault", "expected"), FAULTS)
def test_faults_that_make_no_sense(fault: str, expected: str) -> None:
    text = f"algorithm: hierfavg\nlinks: {{edge-cloud: {{rate: 1mbit}}}}\nstop: {{after: 5min}}\nfaults:\n  - {fault}\n"
    (message,) = messages(text)
    assert message.startswith(f"f.yaml:5: faults.0{expected}")


QUORUMS = {
    "0": "must be above 0%, or a",
    "0%": "must be above 0%, or a",
    "-1": "-1: a fraction cannot be negative",
    "1.0": "1.0 has no unit; write a",
    "true": "true is not a fraction; write",
    "3": "cloud cannot wait for 3 answers",
}


@pytest.mark.parametrize(("written", "expected"), QUORUMS.items())
def test_a_quorum_is_a_share_or_a_number_of_peers(written: str, expected: str) -> None:
    text = "algorithm: hierfavg\ngathering: {quorum: %s}\n"
    (message,) = messages(text % written)
    assert message.startswith(f"f.yaml:2: gathering.quorum: {expected}")
    read = {each: parse(text % each, "f.yaml") for each in ("1", "2", "100%")}
    assert [scenario.gathering.quorum for scenario in read.values()] == [Quorum(count=1), Quorum(count=2), Quorum(1.0)]
    for scenario in read.values():
        assert parse(json.dumps(effective(scenario)), "f.yaml").gathering == scenario.gathering


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("algorithm: {name: hierfavg, participation: 0.5}\ntopology: {devices_per_edge: 4}", None),
        (
            "algorithm: {name: hierfavg, participation: 0.3}\ntopology: {devices_per_edge: 3}",
            "edge-0 cannot wait for 2 answers",
        ),
        ("algorithm: {name: fedavg, participation: 50%}\ntopology: {devices: 4}", None),
        (
            "algorithm: {name: fedavg, participation: 30%}\ntopology: {devices: 3}",
            "cloud cannot wait for 2 answers",
        ),
        ("algorithm: onlyedge\ntopology: {edges: 1, devices_per_edge: 2}", None),
        (
            "algorithm: hierfavg\ntopology: {edges: 1, devices_per_edge: 2}",
            "cloud cannot wait for 2 answers",
        ),
        ("algorithm: {name: feelpgen, participation: 1.0}\ntopology: {cloud: false}", None),
        (
            "algorithm: {name: feelpgen-minus, participation: 1.0}\ntopology: {cloud: false}",
            "edge-0 cannot wait for 2 answers",
        ),
    ],
)
def test_a_quorum_by_number_is_no_larger_than_the_selection(text: str, expected: str | None) -> None:
    text += "\ngathering: {quorum: 2}\n"
    if expected is None:
        parse(text, "f.yaml")
    else:
        (message,) = messages(text)
        assert message.startswith(f"f.yaml:3: gathering.quorum: {expected}")


FRACTIONS = {
    "links": "{device-edge: {loss: %s}}",
    "links.device-edge": "{device-edge: {duplicate: %s}}",
    "links.up": "{device-edge: {up: {corrupt: %s}}}",
    "links.pair": "{device-0-0 -> edge-0: {latency: 1ms, reorder: %s}}",
    "links.bursts": "{device-edge: {loss: {gilbert-elliott: {p: %s, r: 30%%}}}}",
    "links.schedule": "{device-edge: {schedule: {steps: [{at: 1s, loss: %s}]}}}",
    "faults": "[{at: 1s, node: edge-0, action: degrade, loss: %s}]",
    "faults.every_round": "[{every_round: %s, of: devices, action: crash}]",
    "faults.fraction": "[{at: 1s, of: devices, fraction: %s, action: crash}]",
    "stop": "{accuracy: %s}",
    "expect": "{accuracy: %s}",
    "data": "{personalisation: %s}",
}


@pytest.mark.parametrize("where", FRACTIONS)
@pytest.mark.parametrize(
    ("written", "meant"), [("1.0", "1% or 100%"), ("0.3", "0.3% or 30%"), ("'0.3'", "0.3% or 30%")]
)
def test_a_fraction_has_a_percent_sign_everywhere(where: str, written: str, meant: str) -> None:
    text = f"algorithm: hierfavg\n{where.partition('.')[0]}: {FRACTIONS[where]}\n"
    (message,) = messages(text % written)
    assert message.startswith("f.yaml:2: ")
    assert f"write a percentage: {meant}" in message
    parse(text % "30%", "f.yaml")


def test_a_fraction_in_an_override_has_a_percent_sign() -> None:
    assert messages("algorithm: hierfavg\n", "links.device-edge.loss=1") == [
        containing("--set links.device-edge.loss=1: links.device-edge.loss: 1 has no")
    ]


def test_the_json_schema_takes_no_fraction_without_a_percent_sign() -> None:
    assert FRACTION_SCHEMA["minimum"] == FRACTION_SCHEMA["maximum"] == 0


def test_random_faults_need_an_end() -> None:
    text = "algorithm: hierfavg\nfaults: [{random: {mean: 5s}, of: devices, action: crash}]\n"
    assert messages(text) == [containing("f.yaml:2: faults.0.random: say how", "5min")]
    parse(f"{text}stop: {{after: 1min}}", "f.yaml")


def test_a_mistake_in_an_override_names_the_override() -> None:
    found = messages("algorithm: hierfavg\n", "algorithm.rounds=0", "links.edge-cloud.loss=200%", "nme=x")
    assert found == [
        containing("--set algorithm.rounds=0: algorithm.rounds: must"),
        containing("--set links.edge-cloud.loss=200%: links.edge-cloud.loss: '200%'", "100%"),
        f"--set nme=x: nme: unknown key; did you mean 'name'? (allowed here: {SECTIONS})",
    ]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing, binary = tmp_path / "missing.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match=r"missing\.yaml: cannot be read.*directory$"):
        load(missing)
    with pytest.raises(ScenarioError, match=r"binary\.yaml: cannot be read.*UTF-8"):
        load(binary)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_shipped_scenarios_are_valid_and_start_with_their_question(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith("# ")
    assert "?" in first
    assert load(path).name == path.stem


def test_hello_has_ten_lines_at_most() -> None:
    (hello,) = [path for path in SCENARIOS if path.stem == "hello"]
    assert len(hello.read_text().splitlines()) <= 10


def test_the_json_schema_is_whole() -> None:
    schema = json_schema()
    text = json.dumps(schema)
    for reference in re.findall(r'"\$ref": "#/\$defs/(\w+)"', text):
        assert reference in schema["$defs"]
    assert set(schema["properties"]) == set(Scenario.key_types())
    forms = schema["$defs"]["AlgorithmSpec"]["anyOf"]
    assert forms[0] == {"enum": list(ALGORITHMS)}
    assert [form["properties"]["name"]["const"] for form in forms[1:]] == list(ALGORITHMS)
    hierfavg = next(form for form in forms[1:] if form["properties"]["name"]["const"] == "hierfavg")
    kappa2 = {"type": "integer", "minimum": 1, "default": 2, "description": "κ₂, edge rounds per cloud round"}
    assert hierfavg["properties"]["kappa2"] == kappa2
    partitions = schema["$defs"]["DataSpec"]["properties"]["partition"]["anyOf"]
    assert partitions[0] == {"enum": list(PARTITIONS)}
    assert set(schema["properties"]["links"]["properties"]) == set(LINK_CLASSES)
    assert list(schema["properties"]["routes"]["patternProperties"]) == [r"^\S+ <-> \S+$"]


@pytest.mark.parametrize(
    ("schema", "parser", "good", "bad"),
    [
        (DURATION_SCHEMA, parse_duration, ["20ms", "1.5s", "10min", "3 h", "7us"], ["20", "20m", "-1s", "s"]),
        (FRACTION_SCHEMA, parse_fraction, ["30%", "0.5 %", ".5%", "100%"], ["30", "%", "3ms", "0.3", "101%"]),
        (RATE_SCHEMA, parse_rate, ["50mbit", "1gbit", "5.47kbit", "9bit"], ["50mbps", "50", "5MB/s"]),
        (SIZE_SCHEMA, parse_size, ["64kb", "4gib", "12b"], ["64", "64Kbit"]),
    ],
)
def test_schema_patterns_agree_with_the_parsers(schema: Any, parser: Any, good: list[str], bad: list[str]) -> None:
    for text in good:
        assert re.search(schema["pattern"], text)
        parser(text)
    for text in bad:
        assert not re.search(schema["pattern"], text)
        with pytest.raises(ValueError, match=r"."):
            parser(text)


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fednova"])
@pytest.mark.parametrize(("given", "share"), [("30%", 0.3), ("0.3", 0.3), ("100%", 1.0)])
def test_participation_is_a_share(name: str, given: str, share: float) -> None:
    scenario = parse(f"algorithm: {{name: {name}, participation: {given}}}\ntopology: {{devices: 4}}\n", "f.yaml")
    assert make_plan(scenario, None).params["participation"] == pytest.approx(share)


@pytest.mark.parametrize("given", ["0%", "130%", "30", "-1%", "many", "nan%"])
def test_participation_is_above_0_and_at_most_1(given: str) -> None:
    (found,) = messages(f"algorithm: {{name: fedavg, participation: {given}}}\ntopology: {{devices: 4}}\n")
    assert found.startswith("f.yaml:1: algorithm.participation: ")
    assert found.endswith("above 0 and at most 1")


@pytest.mark.parametrize(
    ("algorithm", "lora", "message"),
    [
        (
            "fedavg",
            "ranks: {phone: 4}",
            "model.lora.ranks: fedavg averages adapters",
        ),
        ("flexlora", "ranks: {host: 4}", "model.lora.ranks.host: no client has this hardware"),
        ("flexlora", "ranks: {pone: 4}", "model.lora.ranks.pone: 'pone' is no hardware class"),
        ("flexlora", None, "model.lora: is missing, and flexlora averages"),
    ],
)
def test_ranks_of_adapters(algorithm: str, lora: str | None, message: str) -> None:
    adapters = "" if lora is None else f", lora: {{targets: [classifier], {lora}}}"
    text = f"algorithm: {algorithm}\nmodel: {{name: mlp{adapters}}}\ntopology: {{devices: 2}}\n"
    (found,) = messages(text + "hardware: {device: phone}\n")
    assert message in found


def test_a_node_has_the_rank_of_its_hardware() -> None:
    scenario = parse(RANKS, "f.yaml")
    found = {member.name: scenario.adapters(member.name)["lora"] for member in scenario.members}
    ranks = {"device-0": 4, "device-1": 2, "device-2": 3}
    assert found["cloud"] == {"rank": 4, "alpha": 16, "targets": ["classifier"], "ranks": ranks}
    assert {name: lora["rank"] for name, lora in found.items()} == ranks | {"cloud": 4}


def test_a_population_has_its_own_selection() -> None:
    text = """\
algorithm: {name: fedavg, participation: 30%}
topology: {population: 100, selected: 10}
data: {samples_per_client: 20}
driver: sim
"""
    (found,) = messages(text)
    assert found == containing("f.yaml:1: algorithm.participation: topology.selected says how")


def test_the_json_schema_has_what_the_parser_takes() -> None:
    defs = json_schema()["$defs"]
    assert defs["TimeoutsSpec"]["properties"]["beat"]["default"] == "1s"
    assert defs["GatheringSpec"]["properties"]["quorum"]["default"] == "50%"
    assert defs["AvailabilitySpec"]["anyOf"][0] == {"const": "day-and-night"}
    forms = {form["properties"]["name"]["const"]: form["properties"] for form in defs["AlgorithmSpec"]["anyOf"][1:]}
    assert "pattern" in forms["fedavg"]["participation"]["anyOf"][1]  # 30%
    assert all("pattern" not in each for each in forms["phe-fl"]["alpha"]["anyOf"])


def undescribed(schema: Any, path: str = "") -> Iterator[str]:
    """The paths of all properties without a description, in a JSON schema."""
    if isinstance(schema, list):
        for each in schema:
            yield from undescribed(each, path)
    if not isinstance(schema, dict):
        return
    for key, value in schema.get("properties", {}).items():
        inner = f"{path}.{key}"
        if not value.get("description"):
            yield inner
        yield from undescribed(value, inner)
    for name, value in schema.get("$defs", {}).items():
        yield from undescribed(value, f"{path}{name}")
    for key in ("anyOf", "items", "additionalProperties"):
        yield from undescribed(schema.get(key), path)


@pytest.mark.parametrize("schema", [json_schema(), SweepFile.model_json_schema()], ids=["scenario", "sweep"])
def test_every_property_has_a_description(schema: dict[str, Any]) -> None:
    assert list(undescribed(schema)) == []


def test_a_property_without_a_description_is_found() -> None:
    assert list(undescribed({"properties": {"a": {"anyOf": [{"properties": {"b": {"description": ""}}}]}}})) == [
        ".a",
        ".a.b",
    ]


def test_a_check_may_have_its_former_name() -> None:
    scenario = parse(
        "algorithm: {name: hierfavg, rounds: 5}\nexpect: {checks: [undisturbed, links kept up]}\n", "f.yaml"
    )
    assert scenario.expect.checks == ["no unplanned failures", "links on time"]
