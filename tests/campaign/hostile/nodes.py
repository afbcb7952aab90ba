"""What hostile nodes and programs report, and what they leave behind."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from node.errors import CheckpointError
from node.runtime import checkpoint
from orchestrator.agent.files import Files
from orchestrator.drivers.printed import Lines, Printed
from orchestrator.errors import DriverError
from orchestrator.record.writer import Record
from orchestrator.run.nodes.messages import MessageRecorder
from tests.campaign.hostile.material import Draw, changed, fields, nested, numbers, spoiled, texts, values
from tests.campaign.hostile.page import ask
from tests.campaign.hostile.places import KINDS, RUN, SECRET, spoil
from tests.campaign.hostile.watch import BrokenError, call, refused

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
    record = Record.resume(place, 0.0, "killed", 0)
    hearing = MessageRecorder(["cloud", "edge-0", "device-0-0"], record, lambda: 20.0)
    for message in given:
        hearing.take("cloud", message)
    hearing.end()
    record.outcome(30.0, {"ended": "rounds", "error": None, "wall_seconds": 30.0})
    record.close()
    if not call("report", RUN, "--json", "--runs", str(place.parent)):
        raise BrokenError("what a node reports costs the run its report")
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
    for found in {*Files().files(place), *(os.fsencode(name) for name, _ in given)}:
        refused(DriverError, functools.partial(_fetch, place, found))


def _fetch(place: Path, name: bytes) -> None:
    if SECRET.encode() in Files().get(place, name, 0):
        raise BrokenError("a file from elsewhere was read")
