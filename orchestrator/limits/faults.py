"""The thirteen faults of `limits --faults`: what each is, and what a study says about them.

faults:
  client: device-1
  server: cloud
  starts: {event: fault may begin}
  also: {mtu-60: {programs.device.environment.MESSAGE_BYTES: "3000"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from orchestrator.scenario.language.quantities import Duration
from orchestrator.scenario.language.strict import Strict

MAY_BEGIN = "fault may begin"
"""The event of a program at which its fault starts, see `edgebed.testing.observer`."""
LEAD = 120.0  # s of training within which a fault should have begun
UNIMPAIRED = "none"
IDLE = "idle"


@dataclass(frozen=True)
class SuiteFault:
    """A fault of the suite. ``fault``: the keys of a fault, with "client" or "server" as its node. ``seconds``: its
    duration; None if it lasts. None as ``fault``: nothing happens."""

    name: str
    what: str
    fault: Mapping[str, Any] | None
    seconds: float | None = None


FAULTS = (
    SuiteFault(UNIMPAIRED, "nothing happens", None),
    SuiteFault("cut-5", "nothing crosses, both ways, for 5 s", {"node": "client", "action": "disconnect"}, 5),
    SuiteFault("cut-60", "nothing crosses, both ways, for 60 s", {"node": "client", "action": "disconnect"}, 60),
    SuiteFault(
        "one-way-60",
        "nothing from the server reaches the client for 60 s",
        {"node": "client", "direction": "down", "action": "disconnect"},
        60,
    ),
    SuiteFault("gone", "the client loses its power for good", {"node": "client", "action": "power-off"}),
    SuiteFault(
        "power-cycle",
        "the client loses its power, and starts again after 10 s",
        {"node": "client", "action": "power-off"},
        10,
    ),
    SuiteFault("frozen-60", "the client is stopped for 60 s", {"node": "client", "action": "pause"}, 60),
    SuiteFault("address", "the client has another address", {"node": "client", "action": "new-address"}),
    SuiteFault(
        "mtu-60",
        "packets of more than 1,200 bytes vanish for 60 s, without a message to the sender",
        {"node": "server", "action": "degrade", "drop_above": 1200},
        60,
    ),
    SuiteFault(
        "loss-60",
        "5 % of the packets are lost for 60 s",
        {"node": "server", "action": "degrade", "loss": "5%"},
        60,
    ),
    SuiteFault(
        "delay-60",
        "packets take 2 s, each way, for 60 s",
        {"node": "server", "action": "degrade", "latency": "2s"},
        60,
    ),
    SuiteFault("killed", "the client is killed, and its kernel closes its connections", {"node": "client"}),
    SuiteFault(
        "server-restart",
        "the server is killed, and starts again after 10 s",
        {"node": "server", "action": "crash"},
        10,
    ),
    SuiteFault(IDLE, "nothing happens, and there is no work", None),
)
NAMES = tuple(fault.name for fault in FAULTS)


class FaultsSection(Strict):
    """The thirteen faults of `limits --faults`."""

    client: str | None = Field(default=None, description="the node that most faults hit; default: the last device")
    server: str | None = Field(default=None, description="the node that the clients talk to; default: the leading one")
    program: str | None = Field(
        default=None,
        description="the program of the server that is killed and starts again; default: the whole node",
    )
    starts: dict[str, Any] = Field(
        default={},
        description="when faults start, as of a fault: `event`, `round` or `at`; default for programs: "
        f"`event: {MAY_BEGIN}`, else `round: 2`",
    )
    changes: dict[str, Any] = Field(default={}, description="changes of the scenario for all runs, as of a case")
    also: dict[str, dict[str, Any]] = Field(
        default={},
        description="further changes of the scenario, by the name of a fault; `idle` is only tried if it is here",
    )
    watch: Duration = Field(default=150.0, gt=0, description="time of a run after the end of its fault, at most")
    watch_lasting: Duration = Field(
        default=1200.0, gt=0, description="time of a run after a fault that lasts (gone, killed, address), at most"
    )
