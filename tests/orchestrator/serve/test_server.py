"""The page over HTTP, from a server on loopback."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import PlaceError
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.report.template import script, style
from orchestrator.serve import server as server_module
from orchestrator.serve.guard import cookie_of
from orchestrator.serve.server import Server, acts
from tests.orchestrator.example_run import Example
from tests.texts import containing

RUN = "dropout-20260504-093000-aaaa"
HTML = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("serve")
    Example(rounds=2).build(found / "runs" / RUN)
    Example(rounds=3, seed=8).build(found / "runs" / "other")
    logs = found / "runs" / RUN / "logs"
    logs.mkdir()
    (logs / "edge-0.log").write_text(f"{HTML}\n")
    (found / "secret.log").write_text("hidden words")
    return found


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with Server(folder / "runs") as found:
        yield found


@contextmanager
def answer(server: Server, path: str, **headers: str) -> Iterator[HTTPResponse]:
    connection = HTTPConnection(server.host, server.port, timeout=20)
    try:
        cookie = {"Cookie": f"edgebed-{server.port}={cookie_of(server.token)}"}
        connection.request("GET", path, headers={**cookie, **headers})
        yield connection.getresponse()
    finally:
        connection.close()


def read(server: Server, path: str) -> Any:
    with answer(server, path) as found:
        assert found.status == 200, found.read()
        return json.loads(found.read())


def change(server: Server, path: str, body: object, **headers: str) -> tuple[int, Any]:
    """The code and the answer of a request that wants to change something."""
    connection = HTTPConnection(server.host, server.port, timeout=20)
    own = {
        "Cookie": f"edgebed-{server.port}={cookie_of(server.token)}",
        "Origin": f"http://{server.host}:{server.port}",
    }
    told = {"Content-Type": "application/json", "X-Edgebed-Key": server.key or ""}
    try:
        connection.request("POST", f"/api/act/{path}", json.dumps(body), {**own, **told, **headers})
        found = connection.getresponse()
        text = found.read().decode()
        return found.status, json.loads(text) if text.startswith("{") else text
    finally:
        connection.close()


def event(stream: HTTPResponse) -> tuple[str, dict[str, Any]]:
    """The id of the next event, and its data."""
    id = ""
    while True:
        line = stream.readline().decode()
        assert line, "the stream ended"
        if line.startswith("id: "):
            id = line[4:].strip()
        elif line.startswith("data: "):
            return id, json.loads(line[6:])


def whole(stream: HTTPResponse) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """What a stream tells until the record is read, and how the run stands then."""
    parts: dict[str, Any] = {}
    while True:
        id, said = event(stream)
        parts |= said["parts"]
        if not said["present"]["behind"]:
            return id, parts, said["present"]


def test_the_address_opens_the_page(server: Server) -> None:
    address = urlsplit(server.address_of())
    with answer(server, f"{address.path}?{address.query}", Cookie="") as found:
        assert (found.status, found.headers["Location"]) == (303, f"/#key={server.key}")
    assert (address.hostname, address.port) == ("127.0.0.1", server.port)
    with answer(server, "/", Cookie="") as found:
        assert found.status == 403
    with answer(server, "/") as found:
        assert found.headers["Content-Type"].startswith("text/html")
        assert b'src="/page/main.js"' in found.read()


def test_the_table_of_runs(server: Server) -> None:
    assert [row["run"] for row in read(server, "/api/runs")["runs"]] == ["other", RUN]


def test_the_report_of_a_run_is_in_a_sandbox(server: Server, folder: Path) -> None:
    (folder / "runs" / RUN / "report.html").write_text("<p>all well")
    with answer(server, f"/report/{RUN}") as found:
        assert found.read() == b"<p>all well"
        assert found.headers["Content-Type"].startswith("text/html")
        assert found.headers["Content-Security-Policy"].startswith(
            "sandbox allow-scripts allow-downloads; default-src 'none'"
        )
        assert found.headers["X-Content-Type-Options"] == "nosniff"
    for path, said in (
        ("other", "`report RUN` writes it"),
        ("nosuch", "there is no run 'nosuch'"),
        ("..", "there is no run"),
    ):
        with answer(server, f"/report/{path}") as found:
            assert found.status == 404
            assert said in json.loads(found.read())["error"]


def test_a_run_is_streamed_and_a_stream_continues_where_it_stopped(server: Server) -> None:
    with answer(server, f"/api/stream/{RUN}") as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        id, added, present = whole(stream)
    assert present["status"] == "finished"
    assert len(added["accuracy-time"]["marks"][-1]["x"]) == 2
    with answer(server, f"/api/stream/{RUN}", **{"Last-Event-ID": id}) as stream:
        _, rest, again = whole(stream)
    assert not any(rest.values())
    assert again["nodes"] == present["nodes"]
    with answer(server, f"/api/stream/{RUN}?after={id}") as stream:
        assert not any(whole(stream)[1].values())


def test_what_is_recorded_comes_at_once(server: Server, folder: Path) -> None:
    """A record that grows while two watch it; the stream tells of the end of its orchestrator too."""
    path = folder / "runs" / "growing"
    record = Record.create(path, (folder / "runs" / RUN / "plan.json").read_text(), {"driver": "namespaces"})
    directory = RunDirectory(path)
    with ExitStack() as watching, directory.held():
        one, other = (watching.enter_context(answer(server, "/api/stream/growing")) for _ in range(2))
        record.state(1.0, "cloud", "starting")
        while event(one)[1]["present"]["nodes"][0][0] != "starting":
            pass
        record.metric(2.0, "cloud", 1, "global", "accuracy", 0.25)
        record.state(2.0, "cloud", "running")
        for stream in (one, other):
            parts = whole(stream)[1]
            while not (drawn := parts.get("accuracy-rounds", {"marks": []})["marks"]):
                parts = event(stream)[1]["parts"]
            assert (drawn[-1]["name"], drawn[-1]["x"], drawn[-1]["y"]) == ("global", [1], [0.25])
        record.close()
        watched = watching.pop_all()
    with watched:
        while event(one)[1]["present"]["status"] != "crashed":
            pass
    shutil.rmtree(path)


def test_a_node_and_a_link(server: Server) -> None:
    node = read(server, f"/api/node/{RUN}?node=edge-0")
    assert node["resources"]
    assert all(cores >= 0 and memory > 0 for _, cores, memory in node["resources"])
    assert any("accuracy" in line for line in node["lines"])
    assert node["log"] == f"{HTML}\n"
    assert HTML not in node["lines"]
    link = read(server, f"/api/link/{RUN}?source=cloud&target=edge-0")
    assert link["readings"][-1][1] > 0
    assert {probe["quantity"] for probe in link["probes"]} >= {"rtt", "rate"}


def test_several_runs(server: Server) -> None:
    found = read(server, f"/api/compare?{urlencode([('run', RUN), ('run', 'other')])}")
    assert [row["run"] for row in found["runs"]] == [RUN, "other"]
    assert [mark["x"][-1] for mark in found["figures"]["accuracy-rounds"]["marks"]] == [2.0, 3.0]


def test_the_runs_of_a_sweep(server: Server, folder: Path) -> None:
    for seed in (1, 2):
        Example(rounds=1, seed=seed).build(folder / "runs" / "swept" / f"run-{seed}")
    cases = [{"case": "the case", "runs": [{"run": f"run-{seed}"} for seed in (1, 2)]}]
    (folder / "runs" / "swept" / "sweep.json").write_text(json.dumps({"cases": cases}))
    found = read(server, "/api/compare?sweep=swept")
    assert [each["case"] for each in found["cases"]] == ["the case"]
    assert len(read(server, "/api/compare?sweep=swept&over=runs")["cases"]) == 2
    shutil.rmtree(folder / "runs" / "swept")


def test_what_was_measured_of_the_links(server: Server) -> None:
    found = read(server, f"/api/fidelity/{RUN}")
    assert {row["quantity"] for row in found["probes"]} >= {"rtt", "rate"}
    assert found["figures"]["calibration-rtt"]["marks"]


def test_the_page_has_the_script_and_the_sheet_of_the_report(server: Server) -> None:
    for name, content in (("figures.js", script()), ("report.css", style())):
        with answer(server, f"/page/{name}") as found:
            assert found.read().decode() == content


def test_a_request_that_changes_a_run(server: Server) -> None:
    assert change(server, f"inject/{RUN}", {"fault": {"action": "crash", "node": "edge-0"}}) == (
        409,
        {"error": containing(f"{RUN} is over: nothing", "done")},
    )
    assert change(server, f"pace/{RUN}", {"to": "fast"})[0] == 400
    assert change(server, "inject/none", {})[0] == 409
    assert change(server, f"kill/{RUN}", {})[0] == 400
    assert change(server, f"inject/{RUN}", {"fault": "x" * 20_000})[0] == 400
    assert change(server, f"inject/{RUN}", [])[0] == 400
    assert change(server, f"inject/{RUN}", {}, **{"X-Edgebed-Key": "wrong"})[0] == 403
    assert change(server, f"inject/{RUN}", {}, Origin="http://elsewhere.example")[0] == 403


def test_a_page_beyond_loopback_is_for_reading_unless_asked(folder: Path) -> None:
    assert [acts(host, None) for host in ("127.0.0.1", "::1", "0.0.0.0", "192.0.2.1")] == [True, True, False, False]
    assert [acts("0.0.0.0", True), acts("127.0.0.1", False)] == [True, False]
    with Server(folder / "runs", faults=False) as server:
        assert change(server, f"inject/{RUN}", {}, **{"X-Edgebed-Key": "None"})[0] == 405
        assert "for reading" in read(server, f"/api/plan/{RUN}")["reads"]


def test_the_faults_of_a_run_as_rules(server: Server) -> None:
    assert read(server, f"/api/faults/{RUN}")["yaml"].startswith("faults:")
    assert read(server, f"/api/plan/{RUN}")["reads"] is None


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/api/plan/none",
            "/api/plan/../..",
            "/api/plan/%2e%2e%2f%2e%2e",
            "/api/stream/..%2fruns",
            "/api/stream/none",
        ),
        *(f"/api/node/{RUN}?node=..%2f..%2f..%2fsecret", f"/api/node/{RUN}?node={quote(HTML)}", f"/api/node/{RUN}"),
        *(
            f"/api/link/{RUN}?source=cloud&target=cloud",
            "/api/compare?run=..",
            "/api/compare",
            "/api/compare?sweep=..",
            "/page/..%2fapp.py",
            "/page/none",
        ),
    ],
)
def test_no_name_leads_elsewhere(server: Server, path: str) -> None:
    with answer(server, path) as found:
        assert found.status == 404
        assert not found.headers["Content-Type"].startswith("text/html")
        assert b"hidden words" not in found.read()


def test_what_a_record_says_is_never_a_page(server: Server) -> None:
    """Markup in a record is a value in JSON, and the page makes text of it."""
    with answer(server, f"/api/node/{RUN}?node=edge-0") as found:
        assert found.headers["Content-Type"] == "application/json"
        assert found.headers["X-Content-Type-Options"] == "nosniff"
    for text in (script(), *(part.read_text() for part in (files("orchestrator.serve") / "page").iterdir())):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", text)


def test_the_page_names_no_other_place() -> None:
    for part in (files("orchestrator.serve") / "page").iterdir():
        found = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+[^\s\"']*", part.read_text()))
        assert found <= {"http://www.w3.org/2000/svg"}


def test_a_server_that_ends_ends_its_streams(folder: Path) -> None:
    with Server(folder / "runs") as server, answer(server, f"/api/stream/{RUN}") as stream:
        whole(stream)
        server.__exit__(None, None, None)
        while stream.readline():
            pass


def test_idle_connections_do_not_keep_users_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS", 3)
    monkeypatch.setattr(server_module, "REQUEST_TIMEOUT", 0.2)
    with Server(folder / "runs") as server, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection((server.host, server.port))) for _ in range(3)]
        for each in idle:
            each.settimeout(20)
            assert each.recv(1) == b""  # closed by the server
        assert len(read(server, "/api/runs")["runs"]) == 2


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PlaceError, match=f"port {port}"):
            Server(tmp_path, port=port)
    with pytest.raises(PlaceError, match=r"listen on a\.\.b, .* \(no"):
        Server(tmp_path, "a..b")


@pytest.mark.parametrize("name", ["none", "x" * 300])  # no folder can have the second name
def test_a_folder_that_is_not_there(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(cli, ["serve", "--runs", str(tmp_path / name)])
    assert result.exit_code == 2
    assert f"{name} is not a folder" in " ".join(result.output.split())
