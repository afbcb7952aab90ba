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
from orchestrator.drivers.hosts.agents.calls import ExaminationSetup
from orchestrator.drivers.hosts.agents.facts import HostState, of_engine
from orchestrator.drivers.local import sweep
from orchestrator.drivers.swarm.images import describe_image
from orchestrator.errors import OrchestratorError
from orchestrator.fabric.namespaces import tcp
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.prober import HubProber
from orchestrator.fabric.trunk_trial import create_trial
from orchestrator.host.kernel.accelerators import accelerators
from orchestrator.host.kernel.clock import clock
from orchestrator.host.kernel.kernel_modules import has_module
from orchestrator.host.kernel.small_files import text_of
from orchestrator.host.process import python
from orchestrator.host.sensors.sensor import TEMPERATURE, THROTTLED, read
from orchestrator.host.sensors.sources import discover

HOST_FILES = Path("/proc/1/root")
"""The files of the host, as its first process sees them. The Engine hides some of them from containers."""


async def examine(
    datasets: Path, setup: ExaminationSetup, folder: Path, stack: AsyncExitStack
) -> tuple[HostState, int, HubProber]:
    """The facts, and a hub on a trunk to the other hosts. ``datasets``: a folder. HostError if no hub can be opened."""
    stack.push_async_callback(sweep, setup.run)
    hub = await Hub.open(setup.run, folder)
    stack.push_async_callback(hub.close)
    engine, image = await asyncio.to_thread(_engine, setup.image)
    trunk, notes = await _trunk(setup, hub, folder, stack)
    facts = HostState(
        version=importlib.metadata.version("edgebed"),
        kernel=os.uname().release,
        engine=engine,
        image=image,
        disk_free=shutil.disk_usage(folder).free,
        trunk=trunk,
        trunk_notes=tuple(notes),
        netem=await _netem(hub),
        congestion_control=(await tcp.in_force(hub)).get(tcp.CONGESTION),
        datasets=await asyncio.to_thread(describe_data, datasets),
        clock=clock(),
        **await asyncio.to_thread(read_facts, HOST_FILES if os.access(HOST_FILES / "proc", os.R_OK) else Path("/")),
    )
    return facts, hub.anchor.pid, HubProber(hub)


def read_facts(root: Path) -> dict[str, Any]:
    """The facts that files below ``root`` show: dev, sys, proc, lib and usr."""
    readings = [each for each in read(discover(root)) if each.value is not None]
    degrees = [each.value for each in readings if each.quantity == TEMPERATURE and each.value is not None]
    flags = [each for each in readings if each.quantity == THROTTLED]
    return {
        "iptable_raw": has_module("iptable_raw", root),
        "model": text_of(root / "proc/device-tree/model"),
        "temperature": max(degrees, default=None),
        "accelerators": accelerators(root),
        "throttled": tuple(dict.fromkeys(each.scope for each in flags if each.value)) if flags else None,
    }


def _engine(image: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What the Engine tells of itself, and of the image; None if it does not answer."""
    with contextlib.suppress(OrchestratorError), contextlib.closing(Engine.connect()) as engine:
        return of_engine(engine.facts()), describe_image(engine.image(image))
    return None, None


async def _trunk(setup: ExaminationSetup, hub: Hub, folder: Path, stack: AsyncExitStack) -> tuple[str, list[str]]:
    """Create a trunk. Returns why it cannot be created, and notes on it."""
    try:
        carrier = await create_trial(setup.run, setup.number, setup.hosts, setup.mtu, hub, folder)
    except OrchestratorError as error:
        return str(getattr(error, "what", error)), []
    stack.push_async_callback(carrier.close)
    return "", carrier.notes()


async def _netem(hub: Hub) -> str | None:
    try:
        tried = json.loads(await hub.run(python.module("orchestrator.fabric.tc.probe_kernel")))
    except (OrchestratorError, ValueError):
        return None
    return "" if tried["netem"] else str(tried["reason"])
