"""What a run needs of this host, by its driver; looked at before anything is made."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter

from orchestrator.errors import HostError
from orchestrator.fabric.helper import without_client
from orchestrator.host.commands import absent
from orchestrator.host.namespaces import refusal
from orchestrator.planning.plan import Plan

FIRST = 64  # of a process of a run with nobody to talk to, and some to spare: at most 40 were counted
OF_A_PEER = 3  # at a node: a connection each way, and what ZeroMQ signals itself with
OF_A_CONTAINER = 3  # at the orchestrator: its output, its control connection, a request to the Engine
OF_A_WORKER = 4  # of a simulation


def missing(driver: str) -> list[HostError]:
    """What this host lacks for a driver, each with its remedy; empty if a run can begin."""
    found = [] if driver == "sim" else absent()
    if driver == "namespaces" and shutil.which("unshare") is not None:
        found += [error for error in [refusal()] if error is not None]
    if driver == "docker":
        found += _engine()
        if os.geteuid() != 0:
            found += [error for error in [without_client()] if error is not None]
    return found


def require(driver: str) -> None:
    """HostError that names all that this host lacks for a driver."""
    found = missing(driver)
    if len(found) == 1:
        raise found[0]
    if found:
        raise HostError("\n".join(str(error) for error in found))


def open_files(plan: Plan, workers: int) -> int:
    """The most files that one process of the run has open: the orchestrator, the switch or the node with most peers."""
    if plan.driver == "sim":
        return FIRST + OF_A_WORKER * workers
    peers = Counter(link.source for link in plan.links)
    nodes = len(plan.nodes) * (OF_A_CONTAINER if plan.driver == "docker" else 1)
    return FIRST + max(nodes, OF_A_PEER * max(peers.values(), default=0))


def _engine() -> list[HostError]:
    """What is wrong with the Docker Engine, or else with its image of nodes."""
    # Here and not above: the SDK's import takes a quarter of a second.
    from orchestrator.drivers.docker import node_image
    from orchestrator.drivers.docker.driver import unfit
    from orchestrator.drivers.docker.engine import Engine

    name = node_image.image_name()
    try:
        engine = Engine.connect()
    except HostError as error:
        return [error]
    with contextlib.closing(engine):
        facts, image = engine.facts(), engine.image(name)
    found = unfit(facts, os.uname().release) or node_image.problem(name, image, facts["Architecture"])
    return [] if found is None else [found]
