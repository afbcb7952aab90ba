"""The page over HTTP: files of the package, JSON values, and one stream of events for each run that is watched."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from node.catalogue.json_text import strict_json
from node.files import read_untrusted
from orchestrator.errors import MistakeError, OrchestratorError, RecordError
from orchestrator.record.directory import RunDirectory
from orchestrator.record.schema import LONGEST_DOCUMENT
from orchestrator.report.template import script, style
from orchestrator.results.history import History
from orchestrator.results.listing import Listing, find, run_paths
from orchestrator.serve.acting import LONGEST, OPERATIONS, reads_only
from orchestrator.serve.comparison import cases_of_sweep, several
from orchestrator.serve.detail import fidelity_detail, link_detail, node_detail
from orchestrator.serve.following import Following
from orchestrator.serve.guard import Guard
from orchestrator.serve.present import planned
from orchestrator.verbs.results.faults import as_rules

TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
MOST = 200  # runs side by side
OVER = {"seeds": True, "runs": False}  # whether cases are drawn over seeds, by the parameter "over"
RETRY = 1000  # ms after which a browser connects again

Json = dict[str, Any]
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
Maker = Callable[[Request], Json]
View = Callable[[RunDirectory, Request], Json]

REPORT = {
    "Content-Security-Policy": (
        "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}
"""The headers of a report. It is one file with script and style in it. In a sandbox it belongs to no server, so it can
neither read runs nor change them."""


def make_app(
    folder: Path,
    token: str,
    port: int,
    closing: threading.Event,
    *,
    loopback: bool,
    key: str | None,
) -> ASGIApp:
    """The application that shows the runs of a folder to a browser with the token. Streams end when ``closing`` is set.
    ``loopback``, ``key``: see `Guard`. Without a key, the page cannot change a run."""
    following = Following(closing)
    routes = [
        *_page(),
        *_all_runs(folder),
        *_one_run(folder, following, acts=key is not None),
        *_watching(folder, following),
        *_acting(folder),
    ]
    app = Starlette(routes=routes)
    return Guard(app, token, port, loopback=loopback, key=key)


def _page() -> list[Route]:
    """The files of the page. It draws with the report's own script and style."""
    parts: dict[str, bytes] = {}
    folder = files("orchestrator.serve") / "page"
    for path in folder.iterdir():
        if path.is_file():
            parts[path.name] = path.read_bytes()
    parts["figures.js"] = script().encode()
    parts["report.css"] = style().encode()

    async def page(request: Request) -> Response:
        return Response(parts["index.html"], media_type=TYPES[".html"])

    async def part(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in parts:
            return _error("there is no such file", 404)
        media_type = TYPES.get(Path(name).suffix, "text/plain")
        return Response(parts[name], media_type=media_type)

    return [
        Route("/", page),
        Route("/compare", page),
        Route("/run/{run:path}", page),
        Route("/page/{name}", part),
    ]


def _all_runs(folder: Path) -> list[Route]:
    """The list of runs, and several runs side by side."""
    listing = Listing(folder)
    lock = threading.Lock()

    def runs(request: Request) -> Json:
        with lock:
            rows = listing.rows()
        return {"folder": str(folder.resolve()), "runs": rows}

    def compared(request: Request) -> Json:
        requested = request.query_params
        selected = requested.getlist("run")
        names = list(dict.fromkeys(selected))
        named: dict[str, str] = {}
        sweep = requested.get("sweep")
        if sweep:
            named = cases_of_sweep(folder / Path(sweep).name)
            known = [name for name, _ in run_paths(folder)]
            names += sorted(name for name in known if name.startswith(f"{sweep}/"))
        if not 0 < len(names) <= MOST:
            raise RecordError(f"{len(names)} runs are to be compared: choose one to {MOST}")
        directories = {name: find(folder, name) for name in names}
        over = OVER.get(requested.get("over", ""))
        return several(directories, over_seeds=over, named=named)

    return [
        Route("/api/runs", _json(runs)),
        Route("/api/compare", _json(compared)),
    ]


def _one_run(folder: Path, following: Following, *, acts: bool) -> list[Route]:
    """What is known of one run. ``acts``: whether the page can change runs."""

    def plan(directory: RunDirectory, request: Request) -> Json:
        known_plan = following.known_plan(directory)
        with History.open(directory.path, known_plan) as history:
            return {**planned(history), "reads": reads_only(directory, acts=acts)}

    def node(directory: RunDirectory, request: Request) -> Json:
        name = request.query_params.get("node", "")
        return node_detail(directory, name)

    def link(directory: RunDirectory, request: Request) -> Json:
        source = request.query_params.get("source", "")
        target = request.query_params.get("target", "")
        return link_detail(directory, source, target)

    def fidelity(directory: RunDirectory, request: Request) -> Json:
        return fidelity_detail(directory)

    def faults(directory: RunDirectory, request: Request) -> Json:
        with History.open(directory.path) as history:
            return {"yaml": as_rules(history)}

    async def report(request: Request) -> Response:
        try:
            directory = find(folder, request.path_params["run"])
            place = directory.report
            page = await run_in_threadpool(read_untrusted, place, LONGEST_DOCUMENT)
        except OrchestratorError as error:
            return _error(str(error), 404)
        except OSError as error:
            return _error(f"the run has no report that can be read ({error.strerror}): `report RUN` writes it", 404)
        return Response(page, media_type=TYPES[".html"], headers=REPORT)

    routes = [Route("/report/{run:path}", report)]
    for name, view in (
        ("plan", plan),
        ("node", node),
        ("link", link),
        ("fidelity", fidelity),
        ("faults", faults),
    ):
        routes.append(Route(f"/api/{name}/{{run:path}}", _view_of_run(folder, view)))
    return routes


def _view_of_run(folder: Path, view: View) -> Endpoint:
    """The endpoint of a view of the run that the request names."""

    def make(request: Request) -> Json:
        directory = find(folder, request.path_params["run"])
        return view(directory, request)

    return _json(make)


def _watching(folder: Path, following: Following) -> list[Route]:
    """The stream of what is new in a run."""

    async def stream(request: Request) -> Response:
        try:
            directory = find(folder, request.path_params["run"])
        except OrchestratorError as error:
            return _error(str(error), 404)
        cursor = request.headers.get("last-event-id")
        if not cursor:
            cursor = request.query_params.get("after", "")
        if re.fullmatch("[0-9]{1,18}", cursor):
            since = int(cursor)
        else:
            since = 0
        events = _events(following, directory, since)
        unbuffered = {"X-Accel-Buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=unbuffered)

    return [Route("/api/stream/{run:path}", stream)]


def _acting(folder: Path) -> list[Route]:
    """What the page does to a run."""

    async def act(request: Request) -> Response:
        operation = OPERATIONS.get(request.path_params["operation"])
        requested = await _object(request)
        if operation is None or requested is None:
            return _error("there is no such thing to do", 400)
        client = request.client.host if request.client else ""
        try:
            directory = find(folder, request.path_params["run"])
            reply = await run_in_threadpool(operation, directory, requested, client)
            return JSONResponse(reply)
        except MistakeError as error:
            return _error(str(error), 400)
        except OrchestratorError as error:
            return _error(str(error), 409)

    return [Route("/api/act/{operation}/{run:path}", act, methods=["POST"])]


def _json(make: Maker) -> Endpoint:
    """An endpoint that answers with JSON, made in a thread. An error is one sentence, with the code 404."""

    async def answer(request: Request) -> Response:
        try:
            content = await run_in_threadpool(make, request)
            return StrictResponse(content)
        except OrchestratorError as error:
            return _error(str(error), 404)

    return answer


class StrictResponse(JSONResponse):
    """JSON of what was read of runs, which may have been changed."""

    def render(self, content: Any) -> bytes:
        return strict_json(content).encode()


def _error(message: str, code: int) -> Response:
    return JSONResponse({"error": message}, code)


async def _object(request: Request) -> Json | None:
    """The JSON object in the body of a request; None if the body is something else, or too long."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST:
            return None
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


async def _events(following: Following, directory: RunDirectory, since: int) -> AsyncIterator[str]:
    """The updates of a run as server-sent events (WHATWG HTML, section 9.2). The id of an event grows with each."""
    yield f"retry: {RETRY}\n\n"
    async for update in following.watch(directory, since):
        if update is None:
            yield ": nothing new\n\n"
        else:
            version, content = update
            data = await asyncio.to_thread(strict_json, content)
            yield f"id: {version}\ndata: {data}\n\n"
