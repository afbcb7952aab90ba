"""From the plan to the assignment of each node."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from node.algorithms.registry import ALGORITHMS
from node.assignment import (
    PLACE,
    Assignment,
    DataAssignment,
    Gathering,
    Hardware,
    PeerAddress,
    Relation,
)
from orchestrator.errors import RunError
from orchestrator.planning.addresses import NETWORK
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.record.directory import RunDirectory


def assignments(plan: Plan, directory: RunDirectory, keys: RunKeys, address: str) -> dict[str, Assignment]:
    """The assignment of every node, by name. ``address``: the ZeroMQ endpoint of the control plane."""
    return {node.name: _assignment(plan, node, directory, keys, address) for node in plan.nodes}


def seen_from_inside(assignment: Assignment) -> Assignment:
    """The assignment with its paths as seen by a node that has a file tree of its own."""
    return replace(
        assignment,
        control_endpoint=f"ipc://{PLACE / 'control' / Path(assignment.control_endpoint).name}",
        data=replace(assignment.data, directory=str(PLACE / "data"), shards=str(PLACE / "shards.npz")),
        checkpoint_directory=str(PLACE / "checkpoints"),
        plugins=tuple(replace(each, root=str(PLACE / "plugins" / Path(each.root).name)) for each in assignment.plugins),
    )


def readdressed(assignment: Assignment, node: str, address: str) -> Assignment:
    """The assignment of a node after it, or one of its peers, has got another address."""
    if assignment.node == node:
        return replace(assignment, host=address)
    if all(peer.name != node for peer in assignment.peers):
        return assignment
    peers = (replace(peer, host=address) if peer.name == node else peer for peer in assignment.peers)
    return replace(assignment, peers=tuple(peers))


def write(assignment: Assignment, path: Path) -> None:
    """Write the assignment to a file that only this user can read: it holds the node's secret key."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(assignment.to_json())


@contextlib.contextmanager
def handed_out(assignment: Assignment | None, path: Path) -> Iterator[Path]:
    """Keep a node's assignment in the file ``path`` inside the context. RunError if it cannot be written."""
    if assignment is not None:
        try:
            write(assignment, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()  # a full disk leaves a part of it, with the node's key
            raise RunError(
                f"{assignment.node} cannot be started: its assignment {path} cannot be written ({error.strerror});"
                " do not change the directory of a run while it runs, and run again"
            ) from None
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _assignment(
    plan: Plan,
    node: NodePlan,
    directory: RunDirectory,
    keys: RunKeys,
    address: str,
) -> Assignment:
    related: list[tuple[Relation, str]] = [("parent", node.parent)] if node.parent is not None else []
    related += [("child", name) for name in node.children] + [("neighbour", name) for name in node.neighbours]
    related += [("elsewhere" if node.tier == "device" else "child", name) for name in node.visits]
    assert plan.stop.rounds is not None, "only programs have no number of rounds"
    return Assignment(
        run=directory.run,
        node=node.name,
        tier=node.tier,
        index=node.index,
        seed=plan.seed,
        host=node.address,
        port=node.port,
        keys=keys.nodes[node.name],
        control_endpoint=address,
        control_key=keys.orchestrator.public,
        peers=tuple(
            replace(_peer(plan.node(name), relation, keys), away=name in node.visits and relation == "child")
            for relation, name in related
        ),
        algorithm=plan.algorithm,
        params=dict(plan.params),
        model=node.model,
        model_params=dict(node.model_params),
        data=DataAssignment(
            dataset=plan.data.dataset,
            directory=plan.data_directory,
            shards=str(directory.shards),
            global_test=node.leads or node.tier == "cloud" or ALGORITHMS[plan.algorithm].personal,
            class_metrics=plan.data.class_metrics,
            **plan.shards.keys(node.name),
        ),
        hardware=Hardware(speed=node.hardware.speed, cores=node.hardware.cores, memory=node.hardware.memory),
        gathering=Gathering(
            quorum=plan.gathering.quorum,
            count=plan.gathering.count,
            deadline=plan.gathering.deadlines.get(node.tier, max(plan.gathering.deadlines.values())),
            late="keep" if plan.gathering.late == "keep" else "discard",
        ),
        timeouts=plan.timeouts,
        stop=plan.stop.of_nodes if plan.has_one_leader else plan.stop.without_goals,
        checkpoint_directory=str(directory.checkpoints_of(node.name)),
        leads=node.leads,
        device=node.device,
        precision=plan.precision,
        plugins=tuple(replace(each, root=str(directory.plugins / Path(each.root).name)) for each in plan.plugins),
        network=str(NETWORK),
    )


def _peer(node: NodePlan, relation: Relation, keys: RunKeys) -> PeerAddress:
    return PeerAddress(
        name=node.name,
        tier=node.tier,
        relation=relation,
        host=node.address,
        port=node.port,
        public_key=keys.nodes[node.name].public,
        late=node.joins is not None,
    )
