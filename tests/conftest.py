"""What tests of several packages share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.host.commands import extend_path
from tests.e2e.engine import Place, with_image

# A shell that starts the tests in the background, or nohup, has them ignore signals that they are about.
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

extend_path()  # the tests start the same commands as the program does


@pytest.fixture(scope="session")
def place() -> Iterator[Place]:
    """A Docker Engine and an image of nodes in it; made when the first test asks for it."""
    with with_image() as found:
        yield found


@pytest.fixture
def engine(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The Engine that this test, and what it starts, uses."""
    monkeypatch.setenv("DOCKER_HOST", place.address)
    monkeypatch.setenv("EDGEBED_IMAGE", place.image)
    with closing(Engine.connect()) as connected:
        yield connected
