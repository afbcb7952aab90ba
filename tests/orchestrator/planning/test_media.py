"""Shared media in a plan: seeds, faults on them, and the times that planning derives from a member's share."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from netem.library import PROFILES
from netem.media.profile import Crossing
from node.assignment import derive_seed
from orchestrator.planning.copies.trace_files import keep_files, kept_files
from orchestrator.planning.faults.manual import faults_by_hand
from orchestrator.planning.faults.timeline import Fault
from orchestrator.planning.making import make_plan
from orchestrator.planning.media import at_worst, clients_at_worst, media_beyond_kernel, media_of, seen_alone
from orchestrator.planning.plan import Plan
from orchestrator.results.courses import courses
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared

HEAD = """\
algorithm: {name: fedavg, rounds: 3}
topology: {devices: 4}
links: {device-cloud: {latency: 10ms, rate: 50mbit, buffer: 20ms}}
"""
CELL = "shared: {cell: {up: 8mbit, down: 40mbit, members: [device-*], buffer: 100ms}}\n"


def plan(text: str, *overrides: str, files: dict[str, str] | None = None) -> Plan:
    return make_plan(parse(HEAD + text, "s.yaml", overrides, files=files or {}), prepared())


def worst(text: str, source: str = "device-0", target: str = "cloud") -> tuple[float, float]:
    """The rate (bit/s) and the latency (s) that a direction is planned with, the worst of all."""
    made = plan(text)
    found = at_worst(made.links, made.media, made.cross_traffic, made.faults)[source, target]
    return min(each.rate or math.inf for each in found), max(each.latency for each in found)


def test_links_have_their_channels_and_the_plan_its_media() -> None:
    made = plan(CELL)
    assert {link.crossings for link in made.links if link.target == "cloud"} == {
        (Crossing("cell up", f"device-{number}"),) for number in range(4)
    }
    assert made.recorded["media"][0]["channels"]["cell up"]["rate"] == 8e6
    assert made.recorded["links"][0]["crossings"] == [["cell up", "device-0"]]


def test_a_member_alone_has_its_part_of_the_buffer_in_the_kernel() -> None:
    made = plan(CELL)
    assert seen_alone(made, "userspace")["cell up"].buffer == 0.1
    assert seen_alone(made, "kernel")["cell up"].buffer == pytest.approx(0.025, rel=0.05)  # four members, in packets
    fifo = plan(CELL.replace("up: 8mbit", "share: fifo, up: 8mbit"))
    assert seen_alone(fifo, "kernel")["cell up"].buffer == pytest.approx(0.1, rel=0.02)


def test_what_the_kernel_engine_cannot_do_is_known_from_the_plan() -> None:
    assert media_beyond_kernel(plan(CELL)) == ""
    traffic = "cross_traffic: [{on: cell, direction: up, kind: poisson, rate: 1mbit}]"
    assert media_beyond_kernel(plan(CELL + traffic)) == "cross traffic on cell up"


def test_a_plan_without_media_has_no_trace_of_them() -> None:
    written = plan("faults: [{at: 1s, node: device-0, action: crash}]").recorded
    assert not written.keys() & {"media", "cross_traffic"}
    assert not written["faults"][0].keys() & {"medium", "channels", "to", "crossings"}
    assert not any("crossings" in link for link in written["links"])


@pytest.mark.parametrize(
    ("medium", "rate", "delay"),
    [
        ("rate: 8mbit, share: fair", 2e6, 0.1),
        ("rate: 8mbit, share: fifo", 2e6, 0.1),
        ("rate: 8mbit, share: airtime, rates: {device-0: 4mbit}", 1e6, 0.2),
        ("rate: 8mbit, share: frames, rates: {device-3: 2mbit}", 1 / (3 / 8e6 + 1 / 2e6), 0.175),
        ("rate: 8mbit, duplex: half", 2e6, 0.1),
        ("rate: 1gbit", 50e6, 0.1),
    ],
)
def test_a_member_is_planned_with_its_share_and_the_full_buffer(medium: str, rate: float, delay: float) -> None:
    found = worst(f"shared: {{cell: {{{medium}, members: [device-*], buffer: 100ms}}}}")
    assert found == pytest.approx((rate, 0.01 + delay))


@pytest.mark.parametrize(
    ("share", "traffic", "rate"),
    [
        ("fifo", "kind: poisson, rate: 6mbit", 0.5e6),  # a quarter of what is left
        ("fair", "kind: poisson, rate: 6mbit", 1.6e6),  # at least a fifth of all
        ("fair", "kind: constant, rate: 800kbit", 1.8e6),
        ("airtime", "kind: poisson, rate: 6mbit", 1.6e6),
        ("frames", "kind: poisson, rate: 6mbit", 1.6e6),
        ("fifo", "kind: on-off, rate: 4mbit, on_for: 1s, off_for: 9s", 1e6),  # what is left while it is on
        ("fifo", "kind: trace, csv: others.csv", 1e6),  # a mean of 4 Mbit/s until 2 s, and less from then on
    ],
)
def test_cross_traffic_is_taken_off(share: str, traffic: str, rate: float) -> None:
    text = f"shared: {{cell: {{rate: 8mbit, share: {share}, members: [device-*]}}}}\n"
    made = plan(
        text + f"cross_traffic: [{{on: cell, {traffic}}}]", files={"others.csv": "t_s,rate_mbit\n0,2\n1,6\n2,1\n"}
    )
    found = at_worst(made.links, made.media, made.cross_traffic, made.faults)["device-0", "cloud"]
    assert found[0].rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("link", "queue"),
    [
        ("latency: 10ms, rate: 50mbit, buffer: 20ms", 0.02),
        ("latency: 10ms, rate: 50mbit, buffer: 0b", 0.0),
        ("latency: 10ms", 0.0),
    ],
)
def test_a_links_own_queue_takes_as_long_as_before(link: str, queue: float) -> None:
    made = plan(CELL, f"links.device-cloud={{{link}}}")
    (found,) = at_worst(made.links, made.media, made.cross_traffic, made.faults)["device-0", "cloud"]
    assert found.buffer == pytest.approx(queue, abs=1e-12)


CROWD = """\
seed: 7
algorithm: fedavg
driver: sim
topology: {population: 100, selected: %d}
data: {samples_per_client: 20}
clients: {links: {wifi: 50%%, lte: 50%%}}
"""


def clients(text: str) -> tuple[list[float | None], list[float | None]]:
    """The rates up and down that the clients of a population are planned with."""
    made = make_plan(parse(text, "s.yaml"), prepared())
    assert made.population is not None
    ups, downs = clients_at_worst(made.population, made.media, made.cross_traffic)
    return [profile.rate for profile in ups], [profile.rate for profile in downs]


def test_clients_of_a_population_share_their_medium_with_those_of_their_round() -> None:
    """Each has its part of a cell that is slower than both links."""
    assert clients(CROWD % 10) == (
        [PROFILES["wifi"].rate, PROFILES["lte-up"].rate],
        [PROFILES["wifi"].rate, PROFILES["lte"].rate],
    )
    cell = "shared: {cell: {up: 1mbit, down: 4mbit, members: [device-*]}}\n"
    drawn = np.random.default_rng(derive_seed(7, "media")).integers(100, size=10)
    different = len(set(drawn.tolist()))
    assert clients(CROWD % 10 + cell) == ([1e6 / different] * 2, [4e6 / different] * 2)


def test_a_nat_in_one_direction_is_beyond_the_kernel_engine() -> None:
    assert media_beyond_kernel(plan("", "links.device-cloud.nat_timeout=60s")) == "it has no NAT"


def test_a_link_gets_the_least_of_its_media_and_waits_in_both() -> None:
    text = "shared: {a: {rate: 8mbit, members: [device-*]}, b: {rate: 4mbit, members: ['device-0 <-> cloud']}}"
    assert worst(text) == pytest.approx((2e6, 0.21))


def test_a_node_that_may_come_counts_in_both_media() -> None:
    text = """\
shared:
  near: {rate: 9mbit, members: [device-0, device-1]}
  far: {rate: 3mbit, members: [device-2, device-3]}
faults: [{at: 5s, node: device-0, action: handover, to: far}]
"""
    assert worst(text)[0] == pytest.approx(1e6)
    assert worst(text, "device-1")[0] == pytest.approx(4.5e6)
    assert worst(text, "device-2")[0] == pytest.approx(1e6)


def test_a_schedule_counts_with_its_lowest_rate() -> None:
    text = "shared: {cell: {rate: 8mbit, members: [device-*], schedule: {csv: drive.csv}}}"
    made = plan(text, files={"drive.csv": "t_s,rate_mbit\n0,8\n5,2\n9,0\n10,9\n"})
    found = at_worst(made.links, made.media, made.cross_traffic, made.faults)["device-0", "cloud"]
    assert found[0].rate == pytest.approx(0.5e6)
    assert made.recorded["media"][0]["schedules"]["cell up"]["csv"] == "drive.csv"
    assert [each.name for each in courses(made.links, made.media)] == ["cell up", "cell down"]


def test_deadlines_and_silence_count_the_share() -> None:
    alone, shared = plan(""), plan(CELL, "shared.cell.up=80kbit", "shared.cell.buffer=3s")
    assert shared.gathering.deadlines["cloud"] > alone.gathering.deadlines["cloud"] + 4 * 8 * alone.model_bytes / 20e3
    assert (alone.timeouts.lost_after, shared.timeouts.lost_after) == (8.0, math.ceil(8 * (0.01 + 3) + 2 * 0.02))


def test_cross_traffic_has_a_seed_for_each_channel_and_entry() -> None:
    text = f"""{CELL}
cross_traffic:
  - {{on: cell, kind: poisson, rate: 1mbit, for: 5s}}
  - {{on: cell, kind: poisson, rate: 1mbit, at: 5s}}
"""
    made = plan(text)
    assert [(each.channel, each.at, each.duration) for each in made.cross_traffic] == [
        ("cell up", 0.0, 5.0),
        ("cell down", 0.0, 5.0),
        ("cell up", 5.0, None),
        ("cell down", 5.0, None),
    ]
    assert [each.seed for each in made.cross_traffic] == [
        derive_seed(made.seed, "cross traffic", channel, number)
        for number in ("1", "2")
        for channel in ("cell up", "cell down")
    ]
    assert [each.seed for each in plan(text).cross_traffic] == [each.seed for each in made.cross_traffic]
    assert [each.seed for each in plan(text, "seed=2").cross_traffic] != [each.seed for each in made.cross_traffic]


def test_the_file_of_a_trace_is_kept_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "others.csv").write_text("t_s,rate_mbit\n0,2\n1,4\n")
    text = {"others.csv": (tmp_path / "others.csv").read_text()}
    made = plan(CELL + "cross_traffic: [{on: cell, direction: up, kind: trace, csv: others.csv}]", files=text)
    assert made.recorded["cross_traffic"][0]["traffic"].keys() == {"kind", "csv", "sha256"}
    (tmp_path / "run").mkdir()
    keep_files(made.recorded, tmp_path, tmp_path / "run")
    assert kept_files(made.recorded, tmp_path / "run") == text


FAULTS = """\
shared:
  near: {up: 8mbit, down: 40mbit, share: airtime, members: [device-0, device-1], rates: {device-0: 6mbit}}
  far: {rate: 3mbit, duplex: half}
faults:
  - {at: 1s, medium: near, action: degrade, rate: 4mbit, buffer: 10kb, for: 2s}
  - {at: 2s, medium: near, direction: up, action: disconnect, for: 1s}
  - {at: 3s, node: device-0, action: handover, to: far}
"""


def test_faults_on_media_name_channels_and_crossings() -> None:
    degraded, cut, moved = plan(FAULTS).faults
    values = {"rate": 4e6, "rates": {"device-0": 4e6}, "buffer": 0.02, "size": 10_000}
    assert (degraded.target, degraded.channels) == ("near", {"near up": values, "near down": values})
    assert (cut.target, cut.channels) == ("near up", {"near up": {}})
    assert cut.links == (("device-0", "cloud"), ("device-1", "cloud"))
    way = (Crossing("far", "device-0"),)
    assert (moved.target, moved.to) == ("device-0", "far")
    assert moved.crossings == (("device-0", "cloud", way), ("cloud", "device-0", way))


def test_faults_on_media_are_read_back_from_the_record() -> None:
    made = plan(FAULTS)
    assert tuple(Fault.from_json(written) for written in made.recorded["faults"]) == made.faults


def test_a_handover_back_gives_the_crossings_of_the_plan() -> None:
    back = "  - {at: 9s, node: device-0, action: handover, to: near}\n"
    made = plan(FAULTS + back)
    planned = {(link.source, link.target): link.crossings for link in made.links}
    assert [(a, b, planned[a, b]) for a, b in planned if "device-0" in (a, b)] == list(made.faults[-1].crossings)


def test_faults_on_media_can_be_manual() -> None:
    made = plan(FAULTS)
    (worse,) = faults_by_hand({"action": "degrade", "medium": "far", "rate": "1mbit"}, made, 4.0, 9)
    default = 16 * 8 * 1514 / 1e6
    assert (worse.fault.id, worse.fault.channels) == (9, {"far": {"rate": 1e6, "buffer": pytest.approx(default)}})
    assert worse.written == {"action": "degrade", "medium": "far", "rate": "1mbit"}
    (moved,) = faults_by_hand({"action": "handover", "node": "device-1", "to": "far"}, made, 4.0, 10)
    assert moved.fault.crossings[0] == ("device-1", "cloud", (Crossing("far", "device-1"),))
    with pytest.raises(ValueError, match="'fra' is no shared medium"):
        faults_by_hand({"action": "disconnect", "medium": "fra"}, made, 4.0, 11)
    assert media_of(made).members == {"near": ("device-0", "device-1"), "far": ()}
    assert json.dumps(made.to_json())
