"""CURVE keys, which identify the nodes of one run on both planes (CurveZMQ, RFC 26 of ZeroMQ); no run reuses them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import zmq

from node.assignment import Keypair


@dataclass(frozen=True)
class RunKeys:
    """The key pairs of the nodes and the orchestrator."""

    orchestrator: Keypair
    nodes: Mapping[str, Keypair]

    @classmethod
    def make(cls, nodes: Sequence[str]) -> RunKeys:
        return cls(keypair(), {node: keypair() for node in nodes})

    @classmethod
    def none(cls) -> RunKeys:
        """Empty keys, for nodes that share a process: there is no network to eavesdrop on."""
        empty = Keypair(public="", secret="")
        return cls(empty, defaultdict(lambda: empty))

    @property
    def public(self) -> dict[str, str]:
        return {node: keys.public for node, keys in self.nodes.items()}


def keypair() -> Keypair:
    public, secret = zmq.curve_keypair()
    return Keypair(public=public.decode(), secret=secret.decode())
