"""From the plan to the assignment of each node."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from node.assignment import (
    PLACE,
    Assignment,
    DataAssignment,
    Gathering,
    Hardware,
    PeerAddress,
    PluginSource,
    Relation,
)
from orchestrator.errors import RunError
from orchestrator.planning.addresses import NETWORK
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.plan import NodePlan, Plan
from orchestrator.record.directory import RunDirectory


def assignments(
    plan: Plan,
    directory: RunDirectory,
    keys: RunKeys,
    address: str,
) -> dict[str, Assignment]:
    """The assignment of every node, by name. ``address``: the ZeroMQ endpoint of the control plane."""
    by_name = {}
    for node in plan.nodes:
        by_name[node.name] = _assignment(plan, node, directory, keys, address)
    return by_name


def seen_from_inside(assignment: Assignment) -> Assignment:
    """The assignment with its paths as seen by a node that has a file tree of its own."""
    socket = Path(assignment.control_endpoint).name
    data = replace(
        assignment.data,
        directory=str(PLACE / "data"),
        shards=str(PLACE / "shards.npz"),
    )
    return replace(
        assignment,
        control_endpoint=f"ipc://{PLACE / 'control' / socket}",
        data=data,
        checkpoint_directory=str(PLACE / "checkpoints"),
        plugins=_plugins_in(PLACE / "plugins", assignment.plugins),
    )


def readdressed(assignment: Assignment, node: str, address: str) -> Assignment:
    """The assignment of a node after it, or one of its peers, has got another address."""
    if assignment.node == node:
        return replace(assignment, host=address)
    peers = []
    for peer in assignment.peers:
        if peer.name == node:
            peers.append(replace(peer, host=address))
        else:
            peers.append(peer)
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
    assert plan.stop.rounds is not None, "only programs have no number of rounds"
    peers = []
    for relation, name in _relations(node):
        peer = _peer(plan.node(name), relation, keys)
        away = name in node.visits and relation == "child"
        peers.append(replace(peer, away=away))
    if plan.has_one_leader:
        stop = plan.stop.of_nodes
    else:
        stop = plan.stop.without_goals
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
        peers=tuple(peers),
        algorithm=plan.algorithm,
        params=dict(plan.params),
        model=node.model,
        model_params=dict(node.model_params),
        data=_data(plan, node, directory),
        hardware=_hardware(plan, node),
        gathering=_gathering(plan, node),
        timeouts=plan.timeouts,
        stop=stop,
        checkpoint_directory=str(directory.checkpoints_of(node.name)),
        leads=node.leads,
        device=node.device,
        precision=plan.precision,
        plugins=_plugins_in(directory.plugins, plan.plugins),
        network=str(NETWORK),
    )


def _relations(node: NodePlan) -> Iterator[tuple[Relation, str]]:
    """The peers of a node by name, each with its relation to the node."""
    if node.parent is not None:
        yield "parent", node.parent
    for name in node.children:
        yield "child", name
    for name in node.neighbours:
        yield "neighbour", name
    for name in node.visits:
        if node.tier == "device":
            yield "elsewhere", name
        else:
            yield "child", name


def _data(plan: Plan, node: NodePlan, directory: RunDirectory) -> DataAssignment:
    evaluates = node.leads or node.tier == "cloud"
    return DataAssignment(
        dataset=plan.data.dataset,
        directory=plan.data_directory,
        shards=str(directory.shards),
        global_test=evaluates or plan.scheme.personal,
        class_metrics=plan.data.class_metrics,
        **plan.shards.keys(node.name),
    )


def _hardware(plan: Plan, node: NodePlan) -> Hardware:
    emulated = node.hardware
    return Hardware(
        speed=emulated.speed,
        cores=emulated.cores,
        memory=emulated.memory,
        modelled=plan.driver_kind.virtual,
    )


def _gathering(plan: Plan, node: NodePlan) -> Gathering:
    planned = plan.gathering
    longest = max(planned.deadlines.values())
    return Gathering(
        quorum=planned.quorum,
        count=planned.count,
        deadline=planned.deadlines.get(node.tier, longest),
        late="keep" if planned.late == "keep" else "discard",
    )


def _plugins_in(folder: Path, plugins: Iterable[PluginSource]) -> tuple[PluginSource, ...]:
    """The plug-ins, read from their copies in a folder."""
    copies = []
    for plugin in plugins:
        copy = folder / Path(plugin.root).name
        copies.append(replace(plugin, root=str(copy)))
    return tuple(copies)


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
