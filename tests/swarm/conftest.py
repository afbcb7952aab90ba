"""Engines that tests of several machines share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.swarm.engines import AGENT, IMAGE, Engines, image_of_hosts, three_engines


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """Three Engines in a swarm, which have the images of nodes and of agents."""
    with image_of_hosts() as images, three_engines(images) as formed:
        yield formed


@pytest.fixture
def on_engines(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commands use the manager's Engine, and these images. Engines that a failed test has killed start again."""
    monkeypatch.setenv("DOCKER_HOST", engines.manager.address)
    monkeypatch.setenv("EDGEBED_IMAGE", IMAGE)
    monkeypatch.setenv("EDGEBED_AGENT_IMAGE", AGENT)
    yield
    for host in engines.hosts:
        if host.daemon.was_killed:
            host.daemon.start()
