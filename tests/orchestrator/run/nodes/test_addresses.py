"""New addresses of nodes in a run that is played on a virtual clock."""

from __future__ import annotations

import asyncio
import json

from tests.orchestrator.run.nodes.test_session import SCENARIO, Stage, play, played

__all__ = ["play"]  # a fixture

NEW = SCENARIO + "faults: [{at: 5s, node: device-0-1, action: new-address}]\n"


@played(NEW)
async def test_the_node_its_peers_and_later_processes_know_it(stage: Stage) -> None:
    await stage.train()
    await asyncio.sleep(10.0)
    assert stage.fabric.addresses == {"device-0-1": "10.77.255.254"}  # the last of the network but its broadcast
    (event,) = stage.events("new address")
    # device-0-1 is the fourth node, with 10.77.0.4; the IPv6 addresses end in the IPv4 addresses.
    assert event.data == {
        "node": "device-0-1",
        "from": "10.77.0.4",
        "to": "10.77.255.254",
        "from_ipv6": "fd65:6467:6562::a4d:4",
        "to_ipv6": "fd65:6467:6562::a4d:fffe",
    }
    assert sorted(node for node, kind in stage.control.sent if kind == "address") == ["device-0-1", "edge-0"]
    for node in ("device-0-1", "edge-0"):
        stage.driver.end(node, -9)
    await asyncio.sleep(10.0)
    assert json.loads(stage.driver.assignments["device-0-1"] or "")["host"] == "10.77.255.254"
    peers = json.loads(stage.driver.assignments["edge-0"] or "")["peers"]
    assert {peer["name"]: peer["host"] for peer in peers}["device-0-1"] == "10.77.255.254"


@played(NEW.replace("faults: [", "faults: [{at: 1s, node: edge-0, action: new-address}, "))
async def test_no_address_comes_twice(stage: Stage) -> None:
    await stage.train()
    await asyncio.sleep(10.0)
    assert stage.fabric.addresses == {"edge-0": "10.77.255.254", "device-0-1": "10.77.255.253"}


@played(NEW + "restart: never\n")
async def test_a_node_that_is_away_gets_none(stage: Stage) -> None:
    await stage.train()
    stage.driver.end("device-0-1", -9)
    await asyncio.sleep(10.0)
    assert stage.fabric.addresses == {}
    (span,) = stage.story.faults()
    assert span.detail == "device-0-1 is not running but crashed"
