"""Hostile files of users: scenarios, traces, settings of clients, data sets."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from hypothesis import strategies as st
from PIL import Image
from pyarrow import csv, ipc, parquet

from scenarios.traces import convert
from tests.campaign.hostile.material import Draw, changed, nested, numbers, spoiled, table, texts, written
from tests.campaign.hostile.places import KINDS, spoil
from tests.campaign.hostile.watch import BrokenError, call, check_text

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


def _table(suffix: str) -> tuple[str, bytes]:
    rows = {"x": [0.5, 1.5] * 10, "kind": ["a", "b"] * 10, "label": [0, 1] * 10}
    features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    found = pa.table(rows).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    stream = io.BytesIO()
    if suffix == ".arrow":
        with ipc.new_stream(stream, found.schema) as writer:
            writer.write_table(found)
    else:
        {".parquet": parquet.write_table, ".csv": csv.write_csv}[suffix](found, stream)
    return suffix, stream.getvalue()


tables = st.sampled_from([_table(suffix) for suffix in (".arrow", ".parquet", ".csv")]).flatmap(
    lambda whole: st.tuples(st.just(whole[0]), spoiled(whole[1]))
)


def feed_table(place: Path, given: tuple[str, bytes]) -> None:
    (place / f"a{given[0]}").write_bytes(given[1])
    plan(place, with_data(dataset=f"hf:a{given[0]}", columns="label") | {"model": "mlp"})


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
        code = convert.main([given[0], str(place / "file")])
    if code not in (0, 2) or errors.getvalue().count("error: ") != (code == 2):
        raise BrokenError(f"exit code {code}, {errors.getvalue()!r}")
    check_text(errors.getvalue())
