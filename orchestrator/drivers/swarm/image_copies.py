"""Copies the images of nodes to the hosts of a run that lack them, or makes the hosts pull them from a registry. Images
are pulled by their present digest, so that all hosts get the same ones."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import closing
from functools import partial

from orchestrator import text
from orchestrator.drivers.base import Tell
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.docker.transfers import Saving
from orchestrator.drivers.hosts.agents.calls import HostImages
from orchestrator.drivers.hosts.agents.channel import PIECE
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.swarm import agent_image
from orchestrator.drivers.swarm.images import (
    Archive,
    Delivery,
    Pinned,
    Source,
    archive,
    archive_of_program,
    deliveries,
    is_in_registry,
    names_of,
    pinned,
    split,
)
from orchestrator.errors import DriverError, HostError
from orchestrator.planning.plan import Plan
from orchestrator.together import together

STEPS = 10  # of the progress that is reported


def images_of(plan: Plan) -> dict[str, set[str]]:
    """The images that each host of the plan needs."""
    of_run = set()
    if not plan.programs:
        of_run = {node_image.image_name()}
    images = {}
    for host in plan.hosts:
        nodes = plan.nodes_on(host.name)
        images[host.name] = of_run | plan.images_of(nodes)
    return images


def pin(engine: Engine, name: str) -> Pinned:
    """The image of a registry as it is now. HostError if the registry does not answer, or has no such image."""
    try:
        facts = engine.in_registry(name)
        return pinned(name, facts)
    except DriverError as error:
        raise HostError(
            str(error),
            "is the name right, does this host reach the registry, and is its user logged in there (`docker login`)?",
        ) from None


def image_of_agents() -> str:
    """The image of agents, with its digest if it is in a registry. HostError as `pin` raises it."""
    name = agent_image.image_name()
    if not is_in_registry(name):
        return name
    with closing(Engine.connect()) as engine:
        return pin(engine, name).reference


async def copy_images(
    images: Mapping[str, Collection[str]],
    architectures: Mapping[str, str],
    agents: Agents,
    tell: Tell,
    node_images: Collection[str] = (),
    *,
    programs: bool = False,
) -> list[str]:
    """Copy the images that it lacks to each host. ``images`` and ``architectures`` are by host, ``node_images`` and
    ``programs`` as in `find_sources`. ``tell`` receives the progress, in words. Returns notes for the record.
    HostError, before anything is copied, if a host cannot get an image."""

    async def ask(host: str) -> tuple[str, Mapping[str, Mapping[str, object]]]:
        names = sorted(images[host])
        return host, await agents.call(host, HostImages.images, names)

    hosts = sorted(images)
    answers = dict(await asyncio.gather(*(ask(host) for host in hosts)))
    pairs = set()
    for host, names in images.items():
        pairs |= {(name, architectures[host]) for name in names}
    with closing(await asyncio.to_thread(Engine.connect)) as engine:
        find = partial(find_sources, engine, pairs, node_images, programs=programs)
        sources = await asyncio.to_thread(find)
        works = []
        for delivery in deliveries(answers, architectures, sources):
            source = delivery.source
            if isinstance(source, Archive):
                works.append(_copy(delivery, source, agents, tell))
                continue
            login = await asyncio.to_thread(engine.login, delivery.name)
            for host in delivery.hosts:
                works.append(_pull(host, delivery.name, source, login, agents, tell))
        await together(works)
    references = {source.reference for source in sources.values() if isinstance(source, Pinned)}
    return [f"nodes are made from the image {reference}" for reference in sorted(references)]


def find_sources(
    engine: Engine,
    pairs: Collection[tuple[str, str]],
    node_images: Collection[str],
    *,
    programs: bool = False,
) -> dict[tuple[str, str], Source]:
    """The source of each image for each architecture, see `deliveries`. ``node_images``: those that the scenario sets
    for some nodes. ``programs``: they are no images of nodes. HostError if a registry does not answer."""
    pins = {}
    for name in sorted({name for name, _ in pairs}):
        if is_in_registry(name):
            pins[name] = pin(engine, name)
    local: set[str] = set()
    for name, architecture in pairs:
        if name not in pins:
            local.update(names_of(name, architecture))
    images = {name: engine.image(name) for name in sorted(local)}
    run = node_image.image_name()

    def archive_for(name: str, architecture: str) -> Source:
        if programs:
            return archive_of_program(name, architecture, images)
        given = name in node_images and name != run
        return archive(name, architecture, images, given=given)

    sources: dict[tuple[str, str], Source] = {}
    for name, architecture in pairs:
        if name in pins:
            sources[name, architecture] = pins[name]
        else:
            sources[name, architecture] = archive_for(name, architecture)
    return sources


async def _copy(
    delivery: Delivery,
    source: Archive,
    agents: Agents,
    tell: Tell,
) -> None:
    """Copy an image to several hosts at the same time. The slowest one sets the pace, and one piece is on its way."""
    name = delivery.name
    hosts = delivery.hosts
    listed = ", ".join(hosts)
    tell(f"bringing the image {name} ({text.size(source.size)}) to {listed}")
    progress = CopyProgress(lambda share: tell(f"{name} to {listed}: {share}"))
    with closing(await asyncio.to_thread(Saving, source.id)) as saving:
        sent = 0
        data = await asyncio.to_thread(saving.read, PIECE)
        while data:
            first = sent == 0
            calls = [agents.call(host, HostImages.load, name, data, first) for host in hosts]
            await together(calls)
            sent += len(data)
            progress.at(sent, source.size)
            data = await asyncio.to_thread(saving.read, PIECE)
    await together(agents.call(host, HostImages.finish_load, name) for host in hosts)
    tell(f"{listed}: the image {name} is there")


async def _pull(
    host: str,
    name: str,
    source: Pinned,
    login: str | None,
    agents: Agents,
    tell: Tell,
) -> None:
    tell(f"{host} pulls the image {source.reference}")
    progress = CopyProgress(lambda share: tell(f"{host} pulls {name}: {share}"))
    repository, digest = split(source.reference)
    await agents.call(host, HostImages.pull, name, repository, digest, login)
    over = False
    while not over:
        over, done, known = await agents.call(host, HostImages.pull_progress, name)
        progress.at(done, known)
    tell(f"{host}: the image {name} is there")


class CopyProgress:
    """Reports each tenth once: "40% (0.4 of 1.0 GB)". The size of the whole is a guess, so the last tenth is not
    reported."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._step = 0

    def at(self, done: int, whole: int) -> None:
        step = 0
        if whole:
            step = min(STEPS - 1, done * STEPS // whole)
        if step > self._step:
            self._step = step
            percent = step * 100 // STEPS
            self._tell(f"{percent}% ({text.size(done)} of about {text.size(whole)})")
