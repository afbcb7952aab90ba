"""The fake of a prober."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from orchestrator.errors import HostError
from orchestrator.fabric.base import NodeHandle


class FakeProber:
    """See `orchestrator.fabric.link_prober.Prober`: an echo takes ``rtt``, a stream has the rate of its way in
    ``rates``.

    deaf         address that no packet reaches
    narrow       the largest packet that passes, in bytes
    responders   the handles of the nodes that have answered, by address
    answering    the addresses at which a node answers
    probes       the handle and the plan of each probe
    ahead        seconds by which the clocks of hosts are ahead
    refusal      why no node answers; "": each does
    """

    mtu = 1450

    def __init__(self, deaf: str = "", narrow: int = 9000, rtt: float = 0.002, refusal: str = "") -> None:
        self.deaf, self.narrow, self.rtt, self.refusal = deaf, narrow, rtt, refusal
        self.rates = {"forward": 9.4e8, "back": 9.3e8}
        self.responders: dict[str, NodeHandle] = {}
        self.answering: list[str] = []
        self.ahead: dict[str, float] = {}
        self.probes: list[tuple[NodeHandle, dict[str, Any]]] = []

    @contextlib.asynccontextmanager
    async def responding(self, handle: NodeHandle, address: str) -> AsyncIterator[dict[str, Any]]:
        if self.refusal:
            raise HostError(self.refusal)
        self.responders[address] = handle
        self.answering.append(address)
        yield {"port": 1, "token": "aa"}
        self.answering.remove(address)

    async def probe(self, handle: NodeHandle, arguments: Sequence[str]) -> dict[str, Any]:
        plan = json.loads(arguments[-1])
        if not plan:
            raise HostError("no plan")
        self.probes.append((handle, plan))
        return self.result(arguments, plan)

    async def now(self, handle: NodeHandle) -> float:
        return time.time() + self.ahead.get(handle.host, 0.0)

    def result(self, arguments: Sequence[str], plan: dict[str, Any]) -> dict[str, Any]:
        took = None if self.deaf in arguments or plan["size"] + 28 > self.narrow else self.rtt
        found: dict[str, Any] = {"rtt_median": took, "rtt_p99": took, "rtt_samples": 5}
        for way, rate in self.rates.items():
            found[way] = {"sent": 5, "received": None, "rate": None if plan[way] is None else rate}
        return found
