from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.hosts.agents.channel import AgentChannel
from orchestrator.drivers.hosts.agents.delivery import Message
from orchestrator.drivers.hosts.agents.listener import ANEW, Agents
from orchestrator.drivers.swarm import standing
from orchestrator.drivers.swarm.standing import NAME, Access, Standing, access, outdated, taken, write_keys
from orchestrator.errors import HostError
from orchestrator.planning.keys import keypair
from tests.fakes.docker import FakeEngine
from tests.fakes.swarm import FakeCluster
from tests.orchestrator.agent.stage import LOOPBACK

SWARM = "s0"
FOUND = Standing("key", standing.own_version(), "image", Path("/keys"))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def left() -> Access:
    """Agents that this user has left running."""
    keys = Access(keypair(), keypair(), NAME)
    write_keys(SWARM, keys)
    return keys


def asked(labels: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> Access:
    """What a run with the image "image" may use."""
    monkeypatch.setattr(Engine, "connect", FakeEngine)
    monkeypatch.setattr(standing, "identity_of", lambda engine, reference: reference)
    return access(FakeCluster(standing=labels), "image", stack)  # type: ignore[arg-type]


def test_no_one_else_can_read_the_keys(state: Path) -> None:
    (state / "edgebed" / "agents").mkdir(parents=True)
    file = state / "edgebed" / "agents" / f"{SWARM}.json"
    file.write_text("old")
    file.chmod(0o644)
    left()
    assert file.stat().st_mode & 0o777 == 0o600
    standing.forget_keys(SWARM)
    assert not file.exists()


def test_labels_report_what_was_left_running() -> None:
    assert Standing.of(FOUND.labels() | {"org.edgebed.directory": "/keys"}) == FOUND
    assert Standing.of({"org.edgebed.run": NAME}) is None  # what removes their remains


def test_one_run_at_a_time_uses_them() -> None:
    keys = left()
    with ExitStack() as first, ExitStack() as second:
        assert taken(SWARM, keys.server.public, first) == keys
        assert taken(SWARM, keys.server.public, second) is None
        first.close()
        assert taken(SWARM, keys.server.public, second) == keys


def test_without_the_secret_key_a_run_has_agents_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = FOUND.labels()
    with ExitStack() as stack:
        assert asked(None, monkeypatch, stack).service == ""
        assert asked(labels, monkeypatch, stack).service == ""  # nobody has left keys
        left()
        assert asked(labels, monkeypatch, stack).service == ""  # they are for other agents


def test_who_has_keys_for_other_agents_does_not_keep_theirs_from_anybody() -> None:
    keys = left()
    with ExitStack() as first, ExitStack() as second:
        assert taken(SWARM, "the key of another server", first) is None
        assert taken(SWARM, keys.server.public, second) == keys


def test_a_run_uses_those_of_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = left()
    with ExitStack() as stack:
        assert asked(replace(FOUND, server=keys.server.public).labels(), monkeypatch, stack) == keys


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (replace(FOUND, version="0.0.9, protocol 3"), r"of version 0\.0\.9, protocol 3, this is "),
        (replace(FOUND, image="another"), "another image"),
    ],
)
def test_those_of_another_version_are_refused(found: Standing, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outdated(FOUND, "image") is None
    keys = left()
    with ExitStack() as stack, pytest.raises(HostError, match=what) as raised:
        asked(replace(found, server=keys.server.public).labels(), monkeypatch, stack)
    assert raised.value.commands == tuple(ANEW)
    with ExitStack() as stack:
        assert taken(SWARM, keys.server.public, stack) == keys  # the refused run lets go of them


def test_keys_that_cannot_be_read() -> None:
    keys = left()
    file = standing.keys_folder() / f"{SWARM}.json"
    file.write_text("{}")
    with pytest.raises(HostError, match="does not hold the keys"):
        standing.is_ours(SWARM, keys.server.public)


async def hears(keys: Access, port: int, waits: float) -> bool:
    """Let an agent wait for an orchestrator. Returns whether it was called before it gave up."""
    channel = AgentChannel(f"tcp://{LOOPBACK}:{port}", keys.agents, keys.server.public, ignore)
    try:
        await channel.serve({"host": "pc-1"}, never, lease=0.5, waits=waits)
        return channel.has_contact
    finally:
        await channel.close()


async def never(verb: str, arguments: Message) -> None:
    raise AssertionError(verb)


def ignore(*_: object) -> None:
    pass


async def test_an_agent_that_waits_does_not_receive_a_stranger() -> None:
    keys = left()
    stranger = Agents(keypair(), keys.agents.public, 10.0)
    try:
        assert not await hears(keys, stranger.listen(LOOPBACK), waits=2.5)  # a beat is sent each second
        assert stranger.online == []
    finally:
        await stranger.close()


async def test_an_agent_that_waits_receives_who_has_the_secret_key_and_then_has_a_lease() -> None:
    keys = left()
    agents = Agents(keys.server, keys.agents.public, 10.0)
    waiting = asyncio.create_task(hears(keys, agents.listen(LOOPBACK), waits=60.0))
    try:
        assert await agents.wait_for(["pc-1"], 10.0) == []
        assert agents.online == ["pc-1"]
        assert await waiting  # beats are a second apart, and its lease is shorter
    finally:
        await agents.close()
