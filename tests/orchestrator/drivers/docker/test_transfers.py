"""Images to and from an Engine. What it says was seen on Engine 20.10."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.drivers.docker.transfers import Loading, Pulling, Saving
from orchestrator.errors import DriverError, HostError
from tests.e2e.harness import wait_for
from tests.fakes.docker import FakeImageServer, image_server


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeImageServer]:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    with image_server(tmp_path / "s") as server:
        yield server


def test_an_image_is_saved_in_pieces(engine: FakeImageServer) -> None:
    engine.saved = bytes(range(256))
    with closing(Saving("mine")) as saving:
        assert [saving.read(100), saving.read(100), saving.read(100), saving.read(100)] == [
            engine.saved[:100],
            engine.saved[100:200],
            engine.saved[200:],
            b"",
        ]


def test_an_image_is_loaded_in_pieces(engine: FakeImageServer) -> None:
    engine.answers.insert(0, {"status": "Loading layer", "progressDetail": {"current": 1, "total": 2}})
    with closing(Loading("mine")) as loading:
        for piece in (b"12345", b"678"):
            loading.add(piece)
        assert loading.finish() == "sha256:1"
    assert engine.loaded == [b"12345678"]


def test_what_ends_early_is_no_image(engine: FakeImageServer) -> None:
    loading = Loading("mine")
    loading.add(b"12345")
    loading.close()
    wait_for(lambda: engine.broken or None, "the end of the load")
    with pytest.raises(DriverError, match="does not answer"):
        loading.finish()
    assert engine.loaded == []


def test_an_engine_that_loads_nothing(engine: FakeImageServer) -> None:
    engine.answers = []
    with closing(Loading("mine")) as loading, pytest.raises(DriverError, match="loaded 0 images"):
        loading.finish()


def add_for_ever(loading: Loading) -> None:
    while True:
        loading.add(bytes(1 << 20))


def test_a_full_disk_is_distinguished_from_other_refusals(engine: FakeImageServer) -> None:
    engine.full = True
    with closing(Loading("mine")) as loading, pytest.raises(HostError, match=r"disk.*Docker Engine is full"):
        add_for_ever(loading)
    engine.full, engine.answers = False, [{"error": "unexpected EOF", "errorDetail": {"message": "unexpected EOF"}}]
    with closing(Loading("mine")) as loading, pytest.raises(DriverError, match=r"refused: .*unexpected EOF"):
        loading.finish()


def test_the_progress_of_a_pull(engine: FakeImageServer) -> None:
    def layer(name: str, status: str, *progress: int) -> dict[str, object]:
        return {"id": name, "status": status, "progressDetail": dict(zip(("current", "total"), progress, strict=False))}

    engine.answers = [
        layer("one", "Already exists"),
        layer("two", "Downloading", 10, 40),
        layer("three", "Downloading", 5, 60),
        layer("two", "Download complete"),
        layer("two", "Extracting", 1, 40),
        {"status": "Status: Downloaded newer image"},
    ]
    told: list[tuple[int, int]] = []
    with closing(Pulling("registry:5000/node", "sha256:abc", "who")) as pulling:
        pulling.finish(lambda done, known: told.append((done, known)))
    assert told == [(0, 0), (10, 40), (15, 100), (45, 100), (45, 100), (45, 100)]
    assert engine.pulls == [("/images/create?fromImage=registry%3A5000%2Fnode&tag=sha256%3Aabc", "who")]


def test_a_pull_that_waits_ends_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/mute")
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(f"{tmp_path}/mute")
        mute.listen()
        pulling, errors = Pulling("registry:5000/node", "sha256:abc", None), []

        def finish() -> None:
            try:
                pulling.finish(lambda done, known: None)
            except DriverError as error:
                errors.append(str(error))

        thread = threading.Thread(target=finish)
        thread.start()
        pulling.close()
        thread.join(20.0)
    assert "does not answer" in errors[0]
