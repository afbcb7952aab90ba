"""What the docker driver asks of an Engine, and what it makes of the answers; its client is a fake."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import pytest
from docker.errors import APIError

from node.assignment import Assignment
from node.messaging.wire import PROTOCOL
from orchestrator.drivers.base import Exit
from orchestrator.drivers.docker import leftovers
from orchestrator.drivers.docker.container import Limits, options, product
from orchestrator.drivers.docker.driver import DockerDriver, exit_code, unfit
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.docker.mounts import lay_out
from orchestrator.drivers.docker.node_image import emulation_note, problem, user_of, version_note
from orchestrator.drivers.user import User
from orchestrator.errors import DriverError, HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.planning.assignments import assignments, seen_from_inside, write
from orchestrator.planning.keys import RunKeys
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Accelerated, Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.reading import parse
from orchestrator.scenario.sections.hardware import HardwareClass
from tests.fakes.docker import FACTS, IMAGE, FakeContainer, FakeDockerClient, answer
from tests.orchestrator.labels import prepared
from tests.texts import containing


@pytest.fixture
def plan() -> Plan:
    text = (
        "algorithm: {name: fedavg, rounds: 1}\ntopology: {edges: 0, devices: 1}\nhardware: {device: raspberry-pi-3}\n"
    )
    return make_plan(parse(text, "f.yaml"), prepared())


def prepared_in(directory: RunDirectory) -> Path:
    """The folder of the prepared data, beside the run."""
    return directory.path.parent / "prepared"


@pytest.fixture
def directory(tmp_path: Path, plan: Plan) -> RunDirectory:
    """A run's directory with the nodes' assignments and prepared data."""
    made = RunDirectory.create(tmp_path, "run")
    data = prepared_in(made)
    data.mkdir(mode=0o755)
    (data / "x_train.npy").write_bytes(b"")
    (data / "x_train.npy").chmod(0o644)
    made.shards.write_bytes(b"")
    made.socket.write_bytes(b"")
    keys = RunKeys.make([node.name for node in plan.nodes])
    for name, told in assignments(plan, made, keys, f"ipc://{made.socket}").items():
        write(seen_from_inside(told), made.nodes / f"{name}.json")
    return made


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeDockerClient:
    monkeypatch.delenv("EDGEBED_IMAGE", raising=False)
    monkeypatch.setattr("orchestrator.drivers.docker.driver.is_process_of", lambda pid, container: pid == os.getpid())
    monkeypatch.setattr("orchestrator.drivers.docker.driver.sees", lambda *_: True)
    return FakeDockerClient()


@pytest.fixture
async def driver(client: FakeDockerClient, directory: RunDirectory) -> AsyncIterator[DockerDriver]:
    made = DockerDriver(Engine(client), directory, prepared_in(directory))  # type: ignore[arg-type]
    await made.open()
    yield made
    await made.close()
    assert not any(thread.is_alive() for thread in made._threads)
    client.stream.close()


async def start(driver: DockerDriver, plan: Plan, directory: RunDirectory, name: str = "device-0") -> int:
    return (await driver.start(plan.node(name), directory.nodes / f"{name}.json", directory.logs / f"{name}.log")).pid


async def exit_of(driver: DockerDriver) -> Exit:
    async with asyncio.timeout(5):
        return await driver.exits.get()


# The driver


async def test_a_node_is_a_labelled_container_without_network_or_rights(
    driver: DockerDriver, client: FakeDockerClient, plan: Plan, directory: RunDirectory
) -> None:
    assert await start(driver, plan, directory) == os.getpid()
    asked = client.made[0].options
    assert (asked["image"], asked["command"]) == ("edgebed-node", ["/run/edgebed/assignment.json"])
    assert asked["labels"] == {
        "org.edgebed.run": directory.run,
        "org.edgebed.node": "device-0",
        "org.edgebed.directory": str(directory.path),
    }
    assert asked["environment"]["EDGEBED_RUN"] == directory.run
    assert (asked["network_mode"], asked["read_only"], asked["cap_drop"]) == ("none", True, ["ALL"])
    assert asked["security_opt"] == ["no-new-privileges:true"]
    assert asked["user"] == ("1000:1000" if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}")
    writable = [mount["Target"] for mount in asked["mounts"] if not mount["ReadOnly"]]
    assert writable == ["/run/edgebed/checkpoints"]


async def test_a_start_that_fails_after_it_was_cancelled_is_no_bug(
    driver: DockerDriver, plan: Plan, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, refuse = threading.Event(), threading.Event()
    unretrieved: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unretrieved.append(context))

    def create(*_: object) -> NoReturn:
        begun.set()
        refuse.wait(5)
        raise DriverError("the folder is gone")

    monkeypatch.setattr(driver._engine, "create", create)
    starting = asyncio.create_task(start(driver, plan, directory))
    await asyncio.to_thread(begun.wait, 5)
    starting.cancel()
    await asyncio.wait([starting])
    del starting  # whose traceback holds the future
    refuse.set()
    await driver.close()
    gc.collect()
    assert unretrieved == []


async def test_a_node_may_have_an_image_of_its_own_also_for_another_processor(
    client: FakeDockerClient, plan: Plan, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.drivers.docker.driver.emulated", lambda _: {"arm64"})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    labels = {"org.edgebed.protocol": str(PROTOCOL), "org.edgebed.version": "0.0.9"}
    client.known["board"] = {"Architecture": "arm64", "Config": {"Labels": labels, "User": "7:8"}}
    made = DockerDriver(Engine(client), directory, prepared_in(directory), ["board"])  # type: ignore[arg-type]
    await made.open()
    for own in (None, "board"):
        node = replace(plan.node("device-0"), image=own)
        await made.start(node, directory.nodes / "device-0.json", directory.logs / "device-0.log")
        client.made[-1].die(0)
        await exit_of(made)
    assert [[each.options[key] for key in ("image", "user", "group_add")] for each in client.made] == [
        ["edgebed-node", "1000:1000", [1000]],
        ["board", "7:8", [1000]],  # with this group both users reach the control plane's socket
    ]
    assert [note for note in made.notes() if "board" in note] == [
        containing(f"version 0.0.9, the orchestrator of {version('edgebed')}"),
        containing("nodes", "emulated (arm64 on amd64)"),
    ]
    await made.close()


@pytest.mark.parametrize("known", [{}, {"board": IMAGE | {"Architecture": "arm64"}}])
async def test_a_nodes_image_that_does_not_fit_is_refused_before_anything_starts(
    client: FakeDockerClient, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]
) -> None:
    monkeypatch.setattr("orchestrator.drivers.docker.driver.emulated", lambda _: set())
    client.known |= known
    with pytest.raises(
        HostError, match="let the Engine emulate arm64" if known else "no image 'board'.* in the scenario"
    ):
        await DockerDriver(Engine(client), directory, prepared_in(directory), ["board"]).open()  # type: ignore[arg-type]
    assert client.made == []


class TryingContainer(FakeContainer):
    """A container that tries an accelerator and ends. ``said``: its output."""

    said = b'{"cuda": {"name": "Tesla T4"}}\n'

    def start(self) -> None:
        if self._client.refuses is not None:
            raise self._client.refuses

    def wait(self, **_: Any) -> dict[str, int]:
        return {"StatusCode": 0}

    def logs(self, *, stdout: bool, stderr: bool) -> bytes:
        return self.said if stdout else b"a warning\n"

    def remove(self, **_: Any) -> None:
        self._client.gone.add(self.id)


def trying(client: FakeDockerClient, said: bytes = TryingContainer.said) -> None:
    """Let the next container be one that says this."""

    def create(image: str, command: list[str], **asked: Any) -> FakeContainer:
        made = TryingContainer(client, len(client.made) + 1, {"image": image, "command": command, **asked})
        made.said = said
        client.made.append(made)
        client.containers.create = client._create
        return made

    client.containers.create = create


@pytest.mark.parametrize("runtimes", [{}, {"nvidia": {}, "runc": {}}])
async def test_nodes_get_the_accelerators_of_their_host(
    client: FakeDockerClient, plan: Plan, directory: RunDirectory, runtimes: dict[str, Any]
) -> None:
    client.facts["Runtimes"] = runtimes
    trying(client)
    asked = [Accelerated(None, "cuda", ["device-0"])]
    made = DockerDriver(Engine(client), directory, prepared_in(directory), accelerated=asked)  # type: ignore[arg-type]
    await made.open()
    assert "device-0 trains on cuda, Tesla T4" in made.notes()
    node = replace(plan.node("device-0"), device="cuda")
    await made.start(node, directory.nodes / "device-0.json", directory.logs / "device-0.log")
    trial, container = (each.options for each in client.made)
    assert (trial["command"], trial["network_mode"], trial["read_only"]) == (["--try", "cuda"], "none", True)
    assert trial["labels"]["org.edgebed.run"] == directory.run  # `down` finds it
    assert client.made[0].id in client.gone
    for each in (trial, container):
        if runtimes:
            assert (each["runtime"], each["environment"]["NVIDIA_VISIBLE_DEVICES"]) == ("nvidia", "all")
        else:
            assert [dict(request) for request in each["device_requests"]] == [
                {"Driver": "", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}
            ]
    await made.close()


@pytest.mark.parametrize(
    ("refused", "said", "message"),
    [
        (
            None,
            b'{"cuda": {"problem": "torch 2.13.0 finds no GPU that it can use"}}',
            "on cuda, and torch 2.13.0 finds",
        ),
        (None, b"", "could not be tried: a warning"),
        (APIError("no", answer(500), "could not select device driver"), b"", "device-0 cannot train on cuda: .*select"),
    ],
)
async def test_an_accelerator_that_does_not_work_in_a_container_is_refused_before_nodes_start(
    client: FakeDockerClient, directory: RunDirectory, refused: Exception | None, said: bytes, message: str
) -> None:
    trying(client, said)
    client.refuses = refused
    asked = [Accelerated(None, "cuda", ["device-0"])]
    with pytest.raises(HostError, match=message):
        await DockerDriver(Engine(client), directory, prepared_in(directory), accelerated=asked).open()  # type: ignore[arg-type]
    assert client.gone == {client.made[0].id}


@pytest.mark.parametrize(("code", "told"), [(0, 0), (3, 3), (143, -15)])
def test_the_code_of_an_exit_is_negative_after_a_signal(code: int, told: int) -> None:
    assert exit_code(code) == told


async def test_what_ended_needs_no_signal(
    driver: DockerDriver, client: FakeDockerClient, plan: Plan, directory: RunDirectory
) -> None:
    await start(driver, plan, directory)
    client.gone.add(client.made[0].id)
    await driver.kill("device-0")
    assert client.made[0].signals == ["SIGKILL"]
    client.made[0].die(0)


async def test_a_container_that_ends_at_once_is_an_exit_and_its_words_are_kept(
    driver: DockerDriver, client: FakeDockerClient, plan: Plan, directory: RunDirectory
) -> None:
    client.ends_at_once = True
    assert await start(driver, plan, directory) == 0  # nobody saw its process
    async with asyncio.timeout(10):
        assert await driver.exits.get() == Exit("device-0", NodeHandle(0), 1)
    assert (directory.logs / "device-0.log").read_text() == "hello\n"


async def test_a_thawed_process_finds_a_signal(
    driver: DockerDriver, client: FakeDockerClient, plan: Plan, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(driver, plan, directory)
    sent: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
    await driver.pause("device-0")
    await driver.resume("device-0")
    monkeypatch.undo()
    assert client.made[0].signals == ["pause", "unpause"]
    assert [(pid, number.name) for pid, number in sent] == [(os.getpid(), "SIGCONT")]


async def test_a_frozen_node_that_was_killed_needs_no_thaw(
    driver: DockerDriver, client: FakeDockerClient, plan: Plan, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> NoReturn:
        raise ProcessLookupError

    def refuse() -> NoReturn:
        raise APIError("gone", answer(409), "the container is not paused")

    await start(driver, plan, directory)
    await driver.pause("device-0")
    monkeypatch.setattr(os, "kill", gone)
    monkeypatch.setattr(client.made[0], "unpause", refuse)
    await driver.resume("device-0")
    monkeypatch.undo()


@pytest.mark.parametrize("first", ["oom", "die"])
async def test_a_node_above_its_memory_limit_ends_out_of_memory(
    driver: DockerDriver,
    client: FakeDockerClient,
    plan: Plan,
    directory: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
) -> None:
    """The Engine reports both in any order."""
    await start(driver, plan, directory)
    container = client.made[0]
    out_of_memory = {"Action": "oom", "Actor": {"ID": container.id, "Attributes": container.labels}}
    if first == "oom":
        client.stream.put(out_of_memory)
    container.die(137)
    if first == "die":
        client.stream.put(out_of_memory)
    assert (await exit_of(driver)).out_of_memory
    await start(driver, plan, directory)
    monkeypatch.setattr("orchestrator.drivers.docker.driver.OOM_NOTICE", 0.01)
    client.made[1].die(137)
    assert not (await exit_of(driver)).out_of_memory


async def test_a_memory_kill_without_an_event_is_found_in_the_count(
    driver: DockerDriver,
    client: FakeDockerClient,
    plan: Plan,
    directory: RunDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Podman sends no event "oom"."""
    group = tmp_path / "group"
    group.mkdir()
    monkeypatch.setattr("orchestrator.drivers.docker.memory_watch.memory_group", lambda pid, container: group)
    await start(driver, plan, directory)
    (group / "memory.events").write_text("oom 1\noom_kill 1\n")
    client.made[0].die(137)
    assert (await exit_of(driver)).out_of_memory


async def test_an_engine_with_other_files_is_refused(
    driver: DockerDriver, plan: Plan, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.drivers.docker.driver.sees", lambda *_: False)
    with pytest.raises(HostError, match="does not see the files"):
        await start(driver, plan, directory)


def test_podman_is_known_by_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it limits processes where the kernel has no such controller."""
    podman = FACTS | {"ServerVersion": "4.3.1", "BuildahVersion": "1.28.2"}
    assert product(podman) == "Podman 4.3.1"
    assert product(FACTS | {"ServerVersion": "20.10.24"}) == "20.10.24"
    monkeypatch.setattr("orchestrator.drivers.docker.container.has_controller", lambda name: False)
    assert not Limits.of(podman).processes
    assert Limits.of(FACTS).processes


async def test_the_driver_is_lost_with_the_engine(driver: DockerDriver, client: FakeDockerClient) -> None:
    client.stream.close()
    async with asyncio.timeout(5):
        await driver.lost.wait()


async def test_a_start_that_was_given_up_leaves_no_container(
    driver: DockerDriver, client: FakeDockerClient, plan: Plan, directory: RunDirectory
) -> None:
    client.may_start.clear()
    given_up = asyncio.create_task(start(driver, plan, directory))
    await asyncio.to_thread(client.starting.wait, 5)
    given_up.cancel()
    closing = asyncio.create_task(driver.close())
    await asyncio.wait([given_up])
    assert not closing.done()
    client.may_start.set()
    await closing
    assert client.gone == {client.made[0].id}


@pytest.mark.parametrize(
    ("said", "kind", "match"),
    [
        ("x: no space left on device", HostError, "make room"),
        ("something else", DriverError, "starting device-0: the Docker Engine"),
    ],
)
async def test_refusals_in_plain_words(
    driver: DockerDriver,
    client: FakeDockerClient,
    plan: Plan,
    directory: RunDirectory,
    said: str,
    kind: Any,
    match: str,
) -> None:
    client.refuses = APIError("500", answer(500), said)
    with pytest.raises(kind, match=match):
        await start(driver, plan, directory)


async def test_an_engine_that_does_not_fit_is_refused_before_anything_starts(
    client: FakeDockerClient, directory: RunDirectory
) -> None:
    client.known.clear()
    with pytest.raises(HostError, match=r"has no image 'edgebed-node': .*build it"):
        await DockerDriver(Engine(client), directory, prepared_in(directory)).open()  # type: ignore[arg-type]
    assert client.made == []


# Its parts


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Architecture": "arm64"}, "for arm64, this host is amd64"),
        ({"Config": {"Labels": {"org.edgebed.protocol": "0"}}}, f"speak protocol 0, the orchestrator {PROTOCOL}"),
        ({"Config": {"Labels": None}}, "not a node image"),
    ],
)
def test_images_that_do_not_fit(change: dict[str, Any], said: str) -> None:
    assert problem("mine", IMAGE, "x86_64") is None
    found = problem("mine", IMAGE | change, "x86_64")
    assert found is not None
    assert said in found.what
    assert found.commands == ("docker build --file images/node/Dockerfile --tag mine .",)


def test_a_nodes_own_image_may_be_for_a_processor_that_is_emulated() -> None:
    board = IMAGE | {"Architecture": "arm64"}
    assert problem("mine", board, "x86_64", {"arm64"}) is None
    assert problem("mine", IMAGE, "x86_64", set()) is None
    said = str(problem("mine", board, "x86_64", set()))
    assert "Engine emulate arm64 (`apt-get install qemu-user-static" in said
    assert emulation_note("mine", board, "aarch64") is emulation_note("mine", IMAGE, "x86_64") is None


def test_an_image_of_another_version_is_noted() -> None:
    assert version_note("mine", IMAGE, "0.1.0") is None
    assert version_note("mine", IMAGE, "0.2.0") == containing("version 0.1.0, the orchestrator of 0.2.0")


@pytest.mark.parametrize(
    ("caller", "own", "expected"),
    [
        ((1001, 100), "1000:1000", (1001, 100)),
        ((0, 0), "1000:1000", (1000, 1000)),
        ((0, 0), "1000", (1000, 1000)),
        ((0, 0), "", (65532, 65532)),
        ((0, 0), "root", (65532, 65532)),
        ((0, 0), "0:0", (65532, 65532)),
    ],
)
def test_no_one_runs_as_root(caller: tuple[int, int], own: str, expected: tuple[int, int]) -> None:
    assert user_of({"Config": {"User": own}}, *caller) == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"KernelVersion": "6.6.12-linuxkit"}, "another kernel (6.6.12-linuxkit)"),
        ({"OSType": "windows"}, "another kernel"),
        ({"SecurityOptions": ["name=seccomp", "name=rootless"]}, "without root"),
        ({"SecurityOptions": ["name=userns"]}, "userns-remap"),
    ],
)
def test_engines_that_do_not_fit(change: dict[str, Any], said: str) -> None:
    assert unfit(FACTS, os.uname().release) is None
    assert said in str(unfit(FACTS | change, os.uname().release))


def test_limits_are_those_of_the_hardware() -> None:
    board = HardwareClass("board", speed=0.1, cores=1.5, memory=2**30)
    assert Limits().of_hardware(board) == {
        "pids_limit": 256,
        "cpu_period": 100_000,
        "cpu_quota": 150_000,
        "mem_limit": 2**30,
        "memswap_limit": 2**30,
    }
    assert Limits().of_hardware(HardwareClass("host")) == {"pids_limit": 256}
    assert Limits(cpu=False, swap=False).of_hardware(board) == {"pids_limit": 256, "mem_limit": 2**30}


def test_limits_that_cannot_be_held_are_noted() -> None:
    assert Limits.of(FACTS) == Limits()
    assert Limits().notes() == []
    assert Limits.of({}).notes() == [
        containing("Docker Engine's host lacks"),
        containing("node's processes is not", "Engine's"),
    ]
    (said,) = Limits.of(FACTS | {"SwapLimit": False}).notes()
    assert "swapping" in said


def test_paths_inside_are_those_that_are_mounted(directory: RunDirectory, plan: Plan) -> None:
    data = prepared_in(directory)
    given = lay_out(directory, "device-0", directory.nodes / "device-0.json", data, User(os.getuid(), os.getgid()), 8)
    targets = {mount["Target"]: Path(mount["Source"]) for mount in given}
    inside = Assignment.load(directory.nodes / "device-0.json")
    assert targets[inside.data.directory] == data
    assert targets[inside.data.shards] == directory.shards
    assert targets[inside.checkpoint_directory] == directory.checkpoints_of("device-0")
    assert targets[str(Path(inside.control_endpoint.removeprefix("ipc://")).parent)] == directory.control
    asked = options(plan.nodes[0], "run", directory.path, 1, User(5, 6), given, Limits())
    assert (asked["user"], asked["name"]) == ("5:6", "run-cloud-1")


def test_only_the_users_own_assignment_is_readable(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    owned: list[tuple[str, int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: owned.append((path.name, uid, gid)))
    assignment = directory.nodes / "device-0.json"
    lay_out(directory, "device-0", assignment, prepared_in(directory), User(5, 6), 8)
    assert owned == [("device-0.json", 5, 6), ("device-0", 5, 6), ("socket", -1, 8)]
    assert assignment.stat().st_mode & 0o077 == 0


def test_data_that_nodes_may_not_read_is_refused(directory: RunDirectory) -> None:
    data = prepared_in(directory)
    hidden = data / "x_train.npy"
    hidden.chmod(0o600)
    stranger = User(os.getuid() + 1, os.getgid() + 1)
    with pytest.raises(HostError, match=rf"not read {hidden}: `chmod --recursive a\+rX"):
        lay_out(directory, "device-0", directory.nodes / "device-0.json", data, stranger, 8)


@pytest.mark.parametrize(
    ("address", "said"),
    [("unix:///nowhere/socket", "start it"), ("tcp://192.0.2.1:2375", "own Engine"), ("ssh://there", "own Engine")],
)
def test_no_engine(monkeypatch: pytest.MonkeyPatch, address: str, said: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(HostError, match=said):
        Engine.connect()
    assert leftovers.listed() == []
