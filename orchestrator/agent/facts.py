"""Reads the facts about the host of an agent. Nothing that is made for that stays."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import os
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from orchestrator.agent.datasets import describe as describe_data
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.docker.node_image import describe_image
from orchestrator.drivers.hosts.agents.calls import ExaminationSetup
from orchestrator.drivers.hosts.agents.facts import HostState, of_engine
from orchestrator.drivers.local import sweep
from orchestrator.errors import OrchestratorError
from orchestrator.fabric.link_prober import HubProber
from orchestrator.fabric.namespaces import tcp
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.trunk_trial import create_trial
from orchestrator.host.kernel.accelerators import accelerators
from orchestrator.host.kernel.clock import clock
from orchestrator.host.kernel.kernel_modules import has_module
from orchestrator.host.kernel.small_files import text_of
from orchestrator.host.process import python
from orchestrator.host.sensors.sensor import TEMPERATURE, THROTTLED, read
from orchestrator.host.sensors.sources import discover

_Facts = dict[str, Any]

HOST_FILES = Path("/proc/1/root")
"""The files of the host, as its first process sees them. The Engine hides some of them from containers."""


async def examine(
    datasets: Path,
    setup: ExaminationSetup,
    folder: Path,
    stack: AsyncExitStack,
) -> tuple[HostState, int, HubProber]:
    """The facts, and a hub on a trunk to the other hosts. ``datasets``: a folder. HostError if no hub can be opened."""
    stack.push_async_callback(sweep, setup.run)
    hub = await Hub.open(setup.run, folder)
    stack.push_async_callback(hub.close)
    engine, image = await asyncio.to_thread(_engine, setup.image)
    trunk, notes = await _trunk(setup, hub, folder, stack)
    if os.access(HOST_FILES / "proc", os.R_OK):
        root = HOST_FILES
    else:
        root = Path("/")
    disk = shutil.disk_usage(folder)
    netem = await _netem(hub)
    tcp_settings = await tcp.in_force(hub)
    kept = await asyncio.to_thread(describe_data, datasets)
    own_clock = clock()
    more = await asyncio.to_thread(read_facts, root)
    facts = HostState(
        version=importlib.metadata.version("edgebed"),
        kernel=os.uname().release,
        engine=engine,
        image=image,
        disk_free=disk.free,
        trunk=trunk,
        trunk_notes=tuple(notes),
        netem=netem,
        congestion_control=tcp_settings.get(tcp.CONGESTION),
        datasets=kept,
        clock=own_clock,
        **more,
    )
    return facts, hub.anchor.pid, HubProber(hub)


def read_facts(root: Path) -> dict[str, Any]:
    """The facts that files below ``root`` show: dev, sys, proc, lib and usr."""
    degrees = []
    flags = []
    for reading in read(discover(root)):
        if reading.value is None:
            continue
        if reading.quantity == TEMPERATURE:
            degrees.append(reading.value)
        elif reading.quantity == THROTTLED:
            flags.append(reading)
    throttled = None
    if flags:
        raised = [flag.scope for flag in flags if flag.value]
        throttled = tuple(dict.fromkeys(raised))
    return {
        "iptable_raw": has_module("iptable_raw", root),
        "model": text_of(root / "proc/device-tree/model"),
        "temperature": max(degrees, default=None),
        "accelerators": accelerators(root),
        "throttled": throttled,
    }


def _engine(image: str) -> tuple[_Facts | None, _Facts | None]:
    """What the Engine reports about itself, and about the image; None if it does not answer."""
    with contextlib.suppress(OrchestratorError), contextlib.closing(Engine.connect()) as engine:
        own = of_engine(engine.facts())
        return own, describe_image(engine.image(image))
    return None, None


async def _trunk(
    setup: ExaminationSetup,
    hub: Hub,
    folder: Path,
    stack: AsyncExitStack,
) -> tuple[str, list[str]]:
    """Create a trunk. Returns why it cannot be created, and notes on it."""
    try:
        carrier = await create_trial(
            setup.run,
            setup.number,
            setup.hosts,
            setup.mtu,
            hub,
            folder,
        )
    except OrchestratorError as error:
        reason = getattr(error, "what", error)
        return str(reason), []
    stack.push_async_callback(carrier.close)
    return "", carrier.notes()


async def _netem(hub: Hub) -> str | None:
    command = python.module("orchestrator.fabric.tc.netem_support")
    try:
        tried = json.loads(await hub.run(command))
    except (OrchestratorError, ValueError):
        return None
    if tried["netem"]:
        return ""
    return str(tried["reason"])
