"""Who gets through to the page."""

from __future__ import annotations

import re

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message

from orchestrator.serve.guard import HEADERS, Guard, cookie_of, is_own_host

TOKEN = "right-" + "x" * 37
READS = cookie_of(TOKEN)
COOKIE = {"cookie": f"edgebed-8000={READS}"}
HOST = {"host": "127.0.0.1:8000"}


async def _seen(request: Request) -> Response:
    return PlainTextResponse("seen")


KEY = "key-" + "y" * 39
APP = Starlette(routes=[Route("/{rest:path}", _seen, methods=["GET", "POST"])])
GUARD = Guard(APP, TOKEN, 8000, loopback=True)
ACTING = Guard(APP, TOKEN, 8000, loopback=True, key=KEY)
CHANGES = {
    **{**HOST, **COOKIE, "origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"},
    **{"content-type": "application/json", "x-edgebed-key": KEY},
}


async def ask(
    path: str, *headers: tuple[str, str], query: str = "", method: str = "GET", guard: Guard = GUARD
) -> tuple[int, dict[str, str], str]:
    """The code, the headers and the text of the answer."""
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        said.append(message)

    scope = {
        **{"type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path, "raw_path": b""},
        **{"query_string": query.encode(), "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000)},
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }
    await guard(scope, receive, send)
    start, *rest = said
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], found, b"".join(message.get("body", b"") for message in rest).decode()


async def test_the_cookie_lets_through() -> None:
    assert (await ask("/", *HOST.items(), *COOKIE.items()))[::2] == (200, "seen")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cookie": "edgebed-8000=wrong"},
        {"cookie": f"edgebed-8001={READS}"},
        {"cookie": f"edgebed-8000={TOKEN}"},
        {"cookie": "edgebed-8000="},
        {"cookie": "edgebed-8000=é"},
        {"cookie": "\\;=,"},
    ],
)
async def test_no_one_gets_through_without_the_token(headers: dict[str, str]) -> None:
    for path in ("/", "/api/runs", "/page/main.js", "/run/x"):
        code, _, text = await ask(path, *HOST.items(), *headers.items())
        assert code == 403
        assert "seen" not in text


@pytest.mark.parametrize("token", ["", "wrong", READS, TOKEN[:-1], f"{TOKEN}x", "%C3%A9"])
async def test_a_wrong_token_in_the_address_is_refused_even_with_the_cookie(token: str) -> None:
    assert (await ask("/", *HOST.items(), *COOKIE.items(), query=f"token={token}"))[0] == 403


async def test_the_first_visit_moves_the_token_into_a_cookie() -> None:
    code, headers, _ = await ask("/run/a b#1", *HOST.items(), query=f"after=1-2&token={TOKEN}")
    assert (code, headers["location"]) == (303, "/run/a%20b%231?after=1-2")
    assert headers["set-cookie"] == f"edgebed-8000={READS}; HttpOnly; Path=/; SameSite=strict"


@pytest.mark.parametrize("path", ["//elsewhere.example/", "/\\elsewhere.example", "///elsewhere.example"])
async def test_the_first_visit_leads_nowhere_else(path: str) -> None:
    _, headers, _ = await ask(path, *HOST.items(), query=f"token={TOKEN}")
    assert headers["location"].startswith("/elsewhere.example")


@pytest.mark.parametrize(
    "host", ["elsewhere.example:8000", "elsewhere.example", "", "127.0.0.1.elsewhere.example", "192.0.2.1"]
)
async def test_a_name_that_was_made_to_lead_here_is_refused(host: str) -> None:
    assert (await ask("/", ("host", host), *COOKIE.items()))[0] == 403
    assert (await ask("/", ("host", host), query=f"token={TOKEN}"))[0] == 403


async def test_a_request_has_one_host() -> None:
    assert (await ask("/", *COOKIE.items()))[0] == 403
    assert (await ask("/", *HOST.items(), *HOST.items(), *COOKIE.items()))[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://elsewhere.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:8000"},
        {"origin": "http://127.0.0.1:9000"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
async def test_pages_from_elsewhere_are_refused(headers: dict[str, str]) -> None:
    assert (await ask("/api/runs", *HOST.items(), *COOKIE.items(), *headers.items()))[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    ],
)
async def test_its_own_pages_and_followed_links_are_not(headers: dict[str, str]) -> None:
    assert (await ask("/", *HOST.items(), *COOKIE.items(), *headers.items()))[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_nothing_can_be_changed(method: str) -> None:
    assert (await ask("/", *HOST.items(), *COOKIE.items(), method=method))[0] == 405


async def test_its_own_page_changes_what_has_a_key() -> None:
    said = await ask("/api/act", *CHANGES.items(), method="POST", guard=ACTING)
    assert said[::2] == (200, "seen")
    old = {name: value for name, value in CHANGES.items() if name != "sec-fetch-site"}  # no secure context
    assert (await ask("/api/act", *old.items(), method="POST", guard=ACTING))[0] == 200
    assert (await ask("/api/act", *CHANGES.items(), method="POST"))[0] == 405
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert (await ask("/api/act", *CHANGES.items(), method=method, guard=ACTING))[0] == 405


@pytest.mark.parametrize(
    "headers",
    [
        {"cookie": None},
        {"cookie": "edgebed-8000=wrong"},
        {"host": "elsewhere.example:8000"},
        {"host": "elsewhere.example:8000", "origin": "http://elsewhere.example:8000"},
        {"origin": None},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9000"},
        {"origin": "http://elsewhere.example"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "none"},
        {"content-type": None},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"x-edgebed-key": None},
        {"x-edgebed-key": TOKEN},
        {"x-edgebed-key": ""},
        {"x-edgebed-key": "\xe9"},
    ],
)
async def test_no_one_else_changes_anything(headers: dict[str, str | None]) -> None:
    changed = {name: value for name, value in {**CHANGES, **headers}.items() if value is not None}
    code, _, text = await ask("/api/act", *changed.items(), method="POST", guard=ACTING)
    assert (code, "seen" in text) == (403, False)


async def test_the_key_comes_behind_the_first_address_and_in_no_cookie() -> None:
    _, headers, _ = await ask("/run/a", *HOST.items(), query=f"token={TOKEN}", guard=ACTING)
    assert headers["location"] == f"/run/a#key={KEY}"
    assert not {KEY, TOKEN} & set(re.split("[=; ]", headers["set-cookie"]))


async def test_every_answer_has_the_headers() -> None:
    for headers in ({}, COOKIE, {"origin": "null"}):
        _, found, _ = await ask("/", *HOST.items(), *headers.items())
        assert {name.lower(): value for name, value in HEADERS.items()}.items() <= found.items()
    policy = dict(part.split(" ", 1) for part in HEADERS["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {source for sources in policy.values() for source in sources.split()} <= {"'none'", "'self'", "data:"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "[::1]:8000", "[::1]", "localhost", "localhost:99", "127.1.2.3:5"]
)
def test_names_of_this_host(host: str) -> None:
    assert is_own_host(host, loopback=True)


def test_beyond_loopback_addresses_are_named_too() -> None:
    assert is_own_host("192.0.2.1:8000", loopback=False)
    assert not is_own_host("elsewhere.example:8000", loopback=False)
