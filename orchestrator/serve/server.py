"""The server of the page: an address with a token, and uvicorn in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.errors import PlaceError
from orchestrator.serve.app import make_app

NICE = 10  # of a process that serves: runs come first
GRACE = 1  # s for open streams at the end
CONNECTIONS = 1000
REQUEST_TIMEOUT = 5.0  # s from a connection to its first whole request; a browser may connect in advance


class Server:
    """A server of the runs in a folder, from the start of a ``with`` to its end. PlaceError if the address cannot be
    used. ``port`` 0 is any free one. The folder need not exist yet. ``faults``: whether the page can make
    faults and set paces; by default if it listens on a loopback address."""

    def __init__(
        self,
        folder: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        faults: bool | None = None,
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self._closing = threading.Event()
        self._socket = _listening(host, port)
        self.host, self.port = self._socket.getsockname()[:2]
        loopback = ipaddress.ip_address(self.host).is_loopback
        self.key: str | None = None
        if acts(self.host, faults):
            self.key = secrets.token_urlsafe(32)
        app = make_app(
            folder,
            self.token,
            self.port,
            self._closing,
            loopback=loopback,
            key=self.key,
        )
        config = uvicorn.Config(
            app,
            http=PromptProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=GRACE,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run,
            args=([self._socket],),
            name="page",
            daemon=True,
        )

    def address_of(self, path: str = "/") -> str:
        """The address of one of its pages, with the token. A server on all addresses has the name of this machine."""
        if ipaddress.ip_address(self.host).is_unspecified:
            host = socket.gethostname()
        else:
            host = self.host
        if ":" in host:  # IPv6
            host = f"[{host}]"
        return f"http://{host}:{self.port}{path}?token={self.token}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.set()
        self._server.should_exit = True
        self._thread.join()


class PromptProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection without a request, so that idle ones do not use up those of users."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(REQUEST_TIMEOUT, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.cycle is None:
            self.transport.abort()


def serve(
    folder: Path,
    host: str,
    port: int,
    tell: Callable[[str], object],
    *,
    faults: bool | None = None,
) -> None:
    """Serve the runs in a folder until Ctrl-C. ``tell`` receives the address as soon as it can be opened."""
    os.nice(NICE)
    with Server(folder, host, port, faults=faults) as server, contextlib.suppress(KeyboardInterrupt):
        tell(server.address_of())
        threading.Event().wait()


def acts(host: str, faults: bool | None) -> bool:
    """Whether a page that listens on an address can make faults: as ``faults`` says, by default on loopback only."""
    if faults is None:
        return ipaddress.ip_address(host).is_loopback
    return faults


def _listening(host: str, port: int) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()
        except OSError:
            listening.close()
            raise
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no host can have that name"
        raise PlaceError(f"nothing can listen on {host}, port {port} ({why}): choose another") from None
    return listening
