"""CURVE keys, made for one run and forgotten with it: who is who on both planes (CurveZMQ, RFC 26 of ZeroMQ)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import zmq

from node.assignment import Keypair
from orchestrator.assignments import assignments
from orchestrator.directory import RunDirectory
from orchestrator.plan import Plan


@dataclass(frozen=True)
class RunKeys:
    """A key pair for every node and one for the orchestrator."""

    orchestrator: Keypair
    nodes: Mapping[str, Keypair]

    @classmethod
    def make(cls, nodes: Sequence[str]) -> RunKeys:
        return cls(_keypair(), {node: _keypair() for node in nodes})

    @property
    def public(self) -> dict[str, str]:
        """Each node's public key."""
        return {node: keys.public for node, keys in self.nodes.items()}

    def write_assignments(self, plan: Plan, directory: RunDirectory) -> None:
        """One file a node, readable by this user only, since it holds the node's secret key."""
        for name, assignment in assignments(plan, directory, self).items():
            descriptor = os.open(directory.nodes / f"{name}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                file.write(assignment.to_json())


def _keypair() -> Keypair:
    public, secret = zmq.curve_keypair()
    return Keypair(public=public.decode(), secret=secret.decode())
