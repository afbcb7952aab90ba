"""The image of agents, from attributes as the Engine gives them, shortened."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.drivers.hosts.agents.channel import PROTOCOL
from orchestrator.drivers.swarm.agent_image import CHANNEL_LABEL, image_name, problem

IMAGE: dict[str, Any] = {"Architecture": "amd64", "Config": {"Labels": {CHANNEL_LABEL: str(PROTOCOL)}}}


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (None, "this host has no image 'mine'"),
        (IMAGE | {"Architecture": "arm64"}, "'mine' of agents is for arm64"),
        (IMAGE | {"Config": {"Labels": None}}, f"agents: it has no label {CHANNEL_LABEL}"),
        (IMAGE | {"Config": {"Labels": {CHANNEL_LABEL: "0"}}}, f"speak protocol 0, the orchestrator {PROTOCOL}"),
    ],
)
def test_images_that_do_not_fit(image: dict[str, Any] | None, said: str) -> None:
    assert problem("mine", IMAGE, "x86_64") is None
    found = problem("mine", image, "x86_64")
    assert found is not None
    assert said in found.what
    assert "`images/build.sh agent`" in found.remedy
    assert "`edgebed image`" in found.remedy
    assert found.commands == ("docker build --file images/agent/Dockerfile --tag mine .",)


def test_the_name_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEBED_AGENT_IMAGE", raising=False)
    assert image_name() == "edgebed-agent"
    monkeypatch.setenv("EDGEBED_AGENT_IMAGE", "registry.example/agent:1")
    assert image_name() == "registry.example/agent:1"
