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
CONTAINERD = """\
version = 2
root = "{data}/containerd"
state = "{execution}/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]

[grpc]
address = "{address}"

[plugins."io.containerd.gc.v1.scheduler"]
pause_threshold = 0.0
"""
"""Without a threshold its garbage collector wakes once a second. With the default one it wakes several hundred times
where collecting takes no time, and each Engine takes 2 % of a processor. That containerd which a dockerd starts itself
cannot be configured."""
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
        """Start it and its containerd, also after ``kill``, and wait until it answers."""
        address, config = self.folder / "containerd.sock", self.folder / "containerd.toml"
        config.write_text(CONTAINERD.format(data=self.data, execution=self.folder / EXEC, address=address))
        self._containerd = self._launch(["containerd", "--config", config])
        places = {"--data-root": DATA, "--exec-root": EXEC, "--pidfile": "pid"}
        options = [word for name, place in places.items() for word in (name, self.folder / place)]
        options += ["--containerd", address]
        options += ["--bridge", "none", "--iptables=false", "--ip6tables=false"]
        options += ["--insecure-registry", UNDERLAYS]
        self._process = self._launch(["dockerd", *self._hosts, *options])
        wait_for(self._answers, "dockerd", START)

    def _launch(self, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        until_killed = ["setpriv", "--pdeathsig", "TERM"]  # should the tests be killed, it ends too
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen([*until_killed, *self._prefix, *command], stdout=log, stderr=log)

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
        """Kill it and its containerd. Containers stay until ``start`` ends them."""
        for process in (self._process, self._containerd):
            process.kill()
            process.wait()

    def stop(self) -> None:
        for process in (self._process, self._containerd):
            process.terminate()
            process.wait(STOP)

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
