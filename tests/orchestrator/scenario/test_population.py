"""What a scenario with a population may say, and the one message for each thing that makes no sense with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.planning.faults.manual import faults_by_hand
from orchestrator.planning.making import make_plan
from orchestrator.scenario.media import clients
from orchestrator.scenario.media.clients import crossings_of
from orchestrator.scenario.media.routes import ResolvedMedia, resolve_media
from orchestrator.scenario.media.section import MediumSpec
from orchestrator.scenario.reading import parse
from orchestrator.scenario.sections.topology import Pair
from tests.orchestrator.scenario.cases import pairs
from tests.texts import containing

HEAD = "algorithm: {name: fedavg, rounds: 5}\n"
SIM = HEAD + "driver: sim\n"
TOPOLOGY = "topology: {population: 1000, selected: 10}\n"
DATA = "data: {samples_per_client: 20}\n"
GOOD = SIM + TOPOLOGY + DATA
CELL = GOOD + "shared: {cell: {rate: 20mbit, members: [device-*]}}\n"

OF_FAULTS = "the clients of a population come"

MISTAKES = pairs(
    SIM + "topology: {population: 1000}\n" + DATA,
    "topology: selected: write both",
    SIM + "topology: {population: 10, selected: 11}\n" + DATA,
    "topology.selected: 11 is more than the",
    SIM + "topology: {population: 10, selected: 1, devices: 3}\n" + DATA,
    "topology.population: its clients are below the",
    HEAD + TOPOLOGY + DATA,
    "topology.population: the driver namespaces makes every",
    "algorithm: phe-fl\ndriver: sim\n" + TOPOLOGY + DATA,
    "topology: phe-fl needs edges: the topology",
    SIM + TOPOLOGY,
    "data.samples_per_client: is missing: the clients of",
    GOOD + "clients: {samples: {uniform: {low: 1, high: 9}}}\n",
    "clients.samples: data.samples_per_client gives a number already",
    SIM + TOPOLOGY + "data: {samples_per_client: 20, partition: shards}\n",
    "data.partition: shards divides the data set",
    SIM + TOPOLOGY + "data: {samples_per_client: 20, partition: {dirichlet: {alpha: 0.1, over: edges}}}\n",
    "data.partition: dirichlet: over is for a",
    SIM + "topology: {devices: 3}\nclients: {over: 30%}\n",
    "clients: are those of a population",
    GOOD + "hardware: {device: phone}\nclients: {hardware: {phone: 100%}}\n",
    "hardware.device: clients.hardware says how fast the",
    GOOD + "links: {device-cloud: lte}\nclients: {links: {wifi: 100%}}\n",
    "links.device-cloud: clients.links gives the clients their",
    GOOD + "links: {device-cloud: {schedule: {steps: [{at: 1s, loss: 5%}]}}}\n",
    "links.device-cloud: the links of a population's",
    GOOD + "links: {population <-> cloud: lte}\n",
    "links.population <-> cloud: clients of a",
    GOOD + "faults: [{every_round: 30%, of: devices, action: disconnect}]\n",
    f"faults.0: {OF_FAULTS}",
    GOOD + "faults: [{at: 1s, node: population, action: crash}]\n",
    f"faults.0: {OF_FAULTS}",
    GOOD + "faults: [{at: 1s, node: cloud, action: disconnect}]\n",
    f"faults.0: {OF_FAULTS}",
    GOOD + "faults: [{at: 1s, between: [population, cloud], action: partition}]\n",
    f"faults.0: {OF_FAULTS}",
    CELL + "faults: [{at: 1s, medium: cell, action: disconnect}]\n",
    f"faults.0: {OF_FAULTS}",
    CELL + "faults: [{at: 1s, of: devices, count: 1, action: handover, to: cell}]\n",
    f"faults.0: {OF_FAULTS}",
    CELL + "faults: [{at: 1s, medium: cel, action: degrade, rate: 1mbit}]\n",
    "faults.0.medium: 'cel' is no shared medium",
    GOOD + "shared: {cell: {rate: 20mbit, members: [device-*, population]}}\n",
    "shared.cell.members.1: there is no node 'population'",
    GOOD + "shared: {cell: {rate: 20mbit, members: [device-1000]}}\n",
    "shared.cell.members.0: there is no node 'device-1000'",
    GOOD + "shared: {cell: {rate: 20mbit, members: [device-*7]}, other: {rate: 20mbit, members: [device-7*]}}\n",
    "shared.other: device-7 <-> cloud is in",
    GOOD + "shared: {cell: {rate: 20mbit, share: airtime, members: [device-*], rates: {device-1*: 6mbit}}}\n",
    "shared.cell.rates: are those of single nodes",
    GOOD + "shared: {cell: {rate: 20mbit, members: [device-*], schedule: {csv: gap.csv}}}\n",
    "shared.cell.schedule: csv: a rate of",
    GOOD + "gathering: {quorum: 11}\n",
    "gathering.quorum: cloud cannot wait for",
    GOOD + "clients: {links: {satellite: 100%}}\ntimeouts: {lost_after: 2s}\n",
    "timeouts.lost_after: must be above four round",
    GOOD + "clients: {links: {wifi: 60%, lte: 30%}}\n",
    "clients.links: the shares add up to",
    GOOD + "clients: {hardware: {phon: 100%}}\n",
    "clients.hardware: 'phon' is no hardware class",
    GOOD + "clients: {selection: ort}\n",
    "clients.selection.name: 'ort' is no selection; did you mean 'oort'?",
    GOOD + "clients: {selection: {name: oort, alpa: 1}}\n",
    "clients.selection.alpa: unknown parameter 'alpa'; did you mean 'alpha'?",
    GOOD + "clients: {speed: {lognormal: {median: 1, sigma: 0.5}, uniform: {low: 1, high: 2}}}\n",
    "clients.speed: write one distribution",
    GOOD + "clients: {availability: {}}\n",
    "clients.availability: write day-and-night, or {trace: FILE}",
    GOOD + "clients: {availability: {day-and-night: {time_zones: {east: 100%}}}}\n",
    "clients.availability.day-and-night.time_zones",
    GOOD + "clients: {availability: {trace: nowhere.csv}}\n",
    "clients.availability.trace: nowhere.csv cannot be read: No",
)


@pytest.mark.parametrize(("text", "expected"), MISTAKES, ids=[expected[:50] for _, expected in MISTAKES])
def test_what_makes_no_sense_is_refused_with_a_reason(text: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml", files={"gap.csv": "t_s,rate_mbit\n0,10\n5,0\n"})
    lines = str(caught.value).splitlines()
    assert len(lines) == 1, lines
    assert expected in lines[0]


def test_members_of_media_are_patterns_of_clients() -> None:
    text = """\
shared:
  uplink: {rate: 100mbit, members: ["device-* <-> cloud"]}
  cell-1: {up: 20mbit, down: 100mbit, members: [device-*1, device-654320]}
  ap: {rate: 50mbit, duplex: half, members: [device-7*0, "*-5003", device-*002]}
"""
    scenario = parse(GOOD.replace("1000", "1000000") + text, "f.yaml")
    media = scenario.resolved_media
    assert media.members["cell-1"] == ("device-*1", "device-654320")
    assert not media.crossings
    of = crossings_of(scenario.shared, scenario.routes)
    ways = {name: of(name) for name in ("device-999991", "device-70")}
    assert [[each.channel for each in way] for way in ways["device-999991"]] == [
        ["cell-1 up", "uplink up"],
        ["uplink down", "cell-1 down"],
    ]
    assert [[each.channel for each in way] for way in ways["device-70"]] == [["ap", "uplink up"], ["uplink down", "ap"]]


def test_clients_of_the_same_patterns_are_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = "".join(f"  cell-{n}: {{rate: 20mbit, members: [device-*{n}]}}\n" for n in range(10))
    links = "  uplink: {rate: 9mbit, members: [cloud <-> *]}\n  other: {rate: 1mbit, members: [device-*1 <-> cloud]}\n"
    routes = "routes: {cloud <-> device-*1: [cell-1, other, uplink]}\n"
    scenario = parse(GOOD + "shared:\n" + cells + links + routes, "f.yaml")
    resolved: list[str] = []

    def count(
        shared: Mapping[str, MediumSpec], routes: Mapping[str, Sequence[str]], pairs: Sequence[Pair]
    ) -> ResolvedMedia:
        resolved.append(pairs[0].lower)
        return resolve_media(shared, routes, pairs)

    monkeypatch.setattr(clients, "resolve_media", count)
    of = crossings_of(scenario.shared, scenario.routes)
    for number in range(1000):
        pair = Pair(f"device-{number}", "cloud", "device-cloud")
        crossings = resolve_media(scenario.shared, scenario.routes, [pair]).crossings
        assert of(pair.lower) == (crossings[pair.lower, "cloud"], crossings["cloud", pair.lower])
    assert len(resolved) == 10


def test_deadlines_count_the_share_of_a_round_that_a_client_has() -> None:
    alone, slow = (
        make_plan(parse(GOOD + text, "f.yaml"), None).gathering.deadlines["cloud"]
        for text in ("", "shared: {cell: {rate: 100kbit, members: [device-*]}}\n")
    )
    spread = ", ".join(f"cell-{n}: {{rate: 100kbit, members: [device-*{n}]}}" for n in range(10))
    cells = make_plan(parse(GOOD + f"shared: {{{spread}}}\n", "f.yaml"), None).gathering.deadlines["cloud"]
    assert alone < cells < slow / 2


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fednova"])
def test_averaging_algorithms_are_for_populations(algorithm: str) -> None:
    assert parse(GOOD.replace("fedavg", algorithm), "f.yaml").scheme.population


def test_other_flat_algorithms_are_refused_with_a_reason() -> None:
    text = "plugins: [edgebed.baselines.fedala]\n" + GOOD.replace("fedavg", "fedala")
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml")
    assert "needs the same clients from round" in str(caught.value)


@pytest.mark.parametrize("algorithm", ["fedbuff", "fedasync"])
def test_asynchronous_algorithms_select_one_by_one(algorithm: str) -> None:
    text = f"plugins: [edgebed.baselines.{algorithm}]\n" + GOOD.replace("fedavg", algorithm)
    plan = make_plan(parse(text + "clients: {selection: least-available}\n", "f.yaml"), None)
    assert plan.population is not None
    assert (plan.population.asynchronous, plan.population.asked) == (True, 10)
    with pytest.raises(ScenarioError) as caught:
        parse(text + "clients: {over: 30%, selection: oort}\n", "f.yaml")
    assert [line.partition("clients.")[2] for line in str(caught.value).splitlines()] == [
        containing(f"over: {algorithm} has no", "topology.selected"),
        containing("selection: oort divides", "least-available"),
    ]


def test_a_plan_has_one_node_for_all_clients() -> None:
    plan = make_plan(parse(GOOD, "f.yaml"), None)
    assert [(node.name, node.tier, node.parent) for node in plan.nodes] == [
        ("cloud", "cloud", None),
        ("population", "device", "cloud"),
    ]
    assert plan.population is not None
    assert plan.to_json()["population"]["size"] == 1000
    assert len(plan.shards.train) == 0


def test_a_plan_without_a_population_does_not_mention_one() -> None:
    assert "population" not in make_plan(parse(HEAD + "topology: {devices: 2}\n", "f.yaml"), None).to_json()


def test_more_clients_are_asked_than_are_waited_for() -> None:
    plan = make_plan(parse(GOOD + "clients: {over: 25%}\n", "f.yaml"), None)
    assert plan.population is not None
    assert (plan.population.selected, plan.population.asked) == (10, 13)  # 12.5, rounded up


def test_the_deadline_includes_the_slowest_client() -> None:
    fast = make_plan(parse(GOOD, "f.yaml"), None).gathering.deadlines["cloud"]
    slow = GOOD + "clients: {hardware: {host: 90%, raspberry-pi-3: 10%}, links: {lan: 50%, satellite: 50%}}\n"
    assert make_plan(parse(slow, "f.yaml"), None).gathering.deadlines["cloud"] > fast


def test_the_node_for_all_clients_has_what_most_of_them_have() -> None:
    text = GOOD + "clients: {hardware: {host: 40%, phone: 60%}, links: {wifi: 30%, lte: 70%}}\n"
    plan = make_plan(parse(text, "f.yaml"), None)
    assert plan.node("population").hardware.name == "phone"
    up, down = (link.profile.rate for link in plan.links)
    assert (up, down) == (7.6e6, 29.5e6)  # lte-up and lte
    drawn = make_plan(parse(GOOD + "clients: {speed: {uniform: {low: 0.2, high: 0.4}}}\n", "f.yaml"), None)
    assert drawn.node("population").hardware.speed == pytest.approx(0.3, abs=0.02)


def test_manual_faults_obey_the_same_rule() -> None:
    plan = make_plan(parse(GOOD, "f.yaml"), None)
    with pytest.raises(ValueError, match="come and go"):
        faults_by_hand({"action": "crash", "node": "population"}, plan, 1.0, 0)
    (made,) = faults_by_hand({"action": "crash", "node": "cloud", "for": "1s"}, plan, 1.0, 0)
    assert made.fault.target == "cloud"
