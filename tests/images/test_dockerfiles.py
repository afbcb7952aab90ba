"""The Dockerfiles say of themselves what the code says, and give a node or an agent no more than it needs."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from node.messaging.wire import PROTOCOL
from orchestrator.drivers.docker.node_image import PROTOCOL_LABEL, VERSION_LABEL
from orchestrator.drivers.hosts.agents import channel
from orchestrator.drivers.swarm.agent_image import CHANNEL_LABEL
from orchestrator.verbs.init import PACKAGES

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NODES = ("node", "node-jetson")
IMAGES = (*NODES, "agent")
PROTOCOLS = dict.fromkeys(NODES, (PROTOCOL_LABEL, str(PROTOCOL))) | {"agent": (CHANNEL_LABEL, str(channel.PROTOCOL))}


def instructions(image: str) -> list[tuple[str, str]]:
    """(instruction, arguments) in order, continued lines joined, comments left out."""
    text = (ROOT / "images" / image / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined)]


def arguments(image: str, instruction: str) -> list[str]:
    return [rest for word, rest in instructions(image) if word == instruction]


@pytest.mark.parametrize("image", IMAGES)
def test_labels_agree_with_the_code(image: str) -> None:
    labels = dict(re.findall(r'(\S+)="([^"]*)"', " ".join(arguments(image, "LABEL"))))
    assert labels == dict([PROTOCOLS[image], (VERSION_LABEL, VERSION)])


@pytest.mark.parametrize("image", NODES)
def test_both_stages_stand_upon_the_given_base(image: str) -> None:
    assert arguments(image, "FROM") == ["${BASE} AS packages", "${BASE}"]


@pytest.mark.parametrize("image", ["agent", "edgebed"])
def test_an_agent_stands_upon_the_base_and_the_commands_that_make_links(image: str) -> None:
    assert arguments(image, "FROM") == ["${BASE} AS commands", "commands AS packages", "commands"]
    assert "install --yes --no-install-recommends iproute2 " in arguments(image, "RUN")[0]


@pytest.mark.parametrize("image", ["agent", "edgebed"])
def test_an_image_with_all_of_edgebed_knows_its_version(image: str) -> None:
    assert f"Name: edgebed\\nVersion: {VERSION}\\n'" in arguments(image, "RUN")[-1]


@pytest.mark.parametrize("image", [*IMAGES, "edgebed"])
def test_the_modules_that_a_build_imports_exist(image: str) -> None:
    imported = re.findall(r"(?:import |, )((?:node|netem|orchestrator)\.[\w.]+)", " ".join(arguments(image, "RUN")))
    assert [each for each in imported if find_spec(each) is None] == []


def test_tasks_of_a_sweep_stand_upon_a_node_and_have_all_of_the_project() -> None:
    assert arguments("edgebed", "ARG")[0] == "BASE=edgebed-node"
    assert arguments("edgebed", "USER") == ["0:0", arguments("node", "USER")[0]]
    requirements, *packages = copied("edgebed")
    assert (requirements, packages) == ("images/edgebed/requirements.txt", list(PACKAGES))
    assert arguments("edgebed", "ENTRYPOINT") == ['["edgebed"]']


def test_a_plain_build_has_a_base_of_a_fixed_python_but_no_jetson_is_guessed() -> None:
    assert arguments("node", "ARG")[0] == arguments("agent", "ARG")[0] == "BASE=python:3.11-slim-bookworm"
    assert arguments("node-jetson", "ARG")[0] == "BASE"


def copied(image: str) -> list[str]:
    """What of the project a Dockerfile copies."""
    return [source for each in arguments(image, "COPY") if "--from" not in each for source in each.split()[:-1]]


@pytest.mark.parametrize("image", NODES)
def test_of_the_project_only_what_nodes_and_plug_ins_need_goes_in(image: str) -> None:
    requirements, wheels, *packages = copied(image)
    assert re.fullmatch(r"images/requirements-\S+\.txt", requirements)
    assert (wheels, packages) == ("build/wheels/*.whl", ["node", "edgebed"])


def test_all_of_the_project_goes_into_an_agent_and_nothing_else_can_go_in() -> None:
    requirements, wheels, *packages = copied("agent")
    assert (requirements, wheels) == ("images/agent/requirements.txt", "build/wheels/agent/*.whl")
    assert sorted(packages) == list(PACKAGES)
    everything, *let_in, without = (ROOT / ".dockerignore").read_text().splitlines()
    assert (everything, without) == ("*", "**/__pycache__")
    assert set(let_in) == {f"!{each}" for each in (*PACKAGES, "images", "build/wheels")}


@pytest.mark.parametrize("image", IMAGES)
def test_the_last_stage_runs_nothing_while_it_is_built(image: str) -> None:
    """What the first stage needed, and pip's settings, stay behind in it."""
    words = [word for word, _ in instructions(image)]
    last = words[len(words) - words[::-1].index("FROM") :]
    assert "RUN" not in last
    assert "ARG" not in last


@pytest.mark.parametrize("image", NODES)
def test_a_node_is_not_root_and_can_be_asked_whether_it_lives(image: str) -> None:
    assert arguments(image, "USER") == ["1000:1000"]
    assert len(arguments(image, "HEALTHCHECK")) == 1
    assert re.fullmatch(r'\["python3?", "-P", "-m", "node"\]', arguments(image, "ENTRYPOINT")[0])


def test_an_agent_is_root() -> None:
    assert arguments("agent", "USER") == ["0:0"]
    assert arguments("agent", "ENTRYPOINT") == ['["python", "-P", "-m", "orchestrator.agent"]']


def test_both_images_are_asked_alike() -> None:
    assert arguments("node", "HEALTHCHECK") == arguments("node-jetson", "HEALTHCHECK")


@pytest.mark.parametrize("image", IMAGES)
def test_packages_come_in_exact_versions(image: str) -> None:
    """From a requirements file; the one exception is a Jetson's own wheel of torch, and the NumPy that fits it."""
    for run in arguments(image, "RUN"):
        for install in re.findall(r"pip install [^&;]*", run):
            assert "--requirement" in install or install.endswith('"${TORCH}" numpy')
