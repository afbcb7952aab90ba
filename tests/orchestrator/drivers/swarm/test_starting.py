from __future__ import annotations

import pytest

from orchestrator.drivers.swarm.cluster import Agent
from orchestrator.drivers.swarm.starting import AGENT_TIMEOUT, FAILING, MUTE, MUTE_REASON, Watch

MISSING = Agent("rejected", "No such image: edgebed-agent:latest")


@pytest.fixture
def watch() -> Watch:
    return Watch(100.0)


def test_an_agent_that_fails_repeatedly(watch: Watch) -> None:
    assert watch.reason("pc-1", MISSING, 101.0) is None
    assert watch.reason("pc-2", MISSING, 105.0) is None
    assert watch.reason("pc-1", Agent("preparing", MISSING.error), 101.0 + FAILING) == MISSING.error
    assert watch.reason("pc-2", MISSING, 101.0 + FAILING) is None


def test_an_agent_that_runs_and_is_silent(watch: Watch) -> None:
    assert watch.reason("pc-1", Agent("running", ""), 102.0) is None
    assert watch.reason("pc-1", Agent("running", ""), 101.0 + MUTE) is None
    assert watch.reason("pc-1", Agent("running", ""), 102.0 + MUTE) == MUTE_REASON


def test_an_agent_with_an_image_being_fetched_has_more_time(watch: Watch) -> None:
    end = 100.0 + AGENT_TIMEOUT
    assert watch.reason("pc-1", Agent("preparing", ""), end - 1) is None
    assert watch.reason("pc-1", Agent("preparing", ""), end) == "its agent is preparing"
    assert watch.reason("pc-2", None, end - 1) is None
    assert watch.reason("pc-2", None, end) == "the swarm gives it no agent"
