"""The entry of this driver, see `orchestrator.drivers.base.DriverEntry`.

The import of the Engine's SDK takes a quarter of a second, so functions import it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from orchestrator.drivers.base import Environment, Tell
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.local import connected, sweep
from orchestrator.drivers.surroundings import addresses, kernel_notes, quota_notes
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.helper import HelperHub, without_client
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.host.commands import absent
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory


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
