from __future__ import annotations

import pytest

from orchestrator.drivers.hosts.agents.container import name_of
from orchestrator.drivers.hosts.agents.settings import Settings
from orchestrator.drivers.swarm.agent_task import run_of
from orchestrator.drivers.swarm.standing import NAME
from orchestrator.planning.keys import keypair


@pytest.mark.parametrize(
    ("service", "standing", "container", "run"),
    [
        ("mine-1", False, "mine-1", "mine-1"),
        (NAME, True, "mine-1", "mine-1"),
        (NAME, True, NAME, None),  # its orchestrator ended before; the agents stay
    ],
)
def test_the_run_without_its_orchestrator(service: str, standing: bool, container: str, run: str | None) -> None:
    settings = Settings(run=service, address="", server="", keys=keypair(), lease=1.0, standing=standing)
    assert run_of(name_of(container), settings) == run
