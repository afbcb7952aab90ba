"""The entry of this driver, see `orchestrator.drivers.base`: `DriverEntry`, `LeavesTraces`, `EntersNodes`, `TriesHost`.

The import of the Engine's SDK takes a quarter of a second, so functions import it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from orchestrator.drivers.base import Environment, ImageBuild, LeftRun, Removal, Tell, Trace
from orchestrator.drivers.docker import entering, leftovers, node_image
from orchestrator.drivers.docker.helper import HelperHub, without_client
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.host.commands import absent
from orchestrator.host.trial import Trial
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory

USED_BY = "the driver docker"

enter = entering.enter


def missing(plan: Plan | None = None) -> list[HostError]:
    """Errors for missing commands, an Engine that does not answer, or an image that does not fit host or version."""
    is_root = os.geteuid() == 0
    needs_image = plan is None or not plan.programs or not is_root
    errors = absent() + _engine(image=needs_image)
    if not is_root:
        error = without_client()
        if error is not None:
            errors.append(error)
    return errors


async def open_environment(
    plan: Plan,
    directory: RunDirectory,
    stack: AsyncExitStack,
    workers: int,
    tell: Tell,
) -> Environment:
    """Connect to an Engine that has the images, and open a hub: as root on the host, else in a helper container."""
    from orchestrator.drivers.docker.driver import DockerDriver
    from orchestrator.drivers.docker.engine import Engine
    from orchestrator.drivers.docker.pods import PodsDriver
    from orchestrator.drivers.local import connected, sweep
    from orchestrator.drivers.surroundings import addresses, kernel_notes, quota_notes

    stack.push_async_callback(sweep, directory.run)
    engine = await asyncio.to_thread(Engine.connect)
    driver: DockerDriver
    if plan.programs:
        driver = PodsDriver(
            engine,
            directory,
            plan.programs,
            plan.images_of(plan.nodes),
            addresses(plan),
            Path(plan.folder),
            notes=[*quota_notes(plan), *kernel_notes()],
        )
    else:
        driver = DockerDriver(
            engine,
            directory,
            Path(plan.data_directory),
            plan.images,
            accelerated=plan.accelerated(),
        )
    stack.push_async_callback(driver.close)
    await driver.open()
    if os.geteuid() == 0:
        opening = Hub.open
    else:
        opening = partial(HelperHub.start, image=driver.image)
    hub = await opening(directory.run, directory.path)
    stack.push_async_callback(hub.close)
    return await connected(driver, hub, plan, directory, stack)


def image_build() -> ImageBuild:
    command = node_image.BUILD.format(name=node_image.image_name())
    return ImageBuild("nodes", command, "for nodes in containers")


def traces(run: str | None = None) -> list[Trace]:
    """The containers of one run, or of all runs."""
    rows = []
    for container in leftovers.listed(run):
        trace = Trace(container.run, container.directory, container.node, container.pid)
        rows.append(trace)
    return rows


def remove(run: LeftRun) -> Removal:
    """Remove the containers of a run."""
    with leftovers.engine() as engine:
        if engine is not None:
            containers = engine.containers(run.run)
            remaining = engine.remove(containers)
            names = [container.node for container in containers]
            return Removal(containers=names, left=[f"container of {container.node}" for container in remaining])
    if run.killed_with_containers:
        return Removal(left=["containers: the Docker Engine, which lists them, is not running"])
    return Removal()


def trials() -> list[Trial]:
    """Check the Docker Engine and the image of nodes."""
    from orchestrator.drivers.docker.container import Limits, product
    from orchestrator.drivers.docker.driver import unfit
    from orchestrator.drivers.docker.engine import Engine

    name = node_image.image_name()
    findings = []
    no_client = without_client() if os.geteuid() != 0 else None
    if no_client is not None:
        findings.append(Trial.missing("docker command", USED_BY, no_client, ok=None))
    try:
        engine = Engine.connect()
    except HostError as error:
        findings.append(Trial.missing("Docker Engine", USED_BY, error, ok=None))
        return findings
    with contextlib.closing(engine):
        facts = engine.facts()
        image = engine.image(name)
    refused = unfit(facts, os.uname().release)
    if refused is not None:
        findings.append(Trial.missing("Docker Engine", USED_BY, refused, ok=None))
        return findings
    limits = Limits.of(facts).notes()
    detail = "; ".join([product(facts), *limits])
    findings.append(Trial("Docker Engine", USED_BY, True, detail))
    problem = node_image.problem(name, image, facts["Architecture"])
    if problem is None:
        findings.append(Trial("image of nodes", USED_BY, True, name))
    else:
        findings.append(Trial.missing("image of nodes", USED_BY, problem, ok=None))
    return findings


def _engine(*, image: bool) -> list[HostError]:
    """The error of the Docker Engine, or otherwise, if a run needs it, of the image of nodes."""
    from orchestrator.drivers.docker.driver import unfit
    from orchestrator.drivers.docker.engine import Engine

    name = node_image.image_name()
    try:
        engine = Engine.connect()
    except HostError as error:
        return [error]
    with contextlib.closing(engine):
        facts = engine.facts()
        attributes = engine.image(name)
    problem = unfit(facts, os.uname().release)
    if problem is None and image:
        problem = node_image.problem(name, attributes, facts["Architecture"])
    if problem is None:
        return []
    return [problem]
