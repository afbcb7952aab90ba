from __future__ import annotations

from orchestrator.drivers.sim.virtual_control import MemoryControl
from tests.virtual import virtual


@virtual
async def test_both_sides() -> None:
    control = MemoryControl()
    node = control.open("edge-0")
    node.say("register")
    node.event("round", round=2, phase="start")
    node.metric(2, {"accuracy": 0.5})
    heard = control.messages()
    assert await anext(heard) == ("edge-0", {"type": "register"})
    assert await anext(heard) == ("edge-0", {"type": "event", "name": "round", "round": 2, "phase": "start"})
    assert await anext(heard) == ("edge-0", {"type": "metric", "round": 2, "values": {"accuracy": 0.5}})
    await control.send("edge-0", {"type": "start"})
    assert await node.inbox.get() == {"type": "start"}


@virtual
async def test_a_node_that_does_not_run_misses_what_is_sent() -> None:
    control = MemoryControl()
    await control.send("edge-0", {"type": "start"})
    control.open("edge-0")
    control.leave("edge-0")
    await control.send("edge-0", {"type": "start"})
    assert control.open("edge-0").inbox.empty()
