"""Wrong shared media, routes, cross traffic and faults on media: each is reported in one line with place and remedy."""

from __future__ import annotations

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.scenario.reading import parse
from tests.orchestrator.scenario.cases import pairs
from tests.orchestrator.scenario.test_bad_scenarios import NO_NODE

HEAD = "algorithm: {name: hierfavg, rounds: 2}\n"
CELL = (
    "shared: {cell-0: {rate: 20mbit, members: [device-0-*]}, ap-0: {rate: 54mbit, duplex: half, members: "
    "[device-1-*]}}\n"
)
MAST = "shared: {mast: {rate: 1gbit, members: [device-0-0]}, cell: {rate: 20mbit, members: [device-0-*]}}\n"
UPLINK = "shared: {uplink: {rate: 100mbit, members: ['edge-* <-> cloud']}}\n"
STEPS = "shared: {cell-0: {rate: 20mbit, members: [device-*], schedule: "
FILES = {"late.csv": "t_s,rate_mbit\n0,10\n5,130\n", "slow.csv": "t_s,latency_ms\n0,10\n"}


def bad(text: str) -> list[str]:
    """The lines of the error for a scenario with this text."""
    with pytest.raises(ScenarioError) as caught:
        parse(HEAD + text, "s.yaml", files=FILES)
    return str(caught.value).splitlines()


CASES = pairs(
    STEPS + "{steps: [{at: 1s, rate: 5mbit}]}}}\ncross_traffic: [{on: cell-0, kind: poisson, rate: 6mbit}]",
    "cross_traffic.0.rate: 6mbit leaves nothing of cell-0",
    STEPS + "{steps: [{at: 1s, loss: 5%}]}}}",
    "shared.cell-0.schedule: a medium only has a",
    STEPS + "{steps: [{at: 1s, rate: null}]}}}",
    "shared.cell-0.schedule: a medium only has a",
    STEPS.replace("schedule", "buffer: 200ms, schedule") + "{steps: [{at: 1s, rate: 1kbit}]}}}",
    "shared.cell-0.schedule: at 1kbit the buffer is",
    STEPS + "{handover: [{at: 1s, interruption: 1s}]}}}",
    "shared.cell-0.schedule.handover: is for links: give a",
    "shared: {cell-0: {}}",
    "shared.cell-0: a medium needs a rate",
    "shared: {cell-0: {rate: 20}}",
    "shared.cell-0.rate: 20 has no unit; write",
    "shared: {cell-0: {rate: 0.5bit, members: [device-*]}}",
    "shared.cell-0.rate: must be 1bit to 1000000gbit",
    "shared: {cell-0: {rate: 20Mbps}}",
    "shared.cell-0.rate: '20Mbps': the unit 'Mbps' is",
    "shared: {cell-0: {rate: 20mbit, up: 5mbit}}",
    "shared.cell-0.rate: is for both directions: give",
    "shared: {cell-0: {up: 5mbit}}",
    "shared.cell-0.up: goes with down; write rate",
    "shared: {cell-0: {up: 5mbit, down: 20mbit, duplex: half}}",
    "shared.cell-0.duplex: half has one rate for",
    "shared: {cell-0: {rate: 20mbit, duplex: both}}",
    "shared.cell-0.duplex: 'both' is not one of",
    "shared: {cell-0: {rate: 20mbit, share: fare}}",
    "shared.cell-0.share: 'fare' is not one of",
    "shared: {cell-0: {rate: 20mbit, buffer: 1}}",
    "shared.cell-0.buffer: 1 is neither a time",
    "shared: {cell-0: {rate: 20mbit, buffer: 100us}}",
    "shared.cell-0.buffer: 100us at 20mbit is less",
    "shared: {cell-0: {rate: 20mbit, buffer: 48h}}",
    "shared.cell-0.buffer: must be at most 24h",
    "shared: {cell-0: {profile: 4g-cell, members: [device-*]}}",
    "shared.cell-0.profile: '4g-cell' is no named medium; did you mean '5g-cell'? (known: lte-cell, "
    "5g-cell, wifi-ap, dsl-home, lora-gateway)",
    "shared: {cell-0: {rate: 20mbit, member: [device-*]}}",
    "shared.cell-0.member: unknown key; did you mean 'members'? (allowed here: profile, rate, up, down, "
    "duplex, share, buffer, rates, schedule, members)",
    "shared: {cell-0: {rate: 20mbit, members: device-*}}",
    "shared.cell-0.members: write a list, not the",
    "shared: {cell-0: {rate: 20mbit}}",
    "shared.cell-0: no link crosses it: give",
    "shared: {Cell 0: {rate: 20mbit, members: [device-*]}}",
    "shared.Cell 0: 'Cell 0' cannot be",
    "shared: {edge-0: {rate: 20mbit, members: [device-*]}}",
    "shared.edge-0: 'edge-0' is a node; a",
    "shared: {cell-0: {rate: 20mbit, members: [device-7-1]}}",
    "shared.cell-0.members.0: there is no node 'device-7-1'",
    "shared: {cell-0: {rate: 20mbit, members: [phone-*]}}",
    f"shared.cell-0.members.0: no node matches 'phone-*' {NO_NODE}",
    "shared: {cell-0: {rate: 20mbit, members: [cloud]}}",
    "shared.cell-0.members.0: cloud has no link to",
    "shared: {cell-0: {rate: 20mbit, members: [edge-0 -> cloud]}}",
    "shared.cell-0.members.0: 'edge-0 -> cloud' is neither",
    "shared: {cell-0: {rate: 20mbit, members: [device-0-0 <-> cloud]}}",
    "shared.cell-0.members.0: the topology has no link",
    "shared: {cell-0: {rate: 20mbit, members: [edge-0 <-> cluod]}}",
    "shared.cell-0.members.0: there is no node 'cluod'",
    "shared: {cell-0: {rate: 20mbit, members: [device-*, device-0-1]}}",
    "shared.cell-0.members.1: the link device-0-1 <-> edge-0",
    "shared: {cell-0: {rate: 20mbit, members: [device-*, device-0-0 <-> edge-0]}}",
    "shared.cell-0.members.1: the link device-0-0 <-> edge-0",
    "shared: {cell-0: {rate: 20mbit, members: [device-*], rates: {device-0-0: 5mbit}}}",
    "shared.cell-0.rates: go with share: airtime or share: frames, not with fair",
    "shared: {cell-0: {rate: 20mbit, share: airtime, members: [device-0-*], rates: {device-1-0: 5mbit}}}",
    "shared.cell-0.rates.device-1-0: device-1-0 is no member of",
    "shared: {cell-0: {rate: 20mbit, share: frames, members: [device-*], rates: {device-1-0: 50mbit}}}",
    "shared.cell-0.rates.device-1-0: 50mbit is more than the",
    MAST,
    "shared.cell: device-0-0 <-> edge-0 is in",
    MAST + "routes: {device-0-0 <-> edge-0: [cell]}",
    "routes.device-0-0 <-> edge-0: device-0-0 <-> edge-0",
    MAST + "routes: {device-0-* <-> edge-0: [cell, mast]}",
    "routes.device-0-* <-> edge-0: device-0-1 <-> edge-0",
    MAST + "routes: {device-0-0 <-> edge-0: [cell, mast, cell]}",
    "routes.device-0-0 <-> edge-0: cell is in",
    MAST + "routes: {device-0-0 <-> edge-0: [cell, mats]}",
    "routes.device-0-0 <-> edge-0: 'mats' is no",
    MAST + "routes: {device-0-0: [cell, mast]}",
    "routes.device-0-0: 'device-0-0' is no link: write",
    MAST + "routes: {device-0-0 <-> edge-1: [cell, mast]}",
    "routes.device-0-0 <-> edge-1: the topology has",
    "routes: {device-0-0 <-> edge-0: [cell]}",
    "routes.device-0-0 <-> edge-0: there is no",
    "cross_traffic: [{on: cell-0, kind: poisson, rate: 5mbit}]",
    "cross_traffic.0.on: there is no medium 'cell-0'",
    UPLINK + "cross_traffic: [{on: cell-0, kind: poisson, rate: 5mbit}]",
    "cross_traffic.0.on: 'cell-0' is no shared medium",
    UPLINK + "cross_traffic: [{on: uplink, kind: poison, rate: 5mbit}]",
    "cross_traffic.0.kind: 'poison' is not one of",
    UPLINK + "cross_traffic: [{on: uplink, kind: poisson}]",
    "cross_traffic.0: rate is missing: poisson takes rate",
    UPLINK + "cross_traffic: [{on: uplink, kind: on-off, rate: 5mbit, on_for: 1s}]",
    "cross_traffic.0: off_for is missing: on-off takes rate, on_for, off_for",
    UPLINK + "cross_traffic: [{on: uplink, kind: constant, rate: 5mbit, off_for: 1s}]",
    "cross_traffic.0.off_for: has no meaning for constant",
    UPLINK + "cross_traffic: [{on: uplink, kind: poisson, rate: 100mbit}]",
    "cross_traffic.0.rate: 100mbit leaves nothing of uplink",
    UPLINK + "cross_traffic: [{on: uplink, kind: trace, csv: none.csv}]",
    "cross_traffic.0.csv: none.csv cannot be read: No",
    UPLINK + "cross_traffic: [{on: uplink, kind: trace, csv: slow.csv}]",
    "cross_traffic.0.csv: slow.csv has a column latency",
    UPLINK + "cross_traffic: [{on: uplink, kind: trace, csv: late.csv}]",
    "cross_traffic.0.csv: 130mbit leaves nothing of uplink",
    CELL + "cross_traffic: [{on: ap-0, direction: up, kind: poisson, rate: 5mbit}]",
    "cross_traffic.0.direction: ap-0 is half duplex, so",
    UPLINK + "cross_traffic: [{on: uplink, kind: poisson, rate: 1mbit}, "
    "{on: uplink, direction: up, kind: poisson, rate: 1mbit, at: 9s}]",
    "cross_traffic.1: overlaps entry 0 on uplink",
    UPLINK + "stop: {after: 5s}\ncross_traffic: [{on: uplink, kind: poisson, rate: 1mbit, at: 5s}]",
    "cross_traffic.0.at: the run is over by",
    CELL + "engine: kernel\ndriver: swarm",
    "engine: kernel … (their nodes are on several hosts",
    UPLINK + "engine: kernel\ncross_traffic: [{on: uplink, kind: poisson, rate: 1mbit}]",
    "engine: kernel … (cross traffic on uplink",
    "engine: kernel\nshared: {ap: {rate: 20mbit, share: frames, members: [device-*]}}",
    "engine: kernel … (ap up has `share: frames`",
    "engine: kernel\nshared: {ap: {rate: 20mbit, duplex: half, share: airtime, members: [device-*], "
    "rates: {device-0-0: 6mbit}}}",
    "engine: kernel … (ap has `share: airtime`",
    MAST + "engine: kernel\nroutes: {device-0-0 <-> edge-0: [mast, cell]}",
    "engine: kernel … (the link device-0-0 -> edge-0 crosses 2",
    CELL + "engine: kernel\nlinks: {device-edge: {loss: 1%}}",
    "engine: kernel … device-0-0 -> edge-0 crosses cell-0 up",
    CELL + "faults: [{at: 1s, medium: cell-9, action: disconnect}]",
    "faults.0.medium: 'cell-9' is no shared medium",
    CELL + "faults: [{at: 1s, medium: cell-0, action: crash}]",
    "faults.0.medium: goes with disconnect and degrade",
    CELL + "faults: [{at: 1s, medium: cell-0, action: degrade, loss: 5%}]",
    "faults.0.loss: a medium only has rate",
    CELL + "faults: [{at: 1s, medium: cell-0, action: degrade, rate: null}]",
    "faults.0.rate: a medium has one: give",
    CELL.replace("20mbit", "20mbit, buffer: 50ms")
    + "faults: [{at: 1s, medium: cell-0, action: degrade, rate: 10kbit}]",
    "faults.0: buffer: 50ms at 10kbit is",
    CELL.replace("rate: 20mbit", "up: 10mbit, down: 20mbit")
    + "faults: [{at: 1s, medium: cell-0, action: degrade, rate: 15mbit}]",
    "faults.0: rate: 15mbit is more than",
    CELL + "faults: [{at: 1s, medium: ap-0, direction: up, action: disconnect}]",
    "faults.0.direction: ap-0 is half duplex, so",
    CELL + "faults: [{at: 1s, node: device-0-0, direction: up, action: crash}]",
    "faults.0.direction: goes with disconnect, partition, degrade",
    CELL + "engine: kernel\nfaults: [{at: 1s, node: device-0-0, action: new-address}]",
    "faults.0.action: with shared media, the kernel",
    CELL + "driver: sim\nfaults: [{at: 1s, node: device-0-0, action: new-address}]",
    "faults.0.action: the nodes of the driver",
    CELL + "driver: swarm\nfaults: [{at: 1s, node: device-0-0, action: new-address}]",
    "faults.0.action: the driver swarm gives no",
    CELL + "faults: [{at: 1s, node: device-0-0, action: handover}]",
    "faults.0.action: handover needs to, the name",
    CELL + "faults: [{at: 1s, node: device-0-0, action: crash, to: ap-0}]",
    "faults.0.to: goes with handover and move, not crash",
    CELL + "faults: [{at: 1s, node: device-0-0, action: handover, to: ap-9}]",
    "faults.0.to: 'ap-9' is no shared medium",
    CELL + "faults: [{at: 1s, node: edge-0, action: handover, to: ap-0}]",
    "faults.0.action: edge-0 is in no shared",
    CELL + "faults: [{at: 1s, node: device-0-0, action: handover, to: cell-0}]",
    "faults.0.to: device-0-0 is in cell-0 already",
    CELL.replace("device-1-*", "device-0-0 <-> edge-0")
    + "faults: [{at: 1s, node: device-0-0, action: handover, to: ap-0}]",
    "faults.0.to: device-0-0 -> edge-0 crosses ap-0",
    "faults: [{at: 1s, medium: cell-0, action: disconnect}]",
    "faults.0.medium: there is no medium 'cell-0'",
)


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text[-40:].strip() for text, _ in CASES])
def test_each_mistake_is_reported_in_one_line_with_its_place(text: str, expected: str) -> None:
    (line,) = bad(text)
    place, _, message = line.partition(": ")
    start, _, reason = expected.partition(" … ")
    assert message.startswith(start)
    assert reason in message
    lines = (HEAD + text).splitlines()
    key = message.partition(".")[0].partition(":")[0]
    assert lines[int(place.removeprefix("s.yaml:")) - 1].startswith(key)


def test_the_kernel_engine_shares_what_it_can() -> None:
    airtime = "wifi: {profile: wifi-ap, members: [device-*]}"
    fifo = "line: {rate: 5mbit, share: fifo, members: ['edge-* <-> cloud']}"
    parse(f"{HEAD}engine: kernel\nshared: {{{airtime}, {fifo}}}\n", "s.yaml")
