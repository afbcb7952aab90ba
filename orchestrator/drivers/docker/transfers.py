"""Images on their way to and from the Docker Engine of this host: `docker save`, `docker load` and `docker pull`.

Each is one request to the Engine's API. The SDK would need a thread that waits for the next piece, and could not end a
request that waits. All methods block. ``close`` may be called at any time, also from another thread: it ends the
request, and what was not whole is discarded by the Engine.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

from orchestrator.errors import DriverError, HostError
from orchestrator.host.docker_socket import address

PATIENCE = 900.0  # s for the next byte: before the first one, an Engine writes the whole image to its disk
LOADED = re.compile(r"Loaded image(?: ID)?: (\S+)")
NO_SPACE = "no space left on device"


class _EngineConnection(http.client.HTTPConnection):
    auto_open = 0  # what was closed stays so

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(address().removeprefix("unix://"))


class _Request:
    """A request that has started."""

    def __init__(
        self,
        doing: str,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        self._doing = doing
        self._connection = _EngineConnection("docker")
        self._response: http.client.HTTPResponse | None = None
        with self._plain_words():
            self._connection.connect()
            self._connection.putrequest(method, path)
            for name, value in (headers or {}).items():
                self._connection.putheader(name, value)
            self._connection.endheaders()
        self._socket = self._connection.sock  # the connection drops it when an answer is the last one

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits
        self._connection.close()
        if self._response is not None:
            self._response.close()

    @contextlib.contextmanager
    def _plain_words(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise DriverError(f"{self._doing}: the Docker Engine does not answer ({error!r})") from None

    def _answer(self) -> http.client.HTTPResponse:
        """The start of the answer. DriverError, or HostError without room on the disk, if it is a refusal."""
        if self._response is None:
            with self._plain_words():
                self._response = self._connection.getresponse()
                if self._response.status >= http.client.BAD_REQUEST:
                    body = self._response.read()
                    raise self._refusal(body.decode(errors="replace"))
        return self._response

    def _messages(self) -> Iterator[dict[str, Any]]:
        """The messages of the answer, to its end. Raises as `_answer` does."""
        answer = self._answer()
        with self._plain_words():
            for line in answer:
                if not line.strip():
                    continue
                message: dict[str, Any] = json.loads(line)
                if "error" in message:
                    raise self._refusal(line.decode(errors="replace"))
                yield message

    def _refusal(self, answer: str) -> DriverError | HostError:
        reason = answer
        with contextlib.suppress(ValueError, AttributeError):
            fields = json.loads(answer)
            reason = fields.get("message") or fields.get("error") or answer
        if NO_SPACE in reason:
            return HostError(f"{self._doing}: the disk of the Docker Engine is full")
        return DriverError(f"{self._doing}: the Docker Engine refused: {reason.strip()}")


class Saving(_Request):
    """An image, by its id or name, that the Engine saves."""

    def __init__(self, image: str) -> None:
        super().__init__(f"saving the image {image}", "GET", f"/images/{image}/get")

    def read(self, size: int) -> bytes:
        """The next bytes, at most ``size``; none at the end."""
        answer = self._answer()
        with self._plain_words():
            return answer.read(size)


class Loading(_Request):
    """An image that the Engine loads. The Engine has it when ``finish`` has returned, and not before."""

    def __init__(self, image: str) -> None:
        """``image`` is its name, for messages."""
        headers = {"Content-Type": "application/x-tar", "Transfer-Encoding": "chunked"}
        super().__init__(f"loading the image {image}", "POST", "/images/load", headers)

    def add(self, data: bytes) -> None:
        size = f"{len(data):x}\r\n"
        try:
            for part in (size.encode(), data, b"\r\n"):
                self._connection.send(part)
        except OSError:  # the Engine has stopped reading, and has sent the reason
            for _ in self._messages():
                pass
            raise DriverError(f"{self._doing}: the Docker Engine has stopped reading") from None

    def finish(self) -> str:
        """Wait until the Engine has the image. Returns its id or name."""
        with self._plain_words():
            self._connection.send(b"0\r\n\r\n")
        loaded = []
        for message in self._messages():
            match = LOADED.search(str(message.get("stream", "")))
            if match is not None:
                loaded.append(match[1])
        if len(loaded) != 1:
            raise DriverError(f"{self._doing}: the Docker Engine loaded {len(loaded)} images")
        return loaded[0]


class Pulling(_Request):
    """An image that the Engine pulls by its digest. ``login`` is a header as `Engine.login` gives it."""

    def __init__(self, repository: str, digest: str, login: str | None) -> None:
        query = urlencode({"fromImage": repository, "tag": digest})
        headers = {"X-Registry-Auth": login} if login else {}
        headers["Content-Length"] = "0"
        super().__init__(
            f"pulling the image {repository}",
            "POST",
            f"/images/create?{query}",
            headers,
        )

    def finish(self, tell: Callable[[int, int], None]) -> None:
        """Wait for the end. ``tell`` receives the bytes that are done, and those of all known layers."""
        layers: dict[str, tuple[int, int]] = {}
        for message in self._messages():
            status = message.get("status")
            progress = message.get("progressDetail") or {}
            if status == "Downloading" and "total" in progress:
                layers[message["id"]] = (progress["current"], progress["total"])
            elif status == "Download complete" and message.get("id") in layers:
                layer = message["id"]
                _, size = layers[layer]
                layers[layer] = (size, size)
            done = sum(current for current, _ in layers.values())
            known = sum(size for _, size in layers.values())
            tell(done, known)
