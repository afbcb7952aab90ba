"""From a scenario to its population: shares, links and hardware as plans draw from them."""

from __future__ import annotations

import numpy as np
import pytest

from netem.library import PROFILES
from orchestrator.errors import PlanError, ScenarioError
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.population.availability import Always, DayAndNight, FromTrace
from orchestrator.population.population import Population
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.hardware import HARDWARE
from orchestrator.scenario.sections.topology import POPULATION
from tests.orchestrator.labels import prepared
from tests.texts import containing

HEAD = """\
algorithm: fedavg
driver: sim
topology: {population: 900, selected: 20}
data: {samples_per_client: 20}
"""
USUAL = """\
hardware: {device: raspberry-pi-4}
links: {device-cloud: {latency: 7ms, up: {rate: 1mbit}, down: {rate: 9mbit}}}
"""


def read(text: str, settings: str = "", stays: str = "") -> Scenario:
    return parse(text, "f.yaml", files={"clients.csv": settings, "stays.csv": stays})


def plan(more: str = "", settings: str = "", stays: str = "", *, usual: str = USUAL) -> Plan:
    return make_plan(read(HEAD + usual + more, settings, stays), prepared())


def population(more: str = "", settings: str = "", stays: str = "") -> Population:
    planned = plan(more, settings, stays).population
    assert planned is not None
    return planned


def test_clients_are_alike_unless_the_scenario_says_more() -> None:
    planned = population()
    assert (planned.size, planned.selected, planned.asked) == (900, 20, 20)
    assert [(share.name, share.share, share.speed) for share in planned.hardware] == [("raspberry-pi-4", 1.0, 0.16)]
    (link,) = planned.links
    assert (link.name, link.share, link.up.rate, link.down.rate) == ("device-cloud", 1.0, 1e6, 9e6)
    assert planned.availability == Always(900)
    assert set(planned.sample_counts) == {20}
    assert planned.alpha is None
    assert not planned.paired
    assert plan().clients == {}
    assert make_plan(parse("algorithm: fedavg\ntopology: {devices: 2}\n", "f.yaml"), prepared()).population is None


@pytest.mark.parametrize(
    ("over", "selected", "asked"),
    [
        ("10%", 100, 110),  # 100 * 1.1 is 110.00000000000001
        ("30%", 25, 33),  # 32.5, rounded up
        ("50%", 800, 900),  # all that there are
    ],
)
def test_more_clients_are_asked_than_are_needed(over: str, selected: int, asked: int) -> None:
    text = HEAD.replace("selected: 20", f"selected: {selected}") + USUAL + f"clients: {{over: {over}}}\n"
    planned = make_plan(read(text), prepared()).population
    assert planned is not None
    assert planned.asked == asked


def test_classes_and_links_have_their_shares_and_the_plan_the_most_frequent() -> None:
    planned = plan("clients: {hardware: {phone: 30%, raspberry-pi-3: 70%}, links: {wifi: 20%, lte: 80%}}\n", usual="")
    assert planned.population is not None
    assert [(share.name, share.share) for share in planned.population.hardware] == [
        ("phone", 0.3),
        ("raspberry-pi-3", 0.7),
    ]
    wifi, lte = planned.population.links
    assert (wifi.share, lte.share) == (0.2, 0.8)
    assert (lte.up.rate, lte.down.rate) == (PROFILES["lte-up"].rate, PROFILES["lte"].rate)
    assert planned.node(POPULATION).hardware == HARDWARE["raspberry-pi-3"]
    assert planned.node("cloud").hardware.name == "host"
    rates = {link.source: link.profile.rate for link in planned.links}
    assert rates == {POPULATION: PROFILES["lte-up"].rate, "cloud": PROFILES["lte"].rate}


def test_the_plan_has_the_median_speed() -> None:
    planned = plan("clients: {speed: {uniform: {low: 0.2, high: 0.4}}}\n", usual="")
    assert planned.population is not None
    assert planned.node(POPULATION).hardware.speed == float(np.median(planned.population.speeds))
    assert planned.node(POPULATION).hardware.speed == pytest.approx(0.3, abs=0.01)  # 900 draws


def test_hardware_of_the_scenario_stands_in_for_clients() -> None:
    of_device = "hardware: {device: {speed: 0.3, cores: 2}}"
    planned = make_plan(read(HEAD + of_device), prepared())
    assert planned.node(POPULATION).hardware.speed == 0.3


def test_clients_draw_labels_by_a_dirichlet_distribution() -> None:
    text = HEAD.replace("data: {", "data: {partition: {dirichlet: 0.5}, ")
    planned = make_plan(read(text), prepared()).population
    assert planned is not None
    assert planned.alpha == 0.5


@pytest.mark.parametrize(
    ("samples", "key"),
    [("clients: {samples: {uniform: {low: %d, high: %d}}}\n", "clients.samples"), ("", "data.samples_per_client")],
)
def test_a_client_draws_at_most_the_samples_that_there_are(samples: str, key: str) -> None:
    """There are 1,000."""
    for count, refused in ((1000, False), (1001, True)):
        text = HEAD.replace("samples_per_client: 20", f"samples_per_client: {count}")
        if samples:
            text = HEAD.replace("data: {samples_per_client: 20}\n", samples % (count, count))
        if refused:
            with pytest.raises(PlanError, match=rf"^{key}.*client.*1001 samples of 1000"):
                make_plan(read(text), prepared())
        else:
            make_plan(read(text), prepared())


def test_clients_are_available_by_a_model_or_a_trace() -> None:
    model = population("clients: {availability: {day-and-night: {time_zones: {1h: 60%, -5h: 40%}}}}\n").availability
    assert isinstance(model, DayAndNight)
    assert model.time_zones == {3600.0: 0.6, -18_000.0: 0.4}
    stays = "device,from,until\n7,0,100\n"
    trace = population("clients: {availability: {trace: stays.csv}}\n", stays=stays).availability
    assert isinstance(trace, FromTrace)


def test_each_client_of_a_population_draws_a_row() -> None:
    rows = "speed,profile,rate_up_mbit\n0.5,lte,2\n,3g,\n0.25,,\n"
    drawn_from = population("clients: {file: clients.csv}\n", rows)
    assert [(share.speed, share.share) for share in drawn_from.hardware] == [(0.5, 1 / 3), (0.16, 1 / 3), (0.25, 1 / 3)]
    assert drawn_from.paired
    lte, third, usual = drawn_from.links
    assert {link.share for link in drawn_from.links} == {1 / 3}
    assert (lte.up.rate, lte.down.rate) == (2e6, PROFILES["lte"].rate)
    assert (third.up.rate, third.down.rate) == (PROFILES["3g-up"].rate, PROFILES["3g"].rate)
    assert (usual.up.latency, usual.up.rate, usual.down.rate) == (0.007, 1e6, 9e6)
    links = [drawn_from.links[number].name for number in drawn_from.link_numbers]
    drawn = list(zip(drawn_from.speeds, links, strict=True))
    assert set(drawn) == {(0.5, "lte"), (0.16, "3g"), (0.25, "device-cloud")}
    assert [drawn.count(each) for each in sorted(set(drawn))] == pytest.approx(
        [300, 300, 300], abs=60
    )  # 900 clients: a standard deviation of 14


@pytest.mark.parametrize(
    ("more", "rows", "message"),
    [
        ("", "speed,memory_gib\n1,4\n", "clients.csv:2: memory has no effect"),
        ("", "speed\nfast\n", "clients.csv:2: speed: write a number, not"),
        ("", "class\nfone\n", "clients.csv:2: 'fone' is no hardware class"),
        ("", "profile\nreal\n", "clients.csv:2: profile: a link is real"),
        ("", "rate_mbit\n-5\n", "clients.csv:2: rate: "),
        (", links: {wifi: 100%}", "speed\n1\n", "f.yaml:5: clients.links: clients.csv gives it already"),
    ],
)
def test_mistakes_in_a_file_of_devices(more: str, rows: str, message: str) -> None:
    with pytest.raises((ScenarioError, PlanError)) as caught:
        make_plan(read(HEAD + f"clients: {{file: clients.csv{more}}}\n", rows), None)
    assert message in str(caught.value)


NODES = "algorithm: fedavg\ntopology: {devices: 2}\nstop: {after: 100s}\n"
STAYS = "device,from,until\n7,20,100\n3,0,60\n9,5,6\n"


def test_a_plan_names_the_files_and_how_many_rows_are_used() -> None:
    files = "clients: {file: clients.csv, availability: {trace: stays.csv, repeat: 200s}}\n"
    planned = make_plan(read(NODES + files, "speed\n1\n0.5\n0.2\n", STAYS), None)
    speeds = {node.name: node.hardware.speed for node in planned.nodes if node.tier == "device"}
    assert speeds == {"device-0": 1.0, "device-1": 0.5}
    assert planned.notes()[-2:] == [
        containing("clients.csv has 3", "first 2"),
        containing("stays.csv has 3", "first 2"),
    ]
    settings, availability = planned.clients["file"], planned.clients["availability"]
    assert (settings["csv"], settings["rows"], settings["used"]) == ("clients.csv", 3, 2)
    assert (availability["trace"], availability["rows"], availability["used"]) == ("stays.csv", 3, 2)
    assert (availability["first"], availability["change"]) == (0.0, 0.0)


def test_all_rows_are_used_that_name_nodes_or_are_for_a_population() -> None:
    of_file = "clients: {file: clients.csv}\n"
    named = make_plan(read(NODES + of_file, "node,speed\ndevice-1,1\n"), None).clients
    assert named["file"]["used"] == 1
    drawn = "clients: {file: clients.csv, availability: {trace: stays.csv}}\n"
    of_population = plan(drawn, "speed\n1\n0.5\n0.2\n", STAYS).clients
    assert of_population.keys() == {"file"}
    assert of_population["file"]["used"] == 3


def test_without_a_file_only_the_trace_is_named() -> None:
    planned = make_plan(read(NODES + "clients: {availability: {trace: stays.csv}}\n", "", STAYS), None)
    assert planned.clients.keys() == {"availability"}
