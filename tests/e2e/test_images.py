"""The images of nodes and agents, in a Docker Engine: what is in them, what they say, and a node that trains.

EDGEBED_NODE_IMAGES names images of nodes that are there already, for example the one for boards beside this machine's
own; EDGEBED_BUILD_IMAGES=1 builds this machine's, which takes minutes, upon EDGEBED_BASE or a base that mmdebstrap
makes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient
from docker.models.containers import Container

from node.assignment import Timeouts
from node.learning.data.datasets import prepare
from node.process.main import EXIT_DONE
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.swarm.agent_image import problem
from tests.e2e.engine import Place, at
from tests.e2e.harness import FEW, up
from tests.node.process.test_main import Run, running
from tests.programs import give_up, missing

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
LARGEST = {"amd64": 1_100_000_000, "arm64": 900_000_000}  # bytes
LARGEST_AGENT = 320_000_000  # bytes
SECOND = 1_000_000_000  # in the Engine's nanoseconds
PATIENCE = 60.0  # s
PATIENT = Timeouts(beat=0.1, lost_after=PATIENCE, lease=PATIENCE)  # a board's image is emulated here, and slow
BUILDING = 900.0


if not {"EDGEBED_NODE_IMAGES", "EDGEBED_BUILD_IMAGES"} & os.environ.keys():
    pytest.skip(
        "no images asked for: EDGEBED_NODE_IMAGES names some, EDGEBED_BUILD_IMAGES=1 builds one",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def client(place: Place) -> Iterator[DockerClient]:
    with at(place.address), closing(Engine.connect()) as engine:
        yield engine.client


@pytest.fixture(scope="module", params=os.environ.get("EDGEBED_NODE_IMAGES", "").split() or ["edgebed-node"])
def image(client: DockerClient, request: pytest.FixtureRequest) -> str:
    if "EDGEBED_NODE_IMAGES" not in os.environ:
        build(client, request.getfixturevalue("base"))
    return str(request.param)


@pytest.fixture(scope="module")
def agent_image(client: DockerClient, request: pytest.FixtureRequest) -> str:
    if "EDGEBED_BUILD_IMAGES" not in os.environ:
        pytest.skip("no image of agents asked for: EDGEBED_BUILD_IMAGES=1 builds one")
    build(client, request.getfixturevalue("base"), "agent")
    return "edgebed-agent"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare("digits", tmp_path_factory.mktemp("data")).directory


@pytest.fixture(scope="module")
def base(client: DockerClient) -> str:
    """The image to build upon."""
    if "EDGEBED_BASE" in os.environ:
        return os.environ["EDGEBED_BASE"]
    if lacking := missing(["mmdebstrap"]):
        give_up(f"no base for the images, which EDGEBED_BASE may name: {lacking}")
    architecture = str(client.version()["Arch"])
    subprocess.run([ROOT / "images" / "base.sh", architecture], check=True, timeout=BUILDING)
    return f"edgebed-base:{architecture}"


def build(client: DockerClient, base: str, *kind: str) -> None:
    settings = os.environ | {"BASE": base, "PIP": f"{sys.executable} -m pip"}
    command: list[str | Path] = [ROOT / "images" / "build.sh", *kind, str(client.version()["Arch"])]
    subprocess.run(command, env=settings, check=True, timeout=BUILDING)


def outcome(client: DockerClient, image: str, *command: str, **options: Any) -> tuple[int, str]:
    """Exit code and output of a container's end."""
    container = client.containers.run(image, list(command), detach=True, network_mode="none", **options)
    try:
        code = container.wait(timeout=PATIENCE)["StatusCode"]
        return code, container.logs().decode()
    finally:
        container.remove(force=True)


def test_the_size(client: DockerClient, image: str) -> None:
    attributes = client.images.get(image).attrs
    assert attributes["Size"] < LARGEST[attributes["Architecture"]]


def test_without_an_assignment_it_says_so_in_one_line(client: DockerClient, image: str) -> None:
    assert outcome(client, image) == (2, "usage: python -m node ASSIGNMENT.json\n")
    code, output = outcome(client, image, "/assignment.json")
    assert (code, output.count("\n")) == (1, 1)
    assert output.startswith("/assignment.json: cannot be read")


def test_nothing_is_in_it_that_a_node_does_not_need(client: DockerClient, image: str) -> None:
    look = (
        "ls /opt/edgebed; id -u; for each in cc gcc c++ make pip git; do command -v $each; done;"
        "find /opt/venv -type d -name tests; for each in orchestrator netem pandas pydantic docker; do"
        ' python -c "import $each" 2> /dev/null && echo $each; done; true'
    )
    assert outcome(client, image, "-c", look, entrypoint="sh") == (0, "edgebed\nnode\n1000\n")


def test_an_agent_says_its_usage_in_one_line(client: DockerClient, agent_image: str) -> None:
    usage = "usage: python -m orchestrator.agent work|serve MODULE [WORD]...|task MODULE [WORD]...\n"
    assert outcome(client, agent_image) == (1, usage)


def test_an_agent_has_what_it_needs_and_no_torch(client: DockerClient, agent_image: str) -> None:
    attributes = client.images.get(agent_image).attrs
    assert attributes["Size"] < LARGEST_AGENT
    assert problem(agent_image, attributes, client.info()["Architecture"]) is None
    look = (
        "id -u; for each in ip tc bridge nsenter unshare env cc gcc c++ make pip git; do"
        " command -v $each > /dev/null && echo $each; done; for each in torch click rich; do"
        ' python -c "import $each" 2> /dev/null && echo $each; done;'
        " python -c \"from importlib.metadata import version; print(version('edgebed'))\""
    )
    there = ["0", "ip", "tc", "bridge", "nsenter", "unshare", "env", version("edgebed")]
    assert outcome(client, agent_image, "-c", look, entrypoint="sh") == (0, "\n".join([*there, ""]))


async def test_its_health_is_that_of_its_event_loop(
    client: DockerClient, image: str, tmp_path: Path, data: Path
) -> None:
    async with running(tmp_path, data) as run, started(client, image, run, "device-1", tmp_path, data) as container:
        await asyncio.wait_for(run.until("device-1", type="register"), PATIENCE)
        await until_health(container, "healthy")
        await asyncio.to_thread(container.kill, "SIGSTOP")
        await until_health(container, "unhealthy")
        await asyncio.to_thread(container.kill, "SIGCONT")
        await until_health(container, "healthy")


async def test_it_trains_with_processes_outside(client: DockerClient, image: str, tmp_path: Path, data: Path) -> None:
    """FedAvg of a cloud and a device in this process and a device in a container, over loopback."""
    async with running(tmp_path, data) as run, started(client, image, run, "device-1", tmp_path, data) as container:
        register = await asyncio.wait_for(run.until("device-1", type="register"), PATIENCE)
        assert register["pid"] == 1
        for name in ("cloud", "device-0"):
            run.start(name)
            await run.until(name, type="register")
        await run.say("start", "cloud", "device-0", "device-1")
        assert [await run.code(name) for name in ("cloud", "device-0")] == [EXIT_DONE, EXIT_DONE]
        assert (await run.until("device-1", type="done"))["reason"] == "rounds"
        assert (await asyncio.to_thread(container.wait, timeout=PATIENCE))["StatusCode"] == EXIT_DONE
        traffic = [message for message in run.heard["device-1"] if message["type"] == "traffic"][-1]["peers"]
        counts = {(row["kind"], row["direction"]): row["messages"] for row in traffic if row["messages"]}
        assert counts["model", "received"] == counts["update", "sent"] == 2
        assert not [message for message in run.heard["cloud"] if message.get("name") in ("bad_message", "lost")]


def test_a_whole_run_is_made_of_it(
    client: DockerClient, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if client.images.get(image).attrs["Architecture"] != client.version()["Arch"]:
        pytest.skip("the image of a run is one for this host")
    monkeypatch.setenv("EDGEBED_IMAGE", image)
    result = up(tmp_path, FEW, "--driver", "docker")
    assert (result.code, result.summary["rounds"]) == (0, 3), result.errors


@asynccontextmanager
async def started(
    client: DockerClient, image: str, run: Run, name: str, folder: Path, data: Path
) -> AsyncIterator[Container]:
    """A node in a container, in the host's network; what it printed is shown if the test fails."""
    container = await asyncio.to_thread(start, client, image, run, name, folder, data)
    try:
        yield container
    finally:
        print((await asyncio.to_thread(container.logs)).decode())
        await asyncio.to_thread(container.remove, force=True)


def start(client: DockerClient, image: str, run: Run, name: str, folder: Path, data: Path) -> Container:
    assignment = folder / f"{name}.json"
    assignment.write_text(run.assignment(name, checkpoint_directory="", timeouts=PATIENT).to_json())
    for path, mode in ((folder, 0o755), (folder / "control", 0o666), (assignment, 0o644), (data, 0o755)):
        path.chmod(mode)  # the container's user is not the one who runs the tests
    mounts = {str(path): {"bind": str(path), "mode": "ro"} for path in (folder, data)}
    return client.containers.run(
        image,
        [str(assignment)],
        detach=True,
        network_mode="host",
        read_only=True,
        volumes=mounts,
        healthcheck={"interval": SECOND, "timeout": 20 * SECOND, "start_period": 0, "retries": 1},
    )


async def until_health(container: Container, wanted: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            await asyncio.to_thread(container.reload)
            state = container.attrs["State"]
            assert state["Status"] == "running"
            if state["Health"]["Status"] == wanted:
                return
            await asyncio.sleep(0.2)
