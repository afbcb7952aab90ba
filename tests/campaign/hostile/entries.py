"""The entry points, and what each is fed. An entry makes its input from the draws of Hypothesis, which shrinks it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import pickle
import sqlite3
import struct
import threading
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np
import yaml
from hypothesis import assume
from hypothesis import strategies as st
from PIL import Image

from node.errors import CheckpointError
from node.runtime import checkpoint
from orchestrator.agent.files import files_below, piece_of
from orchestrator.drivers.printed import Lines, Printed
from orchestrator.errors import DriverError
from orchestrator.population import __main__ as population
from orchestrator.results.record import Record
from orchestrator.results.schema import TABLES
from orchestrator.run.hearing import Hearing
from orchestrator.serve.app import make_app
from orchestrator.serve.guard import cookie_of
from tests.campaign.hostile.material import (
    Draw,
    changed,
    fields,
    nested,
    numbers,
    scalars,
    spoiled,
    table,
    texts,
    values,
    written,
)
from tests.campaign.hostile.places import KINDS, OTHER, RUN, SECRET, documents, spoil
from tests.campaign.hostile.watch import BrokenError, call, check_text, refused, strict

Feed = Callable[[Path, Any], None]


class Entry(NamedTuple):
    """An entry point: what it is given, and how. ``template``: of the folder that it gets."""

    given: st.SearchStrategy[Any]
    feed: Feed
    template: str = "empty"


# What nodes and programs report

EVENTS = ["round", "note", "overrun", "contributed", "peers", "lost", "failed", "bad_message", "fault", "overload", "x"]
ROUNDS = st.sampled_from([1, 2, 3.0, 10**9, 2**63]) | values


@st.composite
def lines(draw: Draw) -> list[bytes]:
    """Lines of a program."""
    named = {"event": draw(st.sampled_from(EVENTS)), "round": draw(ROUNDS)}
    told = named | draw(fields("event", "round", "phase", "accuracy", "loss", "scope", "text", "node", "t", "type"))
    one = st.sampled_from([json.dumps(told), draw(nested()), draw(texts)])
    good = json.dumps(told).encode("utf-8", "surrogatepass")
    return draw(st.lists(one.map(lambda text: text.encode("utf-8", "surrogatepass")) | spoiled(good), max_size=4))


@st.composite
def messages(draw: Draw) -> list[dict[str, Any]]:
    """Messages of a node, of every type, with good and bad fields."""
    kind = draw(
        st.sampled_from(["event", "event", "metric", "metric", "traffic", "beat", "register", "failed", "done"])
    )
    row = st.fixed_dictionaries(
        {"peer": st.just("cloud"), "kind": texts, "direction": st.just("sent"), "messages": numbers}
    )
    own: dict[str, st.SearchStrategy[dict[str, Any]]] = {
        "event": st.fixed_dictionaries({"name": st.sampled_from(EVENTS) | texts, "round": ROUNDS}),
        "metric": st.fixed_dictionaries({"values": fields("accuracy", "loss", "scope"), "round": ROUNDS}),
        "traffic": st.fixed_dictionaries({"peers": st.lists(row.map(lambda each: each | {"bytes": 5}), max_size=2)}),
        "beat": st.fixed_dictionaries({"cpu": numbers, "rss": numbers, "memory_pss": st.none() | numbers}),
        "failed": st.fixed_dictionaries({"error": texts}),
    }
    rest = fields("phase", "text", "kind", "peers", "peer", "deadline", "gathered", "asked", "taken", "shares", "queue")
    return [{**draw(rest), **draw(own.get(kind, st.just({}))), "type": kind} for _ in range(draw(st.integers(1, 3)))]


def feed_lines(place: Path, given: Sequence[bytes]) -> None:
    reader, printed = Lines(), Printed()
    read = [line for piece in given for line in reader.add(b"::edgebed " + piece + b"\n")]
    feed_messages(place, [message for line in [*read, *reader.end()] for message in printed.messages(line)])


def feed_messages(place: Path, given: Iterable[dict[str, Any]]) -> None:
    """Record the messages of a node, and read the record with every reader."""
    record = Record.carry_on(place, "here")
    hearing = Hearing(["cloud", "edge-0", "device-0-0"], record, lambda: 20.0)
    for message in given:
        hearing.take("cloud", message)
    hearing.end()
    record.outcome(30.0, {"ended": "rounds", "error": None, "wall_seconds": 30.0})
    record.close()
    call("report", RUN, "--json", "--runs", str(place.parent))
    call("logs", "cloud", "--record", "--run", RUN, "--runs", str(place.parent))
    ask(place.parent, f"/api/plan/{RUN}")


# What nodes leave behind

HEADER = msgpack.unpackb(bytes(checkpoint.packed("cloud", 2, {"w": np.ones(3)}, {"a": 1})[0]))


@st.composite
def checkpoints(draw: Draw) -> tuple[bytes, bytes] | bytes | str:
    """A header and a body with the right checksum; or the bytes of a file; or the kind of what is no file."""
    header: bytes | None = None
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        header = msgpack.packb(draw(changed(HEADER)))
    assume(header is not None)
    assert header is not None
    kind = draw(st.sampled_from(KINDS))
    found: list[tuple[bytes, bytes] | bytes | str] = [(header, b"\0" * 24), (header, b""), header, kind]
    return draw(st.sampled_from(found))


def feed_checkpoint(place: Path, given: tuple[bytes, bytes] | bytes | str) -> None:
    path = place / "cloud.checkpoint"
    if isinstance(given, tuple):
        checkpoint.write(path, given)
    elif isinstance(given, bytes):
        path.write_bytes(given)
    else:
        spoil(place.parent, path, given)
    refused(CheckpointError, lambda: checkpoint.load(path, 3))


def feed_returned(place: Path, given: Sequence[tuple[str, str]]) -> None:
    """Fetch the files that a node has left in its folder on another host."""
    for name, kind in given:
        with contextlib.suppress(OSError):
            spoil(place.parent, place / name, kind)
    for name in {*files_below(place), *(name for name, _ in given)}:
        refused(DriverError, functools.partial(_fetch, place, name))


def _fetch(place: Path, name: str) -> None:
    if SECRET.encode() in piece_of(place, name, 0):
        raise BrokenError("a file from elsewhere was read")


# Directories of runs

FILES = ["plan.json", "effective.json", "summary.json", "scenario.yaml", "run.db", "run.db-wal", "report.html", "lock"]
FILES += ["logs", "logs/cloud.log", "checkpoints", "checkpoints/cloud/cloud.checkpoint", "files", "logs/up.log"]
COLUMNS = [(name, column.split()[0]) for name, columns in TABLES.items() for column in columns]
ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT {} FROM r"
COMMANDS = [
    *(["report", RUN], ["report", RUN, "--json"], ["compare", RUN, OTHER], ["compare", OTHER, RUN, "--json"]),
    *(
        ["export", "{place}/out", "--to", "csv", "--run", RUN],
        ["faults", RUN, "--json"],
        ["faults", RUN, "--yaml"],
        ["resume", RUN],
    ),
    *(
        ["export", "{place}/out", "--to", "tensorboard", "--run", RUN],
        ["ls"],
        ["wait", RUN],
        ["wait", RUN, "--json"],
        ["rm", RUN, "--yes"],
        ["ls", "--json"],
        ["logs", "cloud", "--run", RUN],
        ["logs", "cloud", "--record", "--run", RUN],
    ),
    *(["GET", "/api/runs"], ["GET", f"/api/plan/{RUN}"], ["GET", f"/report/{RUN}"], ["GET", f"/api/fidelity/{RUN}"]),
    *(["GET", f"/api/node/{RUN}?node=cloud"], ["GET", f"/api/link/{RUN}?source=cloud&target=edge-0"]),
    *(["GET", f"/api/faults/{RUN}"], ["GET", f"/api/compare?run={RUN}&run={OTHER}"], ["GET", f"/api/stream/{RUN}"]),
]


@st.composite
def damages(draw: Draw) -> tuple[list[tuple[str, Any, Any]], list[str]]:
    """How a directory of a run is damaged, and the command that reads it."""
    document = st.sampled_from(["plan.json", "plan.json", "effective.json", "summary.json"]).flatmap(
        lambda name: st.tuples(st.just("text"), st.just(name), written(documents()[name]))
    )
    cell = scalars | written({"fault": 1, "phase": "end", "peers": [], "text": "x", "start": 1, "end": 2})
    rows = st.tuples(st.just("cell"), st.sampled_from(COLUMNS), cell)
    tables = st.tuples(st.sampled_from(["drop", "endless"]), st.sampled_from(sorted(TABLES)), st.none())
    file = st.tuples(st.just("file"), st.sampled_from(FILES), st.sampled_from(KINDS))
    torn = st.tuples(st.just("bytes"), st.sampled_from([*FILES[:4], "run.db"]), st.integers(0, 2**32))
    one = st.one_of(document, document, rows, rows, tables, file, torn)
    return draw(st.lists(one, min_size=1, max_size=2)), draw(st.sampled_from(COMMANDS))


def _damage(place: Path, how: str, where: Any, what: Any) -> None:
    if how != "file" and (place / (where if how in ("text", "bytes") else "run.db")).is_symlink():
        return  # the campaign itself changes nothing elsewhere
    if how == "text":
        (place / where).write_text(what, encoding="utf-8", errors="surrogatepass")
    elif how == "file":
        spoil(place.parent, place / where, what)
    elif how == "bytes" and (place / where).is_file() and (data := bytearray((place / where).read_bytes())):
        data[what % len(data)] ^= 1 + what % 255
        (place / where).write_bytes(data)
    elif how in ("cell", "drop", "endless"):
        with contextlib.closing(sqlite3.connect(place / "run.db")) as database:
            if how == "cell":
                value = what if not isinstance(what, int) or abs(what) < 2**63 else 1e300
                database.execute(f"UPDATE OR REPLACE {where[0]} SET {where[1]} = ?", (value,))
            else:
                database.execute(f"DROP TABLE {where}")
            if how == "endless":
                columns = [column.split()[0] for column in TABLES[where]]
                one = ENDLESS.format(", ".join(f"x AS {column}" for column in columns))
                database.execute(f"CREATE VIEW {where} AS {one}")
            database.commit()


def feed_run(place: Path, given: tuple[list[tuple[str, Any, Any]], list[str]]) -> None:
    how, command = given
    with contextlib.suppress(OSError, sqlite3.Error, UnicodeError):
        for each in how:
            _damage(place, *each)
    if command[0] == "GET":
        ask(place.parent, command[1])
    else:
        call(*(word.format(place=place) for word in command), "--runs", str(place.parent))


SWEEP = {"name": "x", "planned": 1, "cases": [{"case": "a", "runs": [{"run": "x/first", "seed": 1}], "figures": {}}]}
SWEEP_COMMANDS = [
    *(["export", "{place}/out", "--to", "csv", "--run", RUN], ["ls", "--json"], ["GET", f"/api/compare?sweep={RUN}"]),
    *(["GET", "/api/runs"], ["GET", f"/api/plan/{RUN}/first"], ["report", f"{RUN}/first"]),
]


def feed_sweep(place: Path, given: tuple[str, list[str]]) -> None:
    feed_run(place, ([("text", "sweep.json", given[0])], given[1]))


# The page

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


# Files of users

SCENARIO: dict[str, Any] = {
    "name": "hostile",
    "driver": "sim",
    "algorithm": {"name": "fedavg", "rounds": 2},
    "topology": {"devices": 2},
    "data": {"dataset": "digits", "samples_per_client": 20, "evaluate_samples": 20},
    "links": {"device-cloud": {"latency": "5ms", "rate": "20mbit"}},
    "stop": {"rounds": 2, "after": "60s"},
}
LARGER = SCENARIO | {
    "algorithm": {"name": "hierfavg", "rounds": 2, "kappa2": 2},
    "topology": {"edges": 2, "devices_per_edge": 2, "cloud": True},
    "data": {**SCENARIO["data"], "partition": {"dirichlet": 0.5}},
    "model": "mlp",
    "hardware": {"device": "raspberry-pi-3", "cloud": "host"},
    "links": {
        "device-edge": "wifi",
        "edge-cloud": {"latency": "40ms", "loss": "0.5%", "schedule": {"steps": [{"at": "1s", "rate": "1mbit"}]}},
    },
    "faults": [
        {"at": "5s", "node": "device-1-1", "action": "crash", "for": "2s"},
        {"every_round": "20%", "of": "devices", "action": "disconnect"},
    ],
    "gathering": {"quorum": "50%", "deadline": "5s"},
    "timeouts": {"beat": "500ms", "lost_after": "2s"},
    "expect": {"accuracy": "50%"},
}
PEOPLE = SCENARIO | {
    "topology": {"population": 50, "selected": 5},
    "data": {"dataset": "digits", "evaluate_samples": 20},
    "clients": {"availability": "day-and-night", "samples": {"lognormal": {"median": 40, "sigma": 0.8}}, "over": "30%"},
}
STAYING = PEOPLE | {"clients": {**PEOPLE["clients"], "availability": {"trace": "stays.csv"}}}
YAML = [
    "&a [*a]",
    "!!python/object/apply:os.system [id]",
    "a: &x [1]\nb: *x",
    "? [1]\n: 2",
    "---\n---\n",
    "\t",
    "%YAML 9",
]


def with_data(**data: Any) -> dict[str, Any]:
    return SCENARIO | {"data": {"samples_per_client": 2, "evaluate_samples": 2, **data}}


def plan(place: Path, scenario: Any, **files: bytes) -> None:
    """Plan a scenario with these files beside it; a double underscore in a name stands for its last dot."""
    for name, data in files.items():
        (place / name.replace("__", ".")).write_bytes(data)
    text = scenario if isinstance(scenario, str) else yaml.safe_dump(scenario, sort_keys=False)
    (place / "s.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    call("plan", str(place / "s.yaml"), "--json")


@st.composite
def scenarios(draw: Draw) -> str:
    """YAML of a changed scenario, or text that was one."""
    document = draw(st.sampled_from([SCENARIO, LARGER, LARGER, PEOPLE]))
    match draw(st.integers(0, 9)):
        case 0:
            return draw(spoiled(yaml.safe_dump(document).encode())).decode(errors="replace")
        case 1:
            return draw(
                nested() | st.sampled_from(YAML).map(lambda odd: f"{yaml.safe_dump(document)}x: {odd}\n") | texts
            )
    return json.dumps(draw(changed(document)))  # JSON is YAML


SECONDS = ["0", "1", "2.5", "10", "20", "59", "60"]
stays = table(
    {"device": list("0123456789"), "from": SECONDS, "until": ["20", "30", "60"], "period": ["60", "60", "90"]}
)
settings_of_clients = table(
    {
        **{"node": ["device-0", "device-1", "cloud"], "class": ["raspberry-pi-3", ""], "speed": ["0.5", "2", ""]},
        **{"memory": ["1gib", ""], "latency_ms": SECONDS, "rate_up_mbit": ["5", "0.1", ""], "loss": ["1%", "0%", ""]},
        **{"profile": ["wifi", ""], "jitter_ms": ["1", ""]},
    },
    most=3,
)
courses = table({"t_s": SECONDS, "latency_ms": SECONDS, "rate_mbit": ["1", "0", "9", ""], "loss": ["1%", "0%", "100%"]})
trace = st.lists(st.integers(0, 50).map(str) | texts | numbers.map(str.__call__), max_size=20).map("\n".join)


def text_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def feed_schedule(place: Path, given: tuple[str, str]) -> None:
    kind, text = given
    links = {"device-cloud": {"latency": "5ms", "rate": "9mbit", "schedule": {kind: "a.txt"}}}
    plan(place, SCENARIO | {"links": links}, a__txt=text_bytes(text))


def feed_stays(place: Path, given: tuple[str, bool]) -> None:
    people = STAYING if given[1] else SCENARIO | {"clients": {"availability": {"trace": "stays.csv"}}}
    plan(place, people, stays__csv=text_bytes(given[0]))


def feed_client_settings(place: Path, given: str) -> None:
    plan(place, SCENARIO | {"clients": {"file": "clients.csv"}}, clients__csv=text_bytes(given))


@st.composite
def arrays(draw: Draw) -> dict[str, bytes]:
    """The files of an npz: arrays that declare anything."""
    kinds = st.sampled_from(["|u1", "<i8", "<f4", "<f8", "|b1", "|O", "<U5", "<c8", "V3", "x"])
    sizes = st.sampled_from([0, 1, 2, 4, 8, -5, 2**31, 2**62, 10**30])
    found = {}
    for name in ("x_train", "y_train", "x_test", "y_test", *draw(st.sets(st.sampled_from(["subject_train", "z"])))):
        whole = np.zeros((4, 8, 8), np.uint8) if name.startswith("x") else np.arange(4)
        stream = io.BytesIO()
        np.save(stream, whole)
        found[name] = stream.getvalue()
    for name in draw(st.sets(st.sampled_from(sorted(found)), min_size=1)):
        shape = tuple(draw(st.lists(sizes, max_size=4)))
        if draw(st.booleans()):
            text = repr({"descr": draw(kinds), "fortran_order": draw(st.booleans()), "shape": shape}) + "\n"
            body = b"\xff" * draw(st.sampled_from([0, 8, 256]))
            found[name] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + body
        else:
            found[name] = draw(spoiled(found[name]))
    return found


def feed_arrays(place: Path, given: dict[str, bytes]) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in given.items():
            archive.writestr(f"{name}.npy", data)
    plan(place, with_data(dataset="npz:a.npz"), a__npz=stream.getvalue())


@st.composite
def idx(draw: Draw) -> list[bytes]:
    """Four IDX files."""
    pictures = struct.pack(">HBBIII", 0, 8, 3, 10, 28, 28) + bytes(10 * 28 * 28)
    labels = struct.pack(">HBBI", 0, 8, 1, 10) + bytes(range(10))
    files = [pictures, labels, pictures, labels]
    for place in draw(st.sets(st.integers(0, 3), min_size=1)):
        sizes = draw(st.lists(st.sampled_from([0, 1, 4, 8, 2**28, 2**32 - 1]), min_size=1, max_size=3))
        declared = struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes) + bytes(40)
        files[place] = draw(st.just(declared) | spoiled(files[place]))
    return files


def feed_idx(place: Path, given: list[bytes]) -> None:
    names = ("train-images", "train-labels", "t10k-images", "t10k-labels")
    for name, axes, data in zip(names, (3, 1, 3, 1), given, strict=True):
        (place / f"{name}-idx{axes}-ubyte").write_bytes(data)
    plan(place, with_data(dataset="mnist", path="."))


def _picture(format: str) -> bytes:
    stream = io.BytesIO()
    Image.new("P" if format == "GIF" else "RGB", (8, 8)).save(stream, format)
    return stream.getvalue()


PICTURES = {name: _picture(name) for name in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")}
pictures = st.sampled_from(sorted(PICTURES)).flatmap(
    lambda name: spoiled(PICTURES[name]) | spoiled(PICTURES[name]) | st.sampled_from(KINDS)
)


def feed_picture(place: Path, given: bytes | str) -> None:
    for part in ("train", "test"):
        for label in ("a", "b"):
            (place / "all" / part / label).mkdir(parents=True)
            (place / "all" / part / label / "0.png").write_bytes(PICTURES["PNG"])
    odd = place / "all/train/a/1.png"
    odd.write_bytes(given) if isinstance(given, bytes) else spoil(place.parent, odd, given)
    plan(place, with_data(dataset="images:all"))


USER = {"x": [[0.0, 1.0], [1.0, 0.5]], "y": [0, 1]}
LEAF = {"users": ["a", "b"], "num_samples": [2, 2], "user_data": {"a": USER, "b": USER}}


def feed_leaf(place: Path, given: tuple[str, bool]) -> None:
    for part in ("train", "test"):
        (place / "leaf" / part).mkdir(parents=True)
        (place / "leaf" / part / "0.json").write_bytes(
            text_bytes(given[0] if given[1] or part == "train" else json.dumps(LEAF))
        )
    plan(place, with_data(dataset="leaf:leaf") | {"model": "mlp"})


DEVICE = {1: {"active": [0, 100], "inactive": [50, 150], "finish_time": 200, "model": "x"}}
FLASH = {
    "1": {
        "messages": "".join(
            f"2020-01-01 00:00:0{second}\t{what}\n"
            for second, what in enumerate(["battery_charged_on", "wifi", "screen_lock"])
        )
    }
}
EVIL = [
    b"cos\nsystem\n(S'id'\ntR.",
    b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    b"\x80\x02\x82\x01.",
    b"Pabc\n.",
    b"(" * 999_999 + b".",
]


@st.composite
def traces_of_others(draw: Draw) -> tuple[str, bytes]:
    """A file of FedScale (a pickle) or of FLASH (JSON)."""
    if draw(st.booleans()):
        return "flash", text_bytes(draw(written(FLASH)))
    protocol = draw(st.integers(0, 5))
    whole = pickle.dumps(DEVICE, protocol)
    return "fedscale", draw(
        spoiled(whole) | st.sampled_from(EVIL) | changed(DEVICE).map(lambda it: pickle.dumps(it, protocol))
    )


def feed_traces(place: Path, given: tuple[str, bytes]) -> None:
    (place / "file").write_bytes(given[1])
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        code = population.main([given[0], str(place / "file")])
    if code not in (0, 2) or errors.getvalue().count("error: ") != (code == 2):
        raise BrokenError(f"exit code {code}, {errors.getvalue()!r}")
    check_text(errors.getvalue())


ENTRIES: dict[str, Entry] = {
    "lines of programs": Entry(lines(), feed_lines, "running"),
    "messages of nodes": Entry(messages(), feed_messages, "running"),
    "checkpoints": Entry(checkpoints(), feed_checkpoint),
    "returned files": Entry(
        st.lists(st.tuples(st.sampled_from(["a", "b/c", "b"]), st.sampled_from(KINDS)), max_size=3), feed_returned
    ),
    "run directories": Entry(damages(), feed_run, "run"),
    "sweeps": Entry(st.tuples(written(SWEEP), st.sampled_from(SWEEP_COMMANDS)), feed_sweep, "sweep"),
    "requests": Entry(requests(), feed_request, "run"),
    "scenarios": Entry(scenarios(), plan),
    "schedules": Entry(st.tuples(st.just("trace"), trace) | st.tuples(st.just("csv"), courses), feed_schedule),
    "availability": Entry(st.tuples(stays, st.booleans()), feed_stays),
    "clients": Entry(settings_of_clients, feed_client_settings),
    "npz": Entry(arrays(), feed_arrays),
    "idx": Entry(idx(), feed_idx),
    "pictures": Entry(pictures, feed_picture),
    "leaf": Entry(st.tuples(written(LEAF), st.booleans()), feed_leaf),
    "traces of others": Entry(traces_of_others(), feed_traces),
}
