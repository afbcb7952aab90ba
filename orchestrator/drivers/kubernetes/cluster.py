"""A cluster as kubectl shows it, in the namespace and with the rights of its context; and the agents of a run in it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

from orchestrator.drivers.base import Tell
from orchestrator.drivers.hosts.agents.settings import Settings
from orchestrator.drivers.kubernetes.manifest import RUN, objects
from orchestrator.drivers.kubernetes.reading import read_inventory, read_pods
from orchestrator.errors import HostError
from orchestrator.planning.hosts.inventory import HostFacts, Inventory

logger = logging.getLogger(__name__)

LOOK_EVERY = 2.0  # s between looks at pods that start
REFUSED = ("ImagePullBackOff", "InvalidImageName", "CreateContainer", "CrashLoopBackOff")
"""The starts of reasons why a pod will not start."""


def kubectl(*words: str, stdin: str = "") -> str:
    """The output of a command of kubectl, which Ctrl-C does not end. HostError if it fails."""
    if shutil.which("kubectl") is None:
        raise HostError("the command 'kubectl' is missing, which finds the cluster", "install it, or add it to PATH")
    done = subprocess.run(
        ["kubectl", *words],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    if done.returncode:
        command = " ".join(words)
        reason = done.stderr.strip()
        raise HostError(
            f"`kubectl {command}` failed ({reason})",
            "does kubectl reach the cluster, with the rights that `edgebed docs kubernetes` lists?",
        )
    return done.stdout


def _listed(*words: str) -> list[dict[str, Any]]:
    output = kubectl("get", *words, "--output=json")
    objects: list[dict[str, Any]] = json.loads(output)["items"]
    return objects


def inventory() -> Inventory:
    """The hosts of the cluster. HostError without one."""
    nodes = _listed("nodes")
    return read_inventory(nodes)


def agents(run: str) -> dict[str, str]:
    """The states of the agents of a run, by their hosts."""
    pods = _listed("pods", f"--selector={RUN}={run}")
    return read_pods(pods)


def stop_agents(run: str) -> list[str]:
    """End the agents of a run, and remove what it has in the cluster. Returns their hosts."""
    hosts = sorted(agents(run))
    selector = f"--selector={RUN}={run}"
    kubectl("delete", "daemonsets,secrets", selector, "--cascade=foreground", "--timeout=60s")
    return hosts


async def start_agents(
    tell: Tell,
    hosts: Sequence[HostFacts],
    settings: Settings,
    stack: AsyncExitStack,
) -> Coroutine[Any, Any, str]:
    """Have Kubernetes start an agent on each host, from $EDGEBED_AGENT_IMAGE or ``edgebed`` (images/edgebed). See
    `orchestrator.drivers.hosts.environment.Start`."""
    image = os.environ.get("EDGEBED_AGENT_IMAGE") or "edgebed"
    manifest = json.dumps(objects(hosts, settings, image))
    stack.push_async_callback(_stop, settings.run)
    create = asyncio.to_thread(kubectl, "create", "--filename=-", stdin=manifest)
    creating = asyncio.create_task(create)
    stack.push_async_callback(asyncio.wait, [creating])  # so that what it still makes is removed
    await asyncio.shield(creating)
    return _refused(settings.run, tell)


async def _refused(run: str, tell: Tell) -> str:
    """Wait until a pod cannot start. ``tell`` receives the states of all."""
    states: dict[str, str] = {}
    while True:
        present_states = await asyncio.to_thread(agents, run)
        changes = present_states.items() - states.items()
        for host, state in sorted(changes):
            tell(f"the agent on {host} is {state}")
            if any(reason in state for reason in REFUSED):
                return f"the agent on {host} does not start ({state})"
        states = present_states
        await asyncio.sleep(LOOK_EVERY)


async def _stop(run: str) -> None:
    try:
        await asyncio.to_thread(stop_agents, run)
    except HostError as error:
        logger.warning("the agents of the run may not have ended; `down %s` removes them (%s)", run, error)
