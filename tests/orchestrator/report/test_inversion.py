from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from orchestrator import text
from orchestrator.record.writer import Record
from orchestrator.report import render
from orchestrator.report.inversion import inversion, png, psnr
from orchestrator.results.evaluation.inversion import GUESSES
from orchestrator.results.history import History
from orchestrator.results.traffic import volumes
from tests.orchestrator.drivers.sim.harness import simulate
from tests.orchestrator.example_run import Example, plan_of

SCENARIO = """
# What do embeddings give away?
seed: 3
algorithm: {name: dffke, rounds: 1, profile: fast, dimension: 16, width: 8, first_epochs: 3, decoder_epochs: 2,
            docking_epochs: 2, exchange_epochs: 1, embeddings: 20, inversion: 2, inversion_epochs: 2}
data: {dataset: digits, partition: iid, samples_per_client: 40, evaluate_samples: 60}
model: small
topology: {edges: 3, devices_per_edge: 0}
"""
KINDS = {"private": "private", **GUESSES}


def pixels(data: bytes) -> tuple[int, int, int, bytes]:
    """Width, height, type of colour and pixels of a PNG file whose lines have filter 0; its checksums must be right."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, place = {}, 8
    while place < len(data):
        (size,) = struct.unpack_from(">I", data, place)
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        assert struct.unpack_from(">I", data, place + 8 + size) == (zlib.crc32(kind + body),)
        chunks[kind], place = body, place + 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0])
    lines = zlib.decompress(chunks[b"IDAT"])
    length = len(lines) // height
    assert all(lines[start] == 0 for start in range(0, len(lines), length))
    return width, height, colour, b"".join(lines[at + 1 : at + length] for at in range(0, len(lines), length))


def test_a_grey_picture_as_png() -> None:
    assert pixels(png(bytes([0, 50, 100, 150, 200, 250]), 1, 2, 3)) == (3, 2, 0, bytes([0, 50, 100, 150, 200, 250]))


def test_planes_of_colours_become_pixels() -> None:
    """Red 1 2, green 3 4, blue 5 6, one above the other."""
    assert pixels(png(bytes([1, 2, 3, 4, 5, 6]), 3, 2, 1)) == (1, 2, 2, bytes([1, 3, 5, 2, 4, 6]))


def test_psnr_worked_example() -> None:
    assert psnr(0.01) == pytest.approx(20)
    assert psnr(0.0) == float("inf")


def test_a_run_shows_what_its_clients_gave_away(tmp_path: Path) -> None:
    run = simulate(tmp_path, SCENARIO)
    assert run.code == 0, run.errors
    said = run.summary["inversion"]
    assert (said["samples"], set(said)) == (3 * 20, {"samples", *GUESSES})
    page = render(run.history())
    assert '<section id="inversion">' in page
    assert "hold private pictures of the clients" in page
    assert len(re.findall(r'<img src="data:image/png;base64,[^"]+" alt="private, picture', page)) == 3 * 2
    shown = inversion(run.history())
    assert shown is not None
    assert [client["node"] for client in shown["clients"]] == ["edge-0", "edge-1", "edge-2"]
    for client in shown["clients"]:
        assert [label for label, _ in client["pictures"]] == list(KINDS.values())
        events = [event.data for event in run.history().events("inversion") if event.node == client["node"]]
        for kind, (_, sources) in zip(KINDS, client["pictures"], strict=True):
            for source, told in zip(sources, events[0]["pictures"][kind], strict=True):
                assert source in page
                width, height, colour, values = pixels(base64.b64decode(source.partition(",")[2]))
                assert (width, height, colour, values) == (8, 8, 0, base64.b64decode(told))
        assert client["figures"][0][0] == f"{events[0]['scores']['reconstructed']['mse']:.4f}"
        assert (client["samples"], client["chance"]) == (20, "5.0%")
    assert shown["mean"]["figures"][1][2] == text.percent(said["class_mean"]["recognised"])
    assert "shape [1, 8, 8]" not in page  # the log leaves these events out
    assert json.loads((run.directory / "summary.json").read_text())["inversion"] == said


@pytest.mark.slow
def test_it_changes_nothing_else_and_without_it_there_is_nothing(tmp_path: Path) -> None:
    """The same metrics at the same times, and but for the attack's own messages the same bytes."""
    runs = {}
    for name, scenario in (("with", SCENARIO), ("without", SCENARIO.replace("inversion: 2, ", ""))):
        (tmp_path / name).mkdir()
        runs[name] = simulate(tmp_path / name, scenario)
    assert runs["with"].record()["metric"] == runs["without"].record()["metric"]
    messages = runs["with"].summary["messages"]
    assert (messages.pop("inverted"), messages.pop("judged")) == (3, 3)
    assert messages == runs["without"].summary["messages"]
    sent = [
        {
            (row.node, row.peer, row.kind): row.bytes
            for row in volumes.traffic(runs[name].history())
            if row.direction == "sent"
        }
        for name in ("with", "without")
    ]
    assert {key: size for key, size in sent[0].items() if key[2] not in ("inverted", "judged")} == sent[1]
    assert "inversion" not in runs["without"].summary
    assert 'id="inversion"' not in render(runs["without"].history())


def told(recognised: float = 0.5, mse: float = 0.01) -> dict[str, Any]:
    """What a client says that attacked four pictures of one pixel, and shows one."""
    return {
        **{"samples": 4, "shape": [1, 1, 1]},
        "scores": {kind: {"mse": mse, "recognised": recognised} for kind in GUESSES},
        "pictures": {kind: ["AA=="] for kind in KINDS},
    }


def test_means_are_over_the_clients_and_what_was_found_twice_counts_once(tmp_path: Path) -> None:
    record = Record.create(tmp_path, json.dumps(plan_of(Example(with_faults=False))), {})
    for edge, recognised in (("edge-1", 0.25), ("edge-1", 0.5), ("edge-0", 0.75)):
        record.event(10.0, edge, "inversion", 1, told(recognised))
    record.close()
    shown = inversion(History.open(tmp_path))
    assert shown is not None
    assert [(client["node"], client["figures"][0]) for client in shown["clients"]] == [
        ("edge-0", ("0.0100", "20.0 dB", "75.0%")),
        ("edge-1", ("0.0100", "20.0 dB", "50.0%")),
    ]
    assert shown["mean"] == {"samples": 8, "figures": [("0.0100", "20.0 dB", "62.5%")] * 3}


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": 0},
        {"samples": "many"},
        {"shape": [1, 2, 1]},
        {"shape": [7, 1, 1]},
        {"scores": {}},
        {"scores": told(mse=float("nan"))["scores"]},
        {"pictures": {}},
        {"pictures": {kind: ["not base64!"] for kind in KINDS}},
        {"pictures": None},
    ],
)
def test_what_is_not_an_attack_is_passed_over(tmp_path: Path, wrong: dict[str, Any]) -> None:
    record = Record.create(tmp_path, json.dumps(plan_of(Example(with_faults=False))), {})
    record.event(10.0, "edge-0", "inversion", 1, {**told(), **wrong})
    record.event(11.0, "edge-1", "inversion", 1, told())
    record.close()
    with History.open(tmp_path) as history:
        shown = inversion(history)
        assert shown is not None
        assert [client["node"] for client in shown["clients"]] == ["edge-1"]
