"""A Docker Engine for tests, with an image of nodes made from the Python that runs the tests.

An Engine that already answers is used; else root starts one where `dockerd` is installed, on a socket and in folders of
its own and without touching the host's network, and ends it by its process id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from orchestrator.drivers.docker.engine import TIMEOUT, Engine
from orchestrator.errors import HostError
from orchestrator.host.docker_socket import address, reach
from tests.e2e.harness import memory_directory, wait_for
from tests.e2e.image import import_image
from tests.programs import give_up, missing

IMAGES = 5 << 30  # bytes: those of the tests, and what remains of building one
START = 30.0  # s
STOP = 30.0
DATA, EXEC = "data", "exec"
UNDERLAYS = "10.77.0.0/16"
"""The addresses of hosts of tests (`tests.netem.wiring`): a registry there needs no encryption."""


class Daemon:
    """A dockerd of our own with its data in ``folder``, whose path must be short: sockets lie in it.

    ``prefix`` is the start of its command line, such as a command that enters a namespace. ``socket`` is a further
    address at which it listens.
    """

    def __init__(self, folder: Path, prefix: Sequence[str] = (), socket: str | None = None) -> None:
        self.folder = folder
        self.address = f"unix://{folder / 'socket'}"
        self._prefix = prefix
        self._hosts = ["--host", self.address, *(["--host", socket] if socket else [])]
        self.start()

    def start(self) -> None:
        """Start it, also after ``kill``, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            until_killed = ["setpriv", "--pdeathsig", "TERM"]  # should the tests be killed, it goes too
            places = {"--data-root": DATA, "--exec-root": EXEC, "--pidfile": "pid"}
            options = [word for name, place in places.items() for word in (name, self.folder / place)]
            options += ["--bridge", "none", "--iptables=false", "--ip6tables=false"]
            options += ["--insecure-registry", UNDERLAYS]
            command = [*until_killed, *self._prefix, "dockerd", *self._hosts, *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._answers, "dockerd", START)

    @property
    def data(self) -> Path:
        return self.folder / DATA

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def was_killed(self) -> bool:
        return self._process.poll() == -signal.SIGKILL

    def client(self) -> docker.DockerClient:
        """A connection, which the caller closes."""
        return docker.DockerClient(base_url=self.address, timeout=TIMEOUT)

    def kill(self) -> None:
        """Kill it, and with it its containerd. Containers stay until ``start`` ends them."""
        containerd = int((self.folder / EXEC / "containerd" / "containerd.pid").read_text())
        self._process.kill()
        self._process.wait()
        # A dockerd that finds its process, even as a zombie, waits for it to answer.
        wait_for(lambda: not Path("/proc", str(containerd)).exists() or None, "the end of containerd", STOP)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(STOP)

    def _answers(self) -> bool | None:
        assert self.runs, (self.folder / "log").read_text()
        with socket.socket(socket.AF_UNIX) as trial, contextlib.suppress(DockerException, OSError):
            trial.connect(self.address.removeprefix("unix://"))
            self.client().close()
            return True
        return None


@contextlib.contextmanager
def at(address: str) -> Iterator[None]:
    """Have this process, and those it starts, use the Engine at ``address``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        yield


@contextlib.contextmanager
def own_daemon(prefix: Sequence[str] = (), images: Daemon | None = None, socket: str | None = None) -> Iterator[Daemon]:
    """A dockerd that nobody else uses, see `Daemon`. It has the images of the daemon ``images``, which was stopped and
    shares their files. Where none can be started the test is skipped, and fails where CI is set."""
    require_dockerd()
    # In memory, for a disk may take minutes to forget all of it.
    folder = Path(tempfile.mkdtemp(prefix="edgebed-", dir=memory_directory(IMAGES)))
    try:
        if images is not None:
            _share(images.data, folder / DATA)
        daemon = Daemon(folder, prefix, socket)
        try:
            yield daemon
        finally:
            try:
                if daemon.was_killed:
                    daemon.start()  # only a dockerd ends the containers that it has left
            finally:
                daemon.stop()
    finally:
        for mounted in _mounts_below(folder):
            subprocess.run(["umount", "--lazy", mounted], check=False)
        shutil.rmtree(folder)


def require_dockerd() -> None:
    if os.geteuid() != 0 or missing(["dockerd"]):
        give_up("no Docker Engine answers, and none can be started: that needs root and dockerd (docker.io)")


def _share(data: Path, other: Path) -> None:
    """Make a folder of data that has the images of another: hard links to their files, which no Engine changes, and a
    copy of the index."""
    other.mkdir()
    subprocess.run(["cp", "--archive", "--link", data / "overlay2", other], check=True)
    subprocess.run(["cp", "--archive", data / "image", other], check=True)


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
