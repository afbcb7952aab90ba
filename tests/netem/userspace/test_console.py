from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from netem.userspace import console as module
from netem.userspace.console import Console


class Far:
    """The other end of a Console's two pipes."""

    def __init__(self) -> None:
        self.reading, self.given = os.pipe()
        self.taken, self.writing = os.pipe()
        self.console = Console(self.reading, self.writing)


@pytest.fixture
def far() -> Iterator[Far]:
    ends = Far()
    yield ends
    for descriptor in (ends.reading, ends.given, ends.taken, ends.writing):
        if descriptor >= 0:
            os.close(descriptor)


def test_requests_come_when_their_line_is_complete(far: Far) -> None:
    os.write(far.given, b'{"id": 1}\n{"id"')
    assert far.console.requests() == [{"id": 1}]
    assert far.console.requests() == []
    os.write(far.given, b": 2}\n\nnonsense\n")
    assert far.console.requests() == [{"id": 2}, None]
    assert far.console.open


def test_end_of_input_closes(far: Far) -> None:
    os.close(far.given)
    far.given = -1
    assert far.console.requests() == []
    assert not far.console.open


def test_writing_waits_for_no_reader(far: Far) -> None:
    text = "x" * 200_000  # more than a pipe holds
    far.console.write({"event": text})
    assert not far.console.flush()
    received = b""
    while not received.endswith(b"\n"):
        received += os.read(far.taken, 1 << 16)
        far.console.flush()
    assert received == b'{"event": "' + text.encode() + b'"}\n'
    assert far.console.open


def test_a_reader_that_has_gone_closes(far: Far) -> None:
    os.close(far.taken)
    far.taken = -1
    far.console.write({"event": "ready"})
    assert not far.console.open


def test_a_reader_that_takes_nothing_closes(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_LIMIT", 1000)
    far.console.write({"event": "x" * 100_000})
    assert not far.console.open
