"""What the page does to a run: it speaks to the run's own socket, and to nobody else's."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import MistakeError, RunError
from orchestrator.host.process import user_socket
from orchestrator.record.directory import RunDirectory
from orchestrator.serve.acting import make_fault, reads_only, set_pace, via
from tests.orchestrator.example_run import Example
from tests.texts import containing

FAULT = {"action": "crash", "node": "edge-0", "for": "5s"}
MADE = {"fault": 40, "action": "crash", "target": "edge-0", "for": 5.0, "at": 3.25, "t": 9.0, "round": 2}


@contextmanager
def orchestrator(directory: RunDirectory, reply: dict[str, Any]) -> Iterator[list[Any]]:
    """A run that goes on, whose socket gives this reply. Yields what it is asked."""
    asked: list[Any] = []
    listening = user_socket.listen(directory.commands)

    def answer() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as lines:
                asked.append(json.loads(lines.readline()))
                lines.write(json.dumps(reply).encode() + b"\n")

    thread = threading.Thread(target=answer)
    with directory.held():
        thread.start()
        try:
            yield asked
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()
            thread.join()


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(Example(rounds_made=2, ending=None).build(tmp_path / "run"))


def test_a_fault_is_requested_as_inject_does(directory: RunDirectory) -> None:
    with orchestrator(directory, {"ok": True, "faults": [MADE], "refused": [], "notes": ["so it is"]}) as asked:
        said = make_fault(directory, {"fault": FAULT}, "127.0.0.1")
    assert asked == [{"op": "inject", "fault": FAULT, "via": "the page"}]
    assert said["told"] == [
        containing("fault 40: crash edge-0", "at 3.25 s"),
        "note: so it is",
    ]


def test_what_makes_no_sense_is_a_mistake(directory: RunDirectory) -> None:
    with orchestrator(directory, {"error": "inject: no node 'x'"}):
        with pytest.raises(MistakeError, match="no node 'x'"):
            make_fault(directory, {"fault": FAULT}, "::1")
        with pytest.raises(MistakeError, match="'9' is no pace"):
            set_pace(directory, {"to": "9"}, "::1")
        with pytest.raises(MistakeError, match="is no pace"):
            set_pace(directory, {}, "::1")


def test_a_pace(directory: RunDirectory) -> None:
    with orchestrator(directory, {"ok": True, "t": 9.5, "round": 2}) as asked:
        assert set_pace(directory, {"to": "10x"}, "::1")["round"] == 2
    assert asked == [{"op": "pace", "to": "10x"}]


def test_only_a_running_run_of_this_user_is_asked(directory: RunDirectory) -> None:
    with pytest.raises(RunError, match="run is over"):
        make_fault(directory, {"fault": FAULT}, "::1")
    with directory.held(), pytest.raises(RunError, match="takes no commands now"):
        make_fault(directory, {"fault": FAULT}, "::1")
    directory.path.chmod(0o777)
    with directory.held(), pytest.raises(RunError, match="only its user may act"):
        make_fault(directory, {"fault": FAULT}, "::1")


def test_why_a_page_only_reads(directory: RunDirectory) -> None:
    assert reads_only(directory, acts=True) is None
    assert "serve --faults" in str(reads_only(directory, acts=False))
    directory.path.chmod(0o777)
    assert "only its user may act" in str(reads_only(directory, acts=True))


def test_the_record_says_from_where_the_page_asked() -> None:
    assert [via(client) for client in ("127.0.0.1", "::1", "192.0.2.7", "")] == [
        *("the page", "the page", "the page, from 192.0.2.7", "the page, from ")
    ]
