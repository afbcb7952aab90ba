"""Hostile requests to the page."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from orchestrator.serve.app import make_app
from orchestrator.serve.guard import cookie_of
from tests.campaign.hostile.material import Draw, fields, nested, texts
from tests.campaign.hostile.places import OTHER, RUN, SECRET
from tests.campaign.hostile.watch import BrokenError, strict

PATHS = ["/", "/compare", "/run/", "/page/", "/api/runs", "/api/compare", "/report/", "/api/plan/", "/api/node/"]
PATHS += ["/api/link/", "/api/fidelity/", "/api/faults/", "/api/stream/", "/api/act/pace/", "/api/act/inject/", "/x"]
NAMES = [RUN, OTHER, "", "..", "../secret", "whole/..", "whole/../secret", "%2e%2e", "\x00", "x" * 5000, "a/b/c", "é"]
TOKEN, KEY, PORT = "right", "key", 8000
GOOD = {"host": f"127.0.0.1:{PORT}", "cookie": f"edgebed-{PORT}={cookie_of(TOKEN)}"}
ACTING = {"origin": f"http://127.0.0.1:{PORT}", "content-type": "application/json", "x-edgebed-key": KEY}


@st.composite
def requests(draw: Draw) -> tuple[str, str, str, dict[str, str], bytes]:
    """Method, path, query, headers and body. Most are let through to the application."""
    query = st.dictionaries(
        st.sampled_from(["run", "sweep", "node", "source", "target", "over", "after", "token"]), texts
    )
    odd = draw(st.dictionaries(st.sampled_from([*GOOD, *ACTING, "last-event-id", "range"]), texts, max_size=1))
    body = json.dumps(draw(fields("pace", "action", "node", "target", "for", "factor", "loss", "at", "round")))
    asked = "&".join(f"{key}={value}" for key, value in draw(query).items())
    method = draw(st.sampled_from(["GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "x"]))
    path = draw(st.sampled_from(PATHS)) + draw(st.sampled_from(NAMES) | texts)
    return method, path, asked, {**GOOD, **ACTING, **odd}, draw(st.just(body.encode()) | nested().map(str.encode))


def feed_request(place: Path, given: tuple[str, str, str, dict[str, str], bytes]) -> None:
    ask(place.parent, *given[1:], method=given[0])


def ask(
    runs: Path, path: str, query: str = "", headers: dict[str, str] = GOOD, body: bytes = b"", method: str = "GET"
) -> None:
    """Ask the page for something. BrokenError unless it answers in order, with nothing from outside the folder."""
    said: list[Any] = []
    asked = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        return next(asked, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        said.append(message)

    path, _, own = path.partition("?")
    scope = {
        **{"type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path, "raw_path": b""},
        **{"query_string": (query or own).encode("utf-8", "surrogatepass"), "root_path": ""},
        **{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT)},
        "headers": [(name.encode(), value.encode("utf-8", "surrogatepass")) for name, value in headers.items()],
    }
    closing = threading.Event()
    closing.set()
    app: Any = make_app(runs, TOKEN, PORT, closing, loopback=True, key=KEY)
    asyncio.run(app(scope, receive, send))
    start, content = said[0], b"".join(message.get("body", b"") for message in said[1:])
    if start["status"] >= 500 or SECRET.encode() in content:
        raise BrokenError(f"{method} {path}: {start['status']} {content[:200]!r}")
    if (b"content-type", b"application/json") in start["headers"] and method != "HEAD":
        strict(content.decode())
