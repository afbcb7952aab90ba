"""Assignments for tests: nodes on loopback, or nowhere."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import zmq

from node.assignment import Assignment, DataAssignment, Keypair, PeerAddress, Relation, Stop, Tier

_ports = itertools.count(10_000 + os.getpid() % 20_000)
TIERS: dict[str, Tier] = {"cloud": "cloud", "edge": "edge", "device": "device"}


def make_keys() -> Keypair:
    public, secret = zmq.curve_keypair()
    return Keypair(public=public.decode(), secret=secret.decode())


def free_port() -> int:
    """A TCP port that nobody on loopback listens on, below those that the kernel gives to outgoing connections."""
    for port in _ports:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no free port")


class Nodes:
    """Keys and ports of some nodes on loopback, whose names begin with their tier, and assignments for them."""

    def __init__(self, *names: str) -> None:
        self.keys = {name: make_keys() for name in names}
        self.ports = {name: free_port() for name in names}

    def assignment(self, node: str, peers: Mapping[str, Relation], **values: Any) -> Assignment:
        usual = Assignment(
            run="test",
            node=node,
            tier=_tier(node),
            index=1,
            seed=1,
            host="127.0.0.1",
            port=self.ports[node],
            keys=self.keys[node],
            control_endpoint="",
            control_key="",
            algorithm="fedavg",
            model="cnn",
            peers=tuple(self._address(peer, relation) for peer, relation in peers.items()),
            stop=Stop(rounds=3),
            data=DataAssignment(dataset="digits", directory="", shards=""),
            checkpoint_directory="",
            leads=node == "cloud",
        )
        return replace(usual, **values)

    def _address(self, node: str, relation: Relation) -> PeerAddress:
        return PeerAddress(
            name=node,
            tier=_tier(node),
            relation=relation,
            host="127.0.0.1",
            port=self.ports[node],
            public_key=self.keys[node].public,
        )


def _tier(node: str) -> Tier:
    return TIERS[node.partition("-")[0]]
