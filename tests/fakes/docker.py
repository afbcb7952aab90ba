"""Fakes of the Docker Engine: of the SDK's client, of `Engine`, and of the Engine's API for images."""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from docker.errors import ImageNotFound, NotFound
from requests import Response

from node.messaging.wire import PROTOCOL
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.docker.node_image import PROTOCOL_LABEL
from orchestrator.drivers.docker.transfers import Loading, Pulling
from orchestrator.drivers.hosts.agents.channel import PIECE
from orchestrator.errors import DriverError, HostError

PATIENCE = 20.0  # s
PIECES = 30  # of each image that is saved

IMAGE = {
    "Architecture": "amd64",
    "Config": {"Labels": {"org.edgebed.protocol": str(PROTOCOL), "org.edgebed.version": "0.1.0"}, "User": "1000:1000"},
}
FACTS = {
    "OSType": "linux",
    "KernelVersion": os.uname().release,
    "Architecture": "x86_64",
    "CpuCfsQuota": True,
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
}


def answer(status: int) -> Response:
    """An answer of the Engine's to a request."""
    made = Response()
    made.status_code = status
    return made


class Stream:
    """What the SDK gives for events and for output: an iterator that another thread can close."""

    def __init__(self) -> None:
        self._pieces: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._response = SimpleNamespace(close=lambda: None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pieces.get, None)

    def put(self, piece: Any) -> None:
        self._pieces.put(piece)

    def close(self) -> None:
        self._pieces.put(None)


class FakeContainer:
    """A container whose process is this one, or none where it is to end at once."""

    def __init__(self, client: FakeDockerClient, number: int, options: dict[str, Any]) -> None:
        self.id, self.name, self.options = f"{number:064x}", options["name"], options
        self.labels = options["labels"]
        self.attrs: dict[str, Any] = {"State": {"Pid": 0}}
        self.signals: list[str] = []
        self._client = client
        self._output = Stream()

    def attach(self, **_: Any) -> Stream:
        return self._output

    def attach_socket(self, **_: Any) -> io.BytesIO:
        return io.BytesIO()

    def start(self) -> None:
        self._client.starting.set()
        self._client.may_start.wait(5)
        if self._client.refuses is not None:
            raise self._client.refuses
        self._output.put(b"hello\n")
        self.attrs["State"]["Pid"] = 0 if self._client.ends_at_once else os.getpid()
        if self._client.ends_at_once:
            self.die(1)

    def reload(self) -> None:
        pass

    def kill(self, signal: str) -> None:
        self.signals.append(signal)
        if self.id in self._client.gone:
            raise NotFound("gone", answer(404), "no such container")
        if signal == "SIGKILL":
            self.die(137)

    def pause(self) -> None:
        self.signals.append("pause")

    def unpause(self) -> None:
        self.signals.append("unpause")

    def die(self, code: int) -> None:
        self._client.gone.add(self.id)
        attributes = {"exitCode": str(code), **self.labels}
        self._client.stream.put({"Action": "die", "Actor": {"ID": self.id, "Attributes": attributes}})
        self._output.close()


class FakeDockerClient:
    """As much of `docker.DockerClient` as the driver uses."""

    def __init__(self) -> None:
        self.facts = dict(FACTS)
        self.known: dict[str, Any] = {"edgebed-node": IMAGE}
        self.made: list[FakeContainer] = []
        self.gone: set[str] = set()
        self.stream = Stream()
        self.ends_at_once = False
        self.refuses: Exception | None = None
        self.starting, self.may_start = threading.Event(), threading.Event()
        self.may_start.set()
        self.images = SimpleNamespace(get=self._image)
        self.containers = SimpleNamespace(create=self._create, list=self._list)
        self.api = SimpleNamespace(remove_container=self._remove)

    def info(self) -> dict[str, Any]:
        return self.facts

    def events(self, **_: Any) -> Stream:
        return self.stream

    def close(self) -> None:
        pass

    def _image(self, name: str) -> Any:
        if name not in self.known:
            raise ImageNotFound("none", answer(404), "no such image")
        return SimpleNamespace(attrs=self.known[name])

    def _create(self, image: str, command: list[str], **options: Any) -> FakeContainer:
        self.made.append(FakeContainer(self, len(self.made) + 1, {"image": image, "command": command, **options}))
        return self.made[-1]

    def _list(self, **_: Any) -> list[FakeContainer]:
        return [each for each in self.made if each.id not in self.gone]

    def _remove(self, container: str, **_: Any) -> None:
        for each in self.made:
            if each.id == container:
                each.die(137)


def image(layer: str) -> dict[str, Any]:
    return {
        "Id": f"sha256:{layer}",
        "Architecture": "amd64",
        "RootFS": {"Layers": [layer]},
        "Size": 1000 * PIECES,
        "Config": {"Labels": {PROTOCOL_LABEL: str(PROTOCOL)}},
    }


class FakeEngine:
    """An Engine with images by name. What it loads becomes an image of one layer. ``reading``: cleared while it
    takes nothing. ``taking``: it has been given something. ``full``: it has no room."""

    def __init__(self, **images: dict[str, Any]) -> None:
        self.images = images
        self.reading, self.taking = threading.Event(), threading.Event()
        self.reading.set()
        self.full = False
        self.loading: list[bytes] = []
        self.closed = 0
        self.registry: dict[str, Any] = {}
        self.looked_up: list[str] = []
        self.pulled: list[tuple[str, str, str | None]] = []

    def connected(self) -> Engine:
        return cast(Engine, self)

    def image(self, name: str) -> dict[str, Any] | None:
        return self.images.get(name)

    def tag(self, image: str, name: str) -> None:
        self.images[name] = self.images[image]

    def close(self) -> None:
        self.closed += 1

    def in_registry(self, name: str) -> dict[str, Any]:
        self.looked_up.append(name)
        if not self.registry:
            raise DriverError("the registry is away")
        return self.registry

    def login(self, name: str) -> str | None:
        return "who I am"

    def load(self, name: str) -> Loading:
        self.loading.clear()
        return cast(Loading, FakeLoading(self))

    def pull(self, repository: str, digest: str, login: str | None) -> Pulling:
        self.pulled.append((repository, digest, login))
        return cast(Pulling, FakePulling(self, f"{repository}@{digest}"))


class FakeLoading:
    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine

    def add(self, data: bytes) -> None:
        self._engine.taking.set()
        assert self._engine.reading.wait(PATIENCE)
        if self._engine.full:
            raise HostError("loading: the disk is full")
        self._engine.loading.append(data)

    def finish(self) -> str:
        layer = b"".join(self._engine.loading).decode()[:1]
        self._engine.images[f"sha256:{layer}"] = image(layer)
        return f"sha256:{layer}"

    def close(self) -> None:
        self._engine.closed += 1


class FakePulling:
    def __init__(self, engine: FakeEngine, reference: str) -> None:
        self._engine, self._reference = engine, reference

    def finish(self, tell: Callable[[int, int], None]) -> None:
        tell(30, 100)
        assert self._engine.reading.wait(PATIENCE)
        if self._engine.full:
            raise HostError("pulling: the disk is full")
        self._engine.images[self._reference] = image("p") | {"RepoDigests": [self._reference]}

    def close(self) -> None:
        pass


class FakeSaving:
    """Each piece has the image's layer."""

    def __init__(self, id: str) -> None:
        self._piece, self.left = id[-1:].encode() * 1000, PIECES
        self.closed = False
        SAVINGS.append(self)

    def read(self, size: int) -> bytes:
        assert size == PIECE
        if not self.left:
            return b""
        self.left -= 1
        return self._piece

    def close(self) -> None:
        self.closed = True


SAVINGS: list[FakeSaving] = []


class FakeImageServer:
    """``saved`` is what it saves as any image. What it has loaded is in ``loaded``, what it is asked to pull in
    ``pulls``, each with the login. ``answers`` are the lines that it tells after a load or a pull. ``full``: it refuses
    a load after its first bytes. ``broken`` counts the loads that ended early."""

    def __init__(self) -> None:
        self.saved = b""
        self.loaded: list[bytes] = []
        self.pulls: list[tuple[str, str | None]] = []
        self.answers: list[dict[str, Any]] = [{"stream": "Loaded image ID: sha256:1\n"}]
        self.full = False
        self.broken = 0


@contextlib.contextmanager
def image_server(socket: Path) -> Iterator[FakeImageServer]:
    """An Engine that listens at ``socket``."""
    engine = FakeImageServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._say(200, [engine.saved[:7], engine.saved[7:]])

        def do_POST(self) -> None:
            if self.path.startswith("/images/create"):
                engine.pulls.append((self.path, self.headers["X-Registry-Auth"]))
            elif engine.full:
                self.rfile.readline()
                self._say(500, [json.dumps({"message": "write /layer.tar: no space left on device"}).encode()])
                return
            elif (data := self._chunks()) is None:
                engine.broken += 1
                return
            else:
                engine.loaded.append(data)
            self._say(200, [json.dumps(each).encode() + b"\r\n" for each in engine.answers])

        def _chunks(self) -> bytes | None:
            """The body; None if it ends early."""
            data = b""
            while line := self.rfile.readline():
                if not (size := int(line, 16)):
                    return data
                data += self.rfile.read(size)
                self.rfile.readline()
            return None

        def _say(self, status: int, parts: list[bytes]) -> None:
            self.close_connection = True
            self.send_response(status)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in filter(None, parts):
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

        def address_string(self) -> str:
            return "test"

        def log_message(self, *_: Any) -> None:
            pass

    with socketserver.ThreadingUnixStreamServer(str(socket), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield engine
        finally:
            server.shutdown()
            thread.join()
