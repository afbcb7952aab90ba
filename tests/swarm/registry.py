"""An image registry on a host of a test: Debian's package docker-registry, without encryption and without logins."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import docker

from tests.e2e.harness import memory_directory, wait_for
from tests.programs import give_up, missing
from tests.swarm.engines import Engines

PORT = 5000
SIZE = 1 << 29  # bytes of its images
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "{address}"}}
"""


class Pushed(NamedTuple):
    """An image in a registry; ``size`` is that of its manifest, in bytes."""

    digest: str
    size: int


class Registry:
    """The registry on the manager. Hosts reach it at ``address``."""

    def __init__(self, engines: Engines) -> None:
        self._host, self._lab = engines.manager, engines.underlay.lab
        self.address = f"{self._host.underlay}:{PORT}"

    def push(self, client: docker.DockerClient, image: str, name: str) -> Pushed:
        """Give the registry an image of an Engine under this name."""
        repository = f"{self.address}/{name}"
        client.images.get(image).tag(repository)
        told = list(client.images.push(repository, "latest", stream=True, decode=True))
        client.images.remove(f"{repository}:latest")
        (pushed,) = [each["aux"] for each in told if "aux" in each] or [told]
        return Pushed(pushed["Digest"], pushed["Size"])

    def unite(self, name: str, images: Mapping[str, Pushed]) -> None:
        """Have a name mean these images of it, by architecture."""
        manifests = [
            {
                "mediaType": MANIFEST,
                "size": image.size,
                "digest": image.digest,
                "platform": {"architecture": architecture, "os": "linux"},
            }
            for architecture, image in images.items()
        ]
        united = {"schemaVersion": 2, "mediaType": LIST, "manifests": manifests}
        assert self.ask("PUT", f"/v2/{name}/manifests/latest", json.dumps(united), {"Content-Type": LIST}) == 201

    def ask(self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] = {}) -> int:
        """The status of the registry's answer."""
        connection = http.client.HTTPConnection(self.address)
        with contextlib.closing(connection), self._lab.nodes[self._host.name].socket(socket.SOCK_STREAM) as sock:
            sock.connect((self._host.underlay, PORT))
            connection.sock = sock
            connection.request(method, path, body, dict(headers))
            return connection.getresponse().status

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask("GET", "/v2/") == 200
        return False


@contextlib.contextmanager
def registry(engines: Engines) -> Iterator[Registry]:
    """A registry on the manager. Where none is installed the test is skipped, and fails in CI."""
    if lacking := missing(["docker-registry"]):
        give_up(lacking)
    with tempfile.TemporaryDirectory(prefix="edgebed-", dir=memory_directory(SIZE)) as folder:
        there = Registry(engines)
        config = Path(folder) / "config.yml"
        config.write_text(CONFIG.format(folder=folder, address=there.address))
        until_killed = ["setpriv", "--pdeathsig", "KILL"]  # should the tests be killed, it goes too
        command = [*until_killed, *engines.manager.enter(), "docker-registry", "serve", str(config)]
        with (Path(folder) / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                wait_for(lambda: there.answers() or None, "the registry")
                yield there
            finally:
                process.terminate()
