"""Access to the page: only with the token, and only from a page of this server itself.

Requests of other sites' pages are refused by their Origin (RFC 6454, section 7) and by Sec-Fetch-Site (W3C Fetch
Metadata). Foreign names that resolve to this host (DNS rebinding) are refused by the Host (RFC 9110, section 7.2). The
first visit has the token in the URL. The answer sets a read-only cookie and redirects to the URL without the token. The
token cannot be computed from the cookie.

To change a run, a request needs a second secret, the key. It comes with that first answer, behind the "#" of the
address, and the page keeps it in its localStorage, which belongs to one port of one host. A cookie does not: browsers
send it to every port. A request with the key has a header of its own, so no form and no image can make one (CSRF).
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Parameter = tuple[str, str]  # of a query: name, value
KEY = "x-edgebed-key"
NO_TOKEN = "open the address that `serve` printed: it has the token\n"
NO_KEY = "only the page itself changes a run: open the address that `serve` printed\n"
OTHER_NAME = "this server does not answer to that name\n"
READS = "this server is for reading\n"


class Guard:
    """Passes only allowed requests on to ``app``, and adds ``HEADERS`` to every answer unless it has them already.

    ``port`` is that of the server: cookies of one host are sent to all its ports, so the cookie is named after it.
    ``loopback``: the server listens on a loopback address, so that no other may be named as its host. ``key``: what a
    request that changes a run must have in the header ``KEY``; without a key, all requests can only read.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        port: int,
        *,
        loopback: bool,
        key: str | None = None,
    ) -> None:
        self._app = app
        self._token = token
        self._cookie = f"edgebed-{port}"
        self._reads = cookie_of(token)
        self._loopback = loopback
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        handler = self._answer(scope) or self._app
        await handler(scope, receive, sealed)

    def _answer(self, scope: Scope) -> Response | None:
        """The answer to a request that does not get through."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return PlainTextResponse(OTHER_NAME, 403)
        (host,) = hosts
        if not is_own_host(host, loopback=self._loopback):
            return PlainTextResponse(OTHER_NAME, 403)
        if not is_own_page(headers, host):
            return PlainTextResponse("this server does not answer to other pages\n", 403)
        if scope["method"] == "POST" and self._key is not None:
            if self._may_change(headers):
                return None
            return PlainTextResponse(NO_KEY, 403)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse(READS, 405, {"Allow": "GET, HEAD"})
        query = scope["query_string"].decode("latin-1")
        parameters = parse_qsl(query, keep_blank_values=True)
        tokens = [value for name, value in parameters if name == "token"]
        if tokens:
            if not _same(tokens[0], self._token):
                return PlainTextResponse(NO_TOKEN, 403)
            rest = [parameter for parameter in parameters if parameter[0] != "token"]
            return self._first_answer(scope["path"], rest)
        if _same(_cookie(headers, self._cookie), self._reads):
            return None
        return PlainTextResponse(NO_TOKEN, 403)

    def _first_answer(self, path: str, parameters: list[Parameter]) -> Response:
        """The answer to a visit with the token: it sets the cookie, and redirects to the address without the token."""
        # A browser takes two slashes for the name of another server.
        location = quote("/" + path.lstrip("/\\"))
        if parameters:
            location += f"?{urlencode(parameters)}"
        if self._key is not None:
            location += f"#key={self._key}"
        answer = RedirectResponse(location, 303)
        answer.set_cookie(
            self._cookie,
            self._reads,
            httponly=True,
            samesite="strict",
            path="/",
        )
        return answer

    def _may_change(self, headers: Headers) -> bool:
        """Whether a request, which no other page has made, has everything that only this page can send."""
        return (
            _same(_cookie(headers, self._cookie), self._reads)
            and "origin" in headers
            and headers.get("sec-fetch-site", "same-origin") == "same-origin"
            and headers.get("content-type") == "application/json"
            and self._key is not None
            and _same(headers.get(KEY, ""), self._key)
        )


def cookie_of(token: str) -> str:
    """The value of the cookie that a token gives."""
    digest = hmac.new(token.encode(), b"cookie", "sha256")
    return digest.hexdigest()


def _same(given: str, secret: str) -> bool:
    encoded = given.encode("utf-8", "replace")
    return hmac.compare_digest(encoded, secret.encode())


def is_own_host(host: str, *, loopback: bool) -> bool:
    """Whether a Host header names this server: by an address, which no DNS server can redirect, by localhost, or by
    this machine's own name. Any port: it may have been forwarded."""
    before, _, last = host.rpartition(":")
    if last.isdigit():
        name = before
    else:
        name = host
    try:
        address = ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        if name == "localhost":
            return True
        return not loopback and name.lower() == socket.gethostname().lower()
    return address.is_loopback or not loopback


def is_own_page(headers: Mapping[str, str], host: str) -> bool:
    """Whether a request comes from a page of this server, from no page, or from a link that the user followed."""
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return False
    navigates = headers.get("sec-fetch-mode") == "navigate"
    if navigates and headers.get("sec-fetch-dest") == "document":
        return True
    return headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _cookie(headers: Headers, name: str) -> str:
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    cookie = cookies.get(name)
    return cookie.value if cookie else ""
