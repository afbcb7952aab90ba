"""Rules to faults: the same list for the same seed, the right number, the right targets."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from netem.library import PROFILES
from netem.media.profile import Crossing
from netem.profile import LinkProfile
from node.assignment import derive_seed
from orchestrator.errors import PlanError, ScenarioError
from orchestrator.planning.faults.timeline import Fault, FaultTime, expand, joins
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse
from orchestrator.scenario.sections.faults import FaultSpec, links_between
from orchestrator.scenario.sections.links import LinkSpec
from orchestrator.scenario.sections.topology import Ends, Topology

TOPOLOGY = Topology(edges=2, devices_per_edge=5)
LINKS: list[Ends] = [
    (a, b) for pair in TOPOLOGY.pairs(mesh=False) for a, b in ((pair.lower, pair.upper), (pair.upper, pair.lower))
]


def faults(*rules: dict[str, Any], seed: int = 7, rounds: int = 20, after: float | None = 600.0) -> tuple[Fault, ...]:
    specs = [FaultSpec.model_validate(rule) for rule in rules]
    return expand(specs, TOPOLOGY, LINKS, seed=seed, rounds=rounds, after=after)


def test_a_rule_for_one_node_is_one_fault() -> None:
    (fault,) = faults({"at": "20s", "node": "device-1-2", "action": "crash", "for": "15s"})
    assert fault == Fault(1, "crash", "device-1-2", None, at=20.0, round=None, duration=15.0)
    assert fault.target == "device-1-2"
    assert not fault.lasts_a_round


def test_faults_are_numbered_by_time_then_by_round() -> None:
    listed = faults(
        {"round": 3, "node": "cloud", "action": "pause"},
        {"at": "20s", "node": "cloud", "action": "pause"},
        {"round": 2, "node": "cloud", "action": "pause"},
        {"at": "500ms", "node": "cloud", "action": "pause"},
        {"at": "0s", "node": "cloud", "action": "pause"},
    )
    expected = [(1, 0.0, None), (2, 0.5, None), (3, 20.0, None), (4, None, 2), (5, None, 3)]
    assert [(fault.id, fault.at, fault.round) for fault in listed] == expected


def test_a_fault_with_an_event_comes_last_and_keeps_it() -> None:
    _, fault = faults(
        {"event": "ready", "node": "cloud", "action": "pause"},
        {"round": 2, "node": "cloud", "action": "pause"},
    )
    assert (fault.event, fault.at, fault.round) == ("ready", None, None)
    assert Fault.from_json(json.loads(json.dumps(fault.to_json()))) == fault


def test_disconnecting_a_node_touches_all_its_links() -> None:
    (fault,) = faults({"at": "1s", "node": "edge-0", "action": "disconnect"})
    assert len(fault.links) == 12  # five devices and the cloud, both ways
    assert all("edge-0" in link for link in fault.links)


def test_one_direction_is_cut_alone() -> None:
    (fault,) = faults({"at": "1s", "node": "edge-0", "action": "disconnect", "direction": "up"})
    assert set(fault.links) == {("edge-0", "cloud"), *((f"device-0-{number}", "edge-0") for number in range(5))}
    between = {"at": "1s", "between": ["edge-0", "cloud"], "action": "partition"}
    (fault,) = faults(between | {"direction": "down"})
    assert fault.links == (("cloud", "edge-0"),)
    (fault,) = faults({"at": "1s", "of": "devices", "count": 1, "action": "degrade", "direction": "down", "loss": "5%"})
    assert [target for _, target in fault.links] == [fault.node]


ASYMMETRIC = [name for name in PROFILES if f"{name}-up" in PROFILES]


@pytest.mark.parametrize("profile", ASYMMETRIC)
@pytest.mark.parametrize("where", [{"node": "edge-0"}, {"between": ["edge-0", "cloud"]}])
def test_a_named_profile_degrades_each_direction_as_a_link_of_that_name(profile: str, where: dict[str, Any]) -> None:
    (fault,) = faults({"at": "1s", "action": "degrade", "profile": profile} | where)
    changes = fault.changes_by_link()
    assert changes.keys() == set(fault.links)
    up = LinkProfile(latency=3.0, loss=0.5).merged(changes["edge-0", "cloud"])  # nothing of it is left
    down = LinkProfile(latency=3.0, loss=0.5).merged(changes["cloud", "edge-0"])
    assert (up, down) == LinkSpec.model_validate({"profile": profile}).directions(level=False)
    assert up.rate != down.rate
    assert Fault.from_json(json.loads(json.dumps(fault.to_json()))) == fault


def test_a_profile_that_is_the_same_both_ways_is_written_once() -> None:
    (fault,) = faults({"at": "1s", "action": "degrade", "profile": "wan-eu", "node": "edge-0"})
    assert not {"upward", "profile_up"} & fault.to_json().keys()


def test_a_device_that_moves_keeps_its_channels() -> None:
    (fault,) = faults({"at": "1s", "node": "device-0-0", "action": "move", "to": "edge-1"})
    assert (fault.node, fault.to, fault.crossings) == ("device-0-0", "edge-1", ())


def test_crashing_a_node_touches_no_link() -> None:
    (fault,) = faults({"at": "1s", "node": "edge-0", "action": "crash"})
    assert fault.links == ()


def test_a_partition_comes_between_two_sides() -> None:
    (fault,) = faults({"at": "1s", "between": ["edges", "cloud"], "action": "partition"})
    assert fault.between == (("edge-0", "edge-1"), ("cloud",))
    assert sorted(fault.links) == [("cloud", "edge-0"), ("cloud", "edge-1"), ("edge-0", "cloud"), ("edge-1", "cloud")]
    assert fault.target == "edge-0, edge-1 | cloud"


def test_a_large_side_is_reported_in_short() -> None:
    (fault,) = faults({"at": "1s", "between": ["devices", "edges"], "action": "partition"})
    assert fault.target == "device-0-0 ... device-1-4 (10) | edge-0, edge-1"


def test_a_side_of_three_is_reported_in_full() -> None:
    three, four = ("a", "b", "c"), ("d", "e", "f", "g")
    assert Fault(1, "partition", None, (three, four), 1.0, None, None).target == "a, b, c | d ... g (4)"


def test_links_between_leaves_out_links_inside_a_side() -> None:
    links = [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"), ("b", "c")]
    assert links_between({"a", "b"}, {"c"}, links) == (("a", "c"), ("c", "a"), ("b", "c"))


def test_degrading_by_keys_changes_only_these() -> None:
    (fault,) = faults({"at": "1s", "node": "device-0-0", "action": "degrade", "loss": "10%"})
    assert fault.profile == {"loss": "10%"}


def test_degrading_to_a_named_profile_changes_every_key() -> None:
    (fault,) = faults({"at": "1s", "node": "device-0-0", "action": "degrade", "profile": "dsl", "loss": "1%"})
    assert fault.profile == {
        "latency": "18.5ms",
        "jitter": "0s",
        "distribution": "normal",
        "loss": "1%",
        "rate": "5.66mbit",
        "buffer": None,
        "duplicate": "0%",
        "corrupt": "0%",
        "reorder": "0%",
        "drop_above": None,
    }


def test_a_share_every_round_lasts_for_the_round() -> None:
    listed = faults({"every_round": "30%", "of": "devices", "action": "disconnect"}, rounds=4)
    assert Counter(fault.round for fault in listed) == {1: 3, 2: 3, 3: 3, 4: 3}  # 30 % of ten devices
    assert all(fault.lasts_a_round and fault.duration is None for fault in listed)
    assert len({fault.node for fault in listed if fault.round == 1}) == 3


def test_a_share_every_round_with_a_duration_ends_after_it() -> None:
    listed = faults({"every_round": "30%", "of": "devices", "action": "disconnect", "for": "2s"}, rounds=1)
    assert [(fault.lasts_a_round, fault.duration) for fault in listed] == [(False, 2.0)] * 3


def test_a_share_that_is_no_whole_number_is_right_on_average() -> None:
    """25 % of ten devices: two or three a round; over 2000 rounds the mean is 2.5 within four standard errors."""
    counts = Counter(
        fault.round for fault in faults({"every_round": "25%", "of": "devices", "action": "pause"}, rounds=2000)
    )
    assert set(counts.values()) == {2, 3}
    assert counts.total() / 2000 == pytest.approx(2.5, abs=4 * 0.5 / 2000**0.5)


def test_more_rounds_leave_the_earlier_ones_as_they_were() -> None:
    rule = {"every_round": "25%", "of": "devices", "action": "pause"}
    assert faults(rule, rounds=50)[: len(faults(rule, rounds=20))] == faults(rule, rounds=20)


def test_the_seed_decides() -> None:
    rule = {"every_round": "30%", "of": "devices", "action": "pause"}
    assert faults(rule) == faults(rule)
    assert faults(rule) != faults(rule, seed=8)


CRASHES: dict[str, Any] = {"every_round": "30%", "of": "devices", "action": "crash"}
PAUSES: dict[str, Any] = {"at": "5s", "of": "devices", "count": 4, "action": "pause"}
CUTS: dict[str, Any] = {"random": {"mean": "30s"}, "of": "devices", "action": "disconnect", "for": "5s"}


def struck(listed: tuple[Fault, ...], action: str) -> list[tuple[str | None, float | None, int | None]]:
    return [(fault.node, fault.at, fault.round) for fault in listed if fault.action == action]


def test_rules_that_come_go_or_change_places_leave_the_draws_of_others_as_they_were() -> None:
    """Ten devices, of which 3 a round, 4 at once, and about 20 by chance: to be equal by accident is hopeless."""
    everything = faults(CRASHES, PAUSES, CUTS)
    for rules in ([PAUSES, CUTS, CRASHES], [CUTS, CRASHES], [CRASHES], [PAUSES], [CUTS]):
        listed = faults(*rules)
        for action in {str(rule["action"]) for rule in rules}:
            assert struck(listed, action) == struck(everything, action)


def test_a_rule_draws_by_what_it_says_however_it_is_written() -> None:
    same = {"action": "crash", "of": "devices", "every_round": "30.0 %", "for": None}
    assert faults(same) == faults(CRASHES)
    assert struck(faults(CRASHES | {"every_round": "31%"}), "crash") != struck(faults(CRASHES), "crash")


def test_a_plan_draws_the_same_in_every_version() -> None:
    """By the seed, the rule's canonical text, and how many equal rules there were, itself included."""
    rule = '{"action": "pause", "at": "5s", "count": 4, "of": "devices"}'
    written = FaultSpec.model_validate(PAUSES).model_dump(mode="json", exclude_none=True)
    assert json.dumps(written, sort_keys=True) == rule
    devices = [f"device-{edge}-{number}" for edge in range(2) for number in range(5)]
    drawn = []
    for repetition in ("1", "2"):
        random = np.random.default_rng(derive_seed(7, "fault", rule, repetition))
        drawn += [devices[place] for place in sorted(random.choice(10, 4, replace=False))]
    assert [fault.node for fault in faults(PAUSES, PAUSES)] == drawn


def test_equal_rules_draw_differently_and_the_first_as_if_it_were_alone() -> None:
    both, alone = struck(faults(PAUSES, PAUSES), "pause"), struck(faults(PAUSES), "pause")
    assert both[:4] == alone
    assert both[4:] != alone


@pytest.mark.parametrize(
    ("amount", "expected"),
    [({"count": 4}, 4), ({"fraction": "25%"}, 3), ({"fraction": "24%"}, 2), ({"fraction": "1%"}, 1)],
)
def test_a_group_at_a_time_loses_so_many(amount: dict[str, Any], expected: int) -> None:
    """25 % of ten are 2.5, rounded up; a share that was asked for is never nobody."""
    listed = faults({"at": "5s", "of": "devices", "action": "crash"} | amount)
    assert len({fault.node for fault in listed}) == len(listed) == expected


def test_random_faults_come_at_the_mean_rate() -> None:
    """A Poisson process of mean 1 s over 2000 s: 2000 events, standard deviation sqrt(2000)."""
    listed = faults({"random": {"mean": "1s", "until": "2000s"}, "of": "devices", "action": "pause", "for": "1ms"})
    assert len(listed) == pytest.approx(2000, abs=4 * 2000**0.5)
    assert all(0 < (fault.at or 0) < 2000 for fault in listed)
    assert len({fault.node for fault in listed}) == 10


def test_random_faults_strike_no_one_who_is_down() -> None:
    listed = faults({"random": {"mean": "1s"}, "of": "devices", "action": "crash", "for": "20s"}, after=100.0)
    ends: dict[str | None, float] = {}
    for fault in listed:
        assert fault.at is not None
        assert fault.at >= ends.get(fault.node, 0.0) - 0.001  # times are rounded to milliseconds
        ends[fault.node] = fault.at + 20.0


def test_random_faults_without_an_end_strike_each_node_once() -> None:
    listed = faults({"random": {"mean": "1s"}, "of": "edges", "action": "crash"})
    assert sorted(fault.node or "" for fault in listed) == ["edge-0", "edge-1"]


def test_random_faults_strike_as_many_as_the_rule_says() -> None:
    """Half of ten devices at a time, or both edges that it names. Times are in whole milliseconds."""
    half = {"random": {"mean": "10s"}, "of": "devices", "fraction": "50%", "action": "pause", "for": "1ms"}
    times = Counter(fault.at for fault in faults(half))
    assert set(times.values()) == {5}
    assert len({(fault.at, fault.node) for fault in faults(half)}) == times.total()
    assert all(time == round(time or 0.0, 3) for time in times)
    named = {"random": {"mean": "10s"}, "nodes": ["edge-0", "edge-1"], "action": "pause", "for": "1ms"}
    assert set(Counter(fault.at for fault in faults(named)).values()) == {2}


def test_random_faults_strike_from_the_start() -> None:
    """A mean of 10 ms over 500 ms: none at all would have the probability exp(-50)."""
    rule = {"random": {"mean": "10ms", "until": "500ms"}, "node": "edge-0", "action": "pause", "for": "1ms"}
    assert faults(rule)


def test_a_node_gets_new_addresses_as_often_as_they_are_drawn() -> None:
    listed = faults({"random": {"mean": "1s"}, "node": "edge-0", "action": "new-address"}, after=1000.0)
    assert len(listed) == pytest.approx(1000, abs=130)  # four standard deviations of a Poisson count of 1,000


def test_random_faults_stop_where_the_run_does() -> None:
    listed = faults({"random": {"mean": "1s"}, "node": "edge-0", "action": "pause", "for": "1ms"}, after=10.0)
    assert listed
    assert all((fault.at or 0) < 10.0 for fault in listed)


def test_joining_nodes_are_known_by_their_time() -> None:
    listed = faults(
        {"at": "5s", "node": "device-0-1", "action": "join"}, {"round": 3, "node": "device-0-2", "action": "join"}
    )
    assert joins(listed) == {"device-0-1": FaultTime(5.0, None), "device-0-2": FaultTime(None, 3)}


def test_a_node_joins_once() -> None:
    join = {"at": "5s", "node": "device-0-1", "action": "join"}
    with pytest.raises(PlanError, match=r"^faults: device-0-1 would join twice$"):
        faults(join, join)


def test_nothing_happens_to_a_node_before_it_joins() -> None:
    with pytest.raises(PlanError, match=r"^faults: crash of device-0-1.*joins$"):
        faults(
            {"at": "5s", "node": "device-0-1", "action": "join"}, {"at": "3s", "node": "device-0-1", "action": "crash"}
        )


def test_a_time_and_a_round_cannot_be_compared() -> None:
    by_time, by_round = {"at": "5s"}, {"round": 1}
    for join, crash in ((by_time, by_round), (by_round, by_time)):
        node = {"node": "device-0-1"}
        assert len(faults(node | join | {"action": "join"}, node | crash | {"action": "crash"})) == 2


def test_no_one_who_is_yet_to_join_is_drawn() -> None:
    listed = faults(
        {"round": 3, "node": "device-0-0", "action": "join"},
        {"every_round": "100%", "of": "devices", "action": "pause"},
        rounds=5,
    )
    assert [fault.round for fault in listed if fault.node == "device-0-0" and fault.action == "pause"] == [3, 4, 5]


WATCHED = """\
programs: {cloud: serve, device: ask, watcher: {on: device, command: watch}}
topology: {cloud: true, edges: 0, devices: 2}
stop: {after: 1min}
faults:
  - {at: 1s, node: cloud, program: cloud, action: crash}
  - {at: 2s, nodes: [device-0, device-1], program: device, action: pause, for: 1s}
  - {at: 3s, of: devices, count: 2, program: watcher, action: crash, for: 1s}
"""


def test_a_fault_of_one_program_has_its_label() -> None:
    faults = make_plan(parse(WATCHED, "f.yaml"), None).faults
    assert [(fault.action, fault.node, fault.program) for fault in faults] == [
        ("crash", "cloud", "cloud"),
        ("pause", "device-0", "device-0"),
        ("pause", "device-1", "device-1"),
        ("crash", "device-0", "device-0.watcher"),
        ("crash", "device-1", "device-1.watcher"),
    ]
    assert all(Fault.from_json(json.loads(json.dumps(fault.to_json()))) == fault for fault in faults)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("action: power-off, program: cloud", r"program: goes with crash.*power-off"),
        ("action: crash, program: device", "program: cloud has no program 'device'"),
    ],
)
def test_a_program_that_no_fault_can_hit(fault: str, said: str) -> None:
    text = WATCHED.partition("faults:")[0] + f"faults: [{{at: 1s, node: cloud, {fault}}}]\n"
    with pytest.raises(ScenarioError, match=said):
        make_plan(parse(text, "f.yaml"), None)


def test_nodes_that_train_have_no_programs() -> None:
    text = "algorithm: fedavg\ntopology: {devices: 2}\nfaults: [{at: 1s, node: cloud, action: crash, program: cloud}]\n"
    with pytest.raises(ScenarioError, match="have no programs: leave it out"):
        parse(text, "f.yaml")


MEDIA = """\
algorithm: {name: fedavg, rounds: 3}
topology: {devices: 4}
links: {device-cloud: {latency: 10ms, rate: 50mbit, buffer: 20ms}}
shared:
  cell-0: {up: 8mbit, down: 40mbit, members: [device-0, device-1]}
  cell-1: {up: 4mbit, down: 20mbit, members: [device-2, device-3]}
"""


def of_media(fault: str) -> Fault:
    (planned,) = make_plan(parse(f"{MEDIA}faults: [{{at: 1s, {fault}}}]\n", "f.yaml"), None).faults
    return planned


def test_a_medium_is_cut_in_one_direction_or_both() -> None:
    both = of_media("medium: cell-0, action: disconnect")
    assert (both.target, both.channels) == ("cell-0", {"cell-0 up": {}, "cell-0 down": {}})
    up = [("device-0", "cloud"), ("device-1", "cloud")]
    assert sorted(both.links) == sorted(up + [(target, source) for source, target in up])
    one = of_media("medium: cell-0, direction: up, action: disconnect")
    assert (one.target, one.channels) == ("cell-0 up", {"cell-0 up": {}})
    assert sorted(one.links) == up


def test_a_medium_is_degraded_without_cutting_its_links() -> None:
    fault = of_media("medium: cell-0, direction: up, action: degrade, rate: 2mbit")
    assert (fault.medium, fault.links, fault.channels["cell-0 up"]["rate"]) == ("cell-0 up", (), 2e6)


def test_a_handover_takes_the_links_of_a_node_to_another_medium() -> None:
    fault = of_media("node: device-0, action: handover, to: cell-1")
    assert fault.crossings == (
        ("device-0", "cloud", (Crossing("cell-1 up", "device-0"),)),
        ("cloud", "device-0", (Crossing("cell-1 down", "device-0"),)),
    )
    assert Fault.from_json(json.loads(json.dumps(fault.to_json()))) == fault
