"""The container that carries out the runs of a sweep on an agent's host.

It is made from the image of nodes, which has torch. The orchestrator brings its own code there, so that all hosts have
the same. Of the libraries that this code needs, those that nodes lack come from the image of the agent, whose Python is
of the same version. The container has no network, no rights, and of the host only what the orchestrator brought there.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from docker.types import LogConfig, Mount

from orchestrator.agent.runs import RunWorker
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.docker.container import ENVIRONMENT, SCRATCH
from orchestrator.drivers.docker.engine import Engine, Stream, plain_words
from orchestrator.drivers.swarm.agents.settings import CODE, PACKAGES, RUNS
from orchestrator.errors import HostError
from orchestrator.host.directory import RunDirectory
from orchestrator.host.docker_socket import DIRECTORY, NODE, RUN

PART = "runs"
PLACE = Path("/edgebed")
DATA = "data"
LENT = ("annotated_types", "pydantic", "pydantic_core", "typing_inspection", "yaml")
"""What the image of nodes lacks of the libraries that carry out a run."""


async def start_carrier(
    datasets: Path,
    image: str,
    command: Sequence[str],
    directory: RunDirectory,
    hear: Callable[[str | None], None],
    stack: AsyncExitStack,
) -> RunWorker:
    """Start the container. ``datasets``: the folder of this host's. ``image``: that of nodes. ``command``: the module
    that it runs, and the name of this host. ``hear`` receives each line of output, and None at the end.
    HostError if no fitting image is here."""
    engine = await asyncio.to_thread(Engine.connect)
    stack.callback(engine.close)
    await asyncio.to_thread(lend, directory.path / PACKAGES)
    await asyncio.to_thread((directory.path / RUNS).mkdir, exist_ok=True)
    loop = asyncio.get_running_loop()

    def forward(line: str | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(hear, line)

    return await asyncio.to_thread(_start, engine, datasets, image, command, directory, forward, stack)


def lend(folder: Path) -> None:
    """Copy the libraries of this Python that the image of nodes lacks."""
    for name in LENT:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise HostError(
                f"the image of agents lacks the library {name}", "build it of this version (`edgebed docs images`)"
            )
        if not (folder / name).exists():
            shutil.copytree(Path(spec.origin).parent, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def options(
    directory: RunDirectory, datasets: Path, image: Mapping[str, Any], user: tuple[int, int], command: list[str]
) -> dict[str, Any]:
    """The SDK's arguments for the container. ``image``: the attributes of the image."""
    variables = dict(each.partition("=")[::2] for each in image["Config"].get("Env") or ())
    path = [str(PLACE / CODE), *filter(None, [variables.get("PYTHONPATH")]), str(PLACE / PACKAGES)]
    places = {name: directory.path / name for name in (CODE, PACKAGES, RUNS)} | {DATA: datasets}
    mounts = [Mount(str(PLACE / name), str(path), type="bind", read_only=name != RUNS) for name, path in places.items()]
    python = (image["Config"].get("Entrypoint") or ["python3"])[0]
    return {
        "name": f"{directory.run}-{PART}",
        "labels": {RUN: directory.run, NODE: PART, DIRECTORY: str(directory.path)},
        "entrypoint": [python, "-P", "-m", *command],
        "environment": ENVIRONMENT | {"PYTHONPATH": ":".join(path)},
        "user": f"{user[0]}:{user[1]}",
        "network_mode": "none",
        "mounts": mounts,
        "read_only": True,
        "tmpfs": {"/tmp": SCRATCH},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "stdin_open": True,  # it ends with its input: when the agent lets go of it, or is gone
        "auto_remove": True,
        "log_config": LogConfig(type=LogConfig.types.NONE),
        "healthcheck": {"test": ["NONE"]},
    }


def _start(
    engine: Engine,
    datasets: Path,
    image: str,
    command: Sequence[str],
    directory: RunDirectory,
    hear: Callable[[str | None], None],
    stack: AsyncExitStack,
) -> RunWorker:
    found = engine.image(image)
    if (error := node_image.problem(image, found, engine.facts()["Architecture"])) is not None:
        raise error
    assert found is not None
    user = node_image.user_of(found, os.geteuid(), os.getegid())
    whole = [*command, str(PLACE / RUNS), str(PLACE / DATA)]
    container = engine.create(image, [], options(directory, datasets, found, user, whole))
    stack.push_async_callback(asyncio.to_thread, _remove, engine, directory.run)
    output = engine.output(container)
    held: Any = engine.hold(container)
    stack.callback(held.close)
    with plain_words("starting the container of the sweep"):
        container.start()
    threading.Thread(target=_read, args=(output, hear), daemon=True).start()
    return RunWorker(lambda line: held._sock.sendall(f"{line}\n".encode()), user)


def _remove(engine: Engine, run: str) -> None:
    engine.remove(engine.containers(run))


def _read(output: Stream[bytes], hear: Callable[[str | None], None]) -> None:
    rest = b""
    try:
        for piece in output:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                hear(line.decode(errors="replace"))
    finally:
        hear(None)
