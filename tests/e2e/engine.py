"""A Docker Engine for tests, with an image of nodes made from the Python that runs the tests.

An Engine that already answers is used; else root starts one where `dockerd` is installed, on a socket and in folders of
its own and without touching the host's network, and ends it by its process id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.errors import HostError
from orchestrator.host.docker_socket import address, reach
from tests.e2e.harness import memory_directory, wait_for
from tests.e2e.image import import_image

IMAGES = 5 << 30  # bytes: those of the tests, and what remains of building one
START = 30.0  # s
STOP = 30.0


class Daemon:
    """A dockerd of our own with its data in ``folder``, whose path must be short: sockets lie in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder / 'socket'}"
        self.start()

    def start(self) -> None:
        """Start it, also after ``kill``, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            until_killed = ["setpriv", "--pdeathsig", "TERM"]  # should the tests be killed, it goes too
            places = {"--data-root": "data", "--exec-root": "exec", "--pidfile": "pid"}
            options = [word for name, place in places.items() for word in (name, self.folder / place)]
            options += ["--bridge", "none", "--iptables=false", "--ip6tables=false"]
            command = [*until_killed, "dockerd", "--host", self.address, *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._answers, "dockerd", START)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(STOP)

    def _answers(self) -> bool | None:
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with at(self.address), contextlib.suppress(HostError):
            Engine.connect().close()
            return True
        return None


@contextlib.contextmanager
def at(address: str) -> Iterator[None]:
    """Have this process, and those it starts, use the Engine at ``address``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        yield


@contextlib.contextmanager
def own_daemon() -> Iterator[Daemon]:
    """A dockerd that nobody else uses; where none can be started the test is skipped, and fails where CI is set."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        give_up = pytest.fail if "CI" in os.environ else pytest.skip
        give_up("no Docker Engine answers, and none can be started: that needs root and dockerd (docker.io)")
    # In memory, for a disk may take minutes to forget all of it.
    folder = Path(tempfile.mkdtemp(prefix="edgebed-", dir=memory_directory(IMAGES)))
    try:
        daemon = Daemon(folder)
        try:
            yield daemon
        finally:
            daemon.stop()
    finally:
        for mounted in _mounts_below(folder):  # a daemon that was killed has left some
            subprocess.run(["umount", "--lazy", mounted], check=False)
        shutil.rmtree(folder)


def _mounts_below(folder: Path) -> list[str]:
    """Deepest first."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return sorted((place for place in places if place.startswith(f"{folder}/")), reverse=True)


@dataclass(frozen=True)
class Place:
    """Where nodes can be made from what. ``daemon`` is None where the Engine is not the tests' own."""

    address: str
    image: str
    daemon: Daemon | None


@contextlib.contextmanager
def with_image() -> Iterator[Place]:
    """An Engine with an image of nodes."""
    name = f"edgebed-test:{os.getpid()}"
    with contextlib.ExitStack() as stack:
        try:
            reach()
            found, daemon = address(), None
        except HostError:
            daemon = stack.enter_context(own_daemon())
            found = daemon.address
        with at(found):
            engine = stack.enter_context(contextlib.closing(Engine.connect()))
        import_image(engine.client, name)
        if daemon is None:  # one of our own goes with all it has
            stack.callback(engine.client.images.remove, name, force=True)
        yield Place(found, name, daemon)
