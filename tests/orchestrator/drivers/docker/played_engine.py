"""The part of a Docker Engine's API by which images come and go, in a thread of the test."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any


class PlayedEngine:
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
def played_engine(socket: Path) -> Iterator[PlayedEngine]:
    """An Engine that listens at ``socket``."""
    engine = PlayedEngine()

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
