"""The host's side of a run in a guest. The guest is a script in place of the kernel."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edgebed.testing.host import wait_for
from orchestrator.drivers.virtual import kernel
from orchestrator.drivers.virtual.guest import FOLDER, MESSAGES
from orchestrator.errors import HostError
from orchestrator.guest.messages import Messages, RemoteView
from orchestrator.host.process.user_socket import ask
from orchestrator.planning.making import make_plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.run import in_guest
from orchestrator.run.display.snapshot import Clock, Snapshot, View
from orchestrator.run.in_guest import HostSide
from orchestrator.run.options import RunOptions
from orchestrator.run.resume import Past
from orchestrator.run.tasks import Ending
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared

SCENARIO = """\
name: small
algorithm: {name: hierfavg, rounds: 5}
topology: {edges: 1, devices_per_edge: 2}
driver: virtual
"""
PATIENCE = 30.0  # s
LISTEN = f"echo '[\"listening\"]' >>{MESSAGES}"
EVENT = (1.5, "cloud", "round", 1, None, '{"phase": "start"}')
SNAPSHOT = Snapshot(
    t=2.5,
    round=1,
    rounds_total=5,
    nodes_up=3,
    nodes_total=4,
    tiers={"device": (1, 2), "edge": (1, 1), "cloud": (1, 1)},
    value=0.5,
    traffic={("emulated", "edge-cloud"): 1000.0, ("emulated", "device-edge"): 0.0},
    failed={"losses during the run": "too many"},
)


class KeptView(View):
    """A view that keeps what it shows."""

    def __init__(self) -> None:
        self.shown: list[Snapshot | str] = []
        self.clock: Clock = lambda: 0.0

    def keep_time(self, clock: Clock) -> None:
        self.clock = clock

    def update(self, snapshot: Snapshot) -> None:
        self.shown.append(snapshot)

    def line(self, text: str) -> None:
        self.shown.append(f"{self.clock():g}: {text}")


class Hosted:
    """A run whose guest is a script. Its working directory is the folder that both sides use."""

    def __init__(self, tmp_path: Path) -> None:
        plan = make_plan(parse(SCENARIO, "small.yaml"), prepared())
        self.prepared = tmp_path / "prepared"
        self.prepared.touch()
        self.directory = RunDirectory.create(tmp_path / "runs", "small")
        self.record = Record.create(self.directory.path, json.dumps(plan.to_json()), {})
        self.view = KeptView()
        self.side = HostSide(plan, self.directory, self.record, self.view)
        self._kernel = tmp_path / "cache" / "kernel" / f"6.12-{kernel.fingerprint()}" / "linux"
        self._kernel.parent.mkdir(parents=True)

    def script(self, *lines: str, listens: bool = True) -> None:
        """What the guest does: ``send FILE`` appends its messages. It ``listens`` from its start on, or not yet."""
        if listens:
            lines = (LISTEN, *lines)
        send = f'send() {{ cat "$1" >>{MESSAGES}; }}'
        self._kernel.write_text("\n".join(["#!/bin/sh", send, *lines, ""]))
        self._kernel.chmod(0o755)

    def write(self, *messages: list[Any]) -> str:
        """Write messages to a file, and return its quoted name."""
        self.prepared.write_text("".join(json.dumps(message) + "\n" for message in messages))
        return shlex.quote(str(self.prepared))

    async def execute(self, options: RunOptions | None = None, past: Past | None = None) -> Ending:
        return await asyncio.wait_for(self.side.execute(options or RunOptions(), past), PATIENCE)

    def ask(self, request: dict[str, Any]) -> asyncio.Future[dict[str, Any] | None]:
        """Send a user's command to the run."""
        return asyncio.ensure_future(asyncio.to_thread(ask, self.directory.commands, request))

    async def booted(self) -> None:
        """Wait until the script has made the file "booted"."""
        booted = self.folder / "booted"
        await asyncio.to_thread(wait_for, lambda: booted.exists() or None, "the guest")

    @property
    def folder(self) -> Path:
        return self.directory.path / FOLDER


@pytest.fixture
def hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    monkeypatch.setenv("EDGEBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel, "PACKAGE", "no_such_package_of_a_kernel")
    hosted = Hosted(tmp_path)
    with closing(hosted.record):
        yield hosted


async def test_what_the_guest_reports_is_recorded_and_shown(hosted: Hosted) -> None:
    messages = Messages(hosted.prepared)
    view = RemoteView(messages)
    view.keep_time(lambda: 1.0)
    view.line("training")
    messages.row("event", EVENT)
    view.update(SNAPSHOT)
    messages.row("state", (2.75, "cloud", "running", ""))
    messages.row("outcome", (3.5, "{}"))
    messages.send("ended", "rounds", None)
    messages.flush()
    hosted.script(f"send {shlex.quote(str(hosted.prepared))}")
    assert await hosted.execute() == Ending("rounds", None)
    assert hosted.view.shown == ["1: training", SNAPSHOT]
    assert hosted.side.t == 3.5
    with History.open(hosted.directory.path) as history:
        (event,) = history.events("round")
        assert (event.t, event.node, event.round, event.data["phase"]) == (1.5, "cloud", 1, "start")
        assert [state.t for state in history.states()] == [2.75]
        assert history.outcome is None  # the host's side writes its own


async def test_a_message_may_come_in_parts(hosted: Hosted) -> None:
    parts = ('["line", 1.0, "gr', 'ün"]\n["ended", "rou', 'nds", null]\n')
    lines = []
    for part in parts:
        lines += [f"printf %s {shlex.quote(part)} >>{MESSAGES}", "sleep 0.1"]
    hosted.script(*lines)
    assert (await hosted.execute()).reason == "rounds"
    assert hosted.view.shown == ["1: grün"]


async def test_a_refusal_before_the_run_is_an_error_of_the_host(hosted: Hosted) -> None:
    sent = hosted.write(["refused", "no room"], ["ended", "failed", "no room"])
    hosted.script(f"send {sent}")
    with pytest.raises(HostError, match="no room"):
        await hosted.execute()


async def test_a_processor_on_which_no_guest_runs_is_an_error_of_the_host(hosted: Hosted) -> None:
    """The line is that of the kernel of Linux 6.1 on a processor with AMX."""
    hosted.script("echo 'save_fp_registers - set fp regs failed, errno = 22'", "kill -ABRT $$")
    with pytest.raises(HostError, match="processor"):
        await hosted.execute()


async def test_a_refusal_after_rows_ends_the_run(hosted: Hosted) -> None:
    sent = hosted.write(["row", "event", EVENT], ["refused", "no room"], ["ended", "failed", "no room"])
    hosted.script(f"send {sent}")
    assert await hosted.execute() == Ending("failed", "no room")


async def test_a_refusal_of_a_continued_run_ends_it(hosted: Hosted) -> None:
    """It has a record already, which is not removed."""
    sent = hosted.write(["refused", "no room"], ["ended", "failed", "no room"])
    hosted.script(f"send {sent}")
    assert await hosted.execute(past=Past(ended="interrupted", kept=(1,))) == Ending("failed", "no room")


@pytest.mark.parametrize(("end", "why"), [("exit 3", "exit code 3"), ("kill -9 $$", "SIGKILL"), ("exit 0", "ended")])
async def test_a_guest_that_ends_too_early_fails_the_run(hosted: Hosted, end: str, why: str) -> None:
    sent = hosted.write(["row", "event", EVENT])
    hosted.script(f"send {sent}", "echo panic", end)
    ending = await hosted.execute()
    assert ending.reason == "failed"
    assert why in str(ending.error)
    assert "`logs guest`" in str(ending.error)
    assert (hosted.directory.logs / "guest.log").read_text() == "panic\n"
    with History.open(hosted.directory.path) as history:
        assert len(history.events("round")) == 1


async def test_commands_of_the_user_are_passed_on(hosted: Hosted) -> None:
    """The guest answers the second one first."""
    replies = hosted.write(["reply", 2, {"code": 7}], ["reply", 9, {}], ["reply", 1, {"faults": [{"at": 2.0}]}])
    ended = shlex.quote('["ended", "interrupted", null]')
    hosted.script(
        "touch booted",
        'for order in 1 2; do read -r line; echo "$line" >>../orders; done',
        f"send {replies}",
        'read -r line; echo "$line" >>../orders',
        f"echo {ended} >>{MESSAGES}",
    )
    running = asyncio.create_task(hosted.execute())
    await hosted.booted()
    injected = hosted.ask({"op": "inject", "fault": {"action": "crash", "node": "edge-0"}})
    orders = hosted.directory.path / "orders"
    await asyncio.to_thread(wait_for, lambda: lines_of(orders) or None, "the first order")
    ran = hosted.ask({"op": "run", "node": "edge-0", "argv": ["hostname"], "files": "command-1"})
    assert await ran == {"ok": True, "code": 7}
    assert await injected == {"ok": True, "faults": [{"at": 2.0}]}
    pace = await hosted.ask({"op": "pace", "rate": 2.0})
    assert pace is not None
    assert "pace" in pace["error"]
    hosted.side.end()
    assert (await running).reason == "interrupted"
    request = {"op": "inject", "fault": {"action": "crash", "node": "edge-0"}}
    assert lines_of(orders) == [
        {"do": "ask", "request": request, "number": 1},
        {"do": "run", "node": "edge-0", "argv": ["hostname"], "files": "command-1", "number": 2},
        {"do": "end"},
    ]


def lines_of(file: Path) -> list[Any]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_orders_wait_until_the_guest_listens(hosted: Hosted) -> None:
    """Ctrl-C while it boots: it discards what came before."""
    sent = hosted.write(["ended", "interrupted", None])
    hosted.script(
        "touch booted",
        "timeout 0.3 cat >../early",
        LISTEN,
        'read -r line; echo "$line" >../orders',
        f"send {sent}",
        listens=False,
    )
    running = asyncio.create_task(hosted.execute())
    await hosted.booted()
    hosted.side.end()
    assert (await running).reason == "interrupted"
    assert lines_of(hosted.directory.path / "early") == []
    assert lines_of(hosted.directory.path / "orders") == [{"do": "end"}]


async def test_a_guest_that_does_not_end_is_killed(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_guest, "END_PATIENCE", 0.2)
    hosted.script("touch booted", "while :; do sleep 0.05; done")
    running = asyncio.create_task(hosted.execute())
    await hosted.booted()
    hosted.side.end()
    ending = await running
    assert ending.reason == "failed"
    assert "SIGKILL" in str(ending.error)


async def test_a_command_that_waits_learns_that_the_run_is_over(hosted: Hosted) -> None:
    hosted.script("touch booted", "read -r line")
    running = asyncio.create_task(hosted.execute())
    await hosted.booted()
    reply = await hosted.ask({"op": "inject", "fault": {}})
    assert reply is not None
    assert "over" in reply["error"]
    assert (await running).reason == "failed"


async def test_an_error_of_this_side_ends_the_run_in_order(hosted: Hosted) -> None:
    sent = hosted.write(["ended", "interrupted", None])
    hosted.script("touch booted", "read -r line", f"send {sent}")
    running = asyncio.create_task(hosted.execute())
    await hosted.booted()
    hosted.side.fail("the listener has failed")
    assert await running == Ending("failed", "the listener has failed")


@pytest.mark.parametrize(
    ("options", "past", "words"),
    [
        (RunOptions(), None, []),
        (RunOptions(calibrate=True), None, ["--calibrate"]),
        (RunOptions(), Past(ended="interrupted", kept=(1,)), ["--ended", "interrupted"]),
    ],
)
async def test_the_guest_learns_how_the_run_is_executed(
    hosted: Hosted, options: RunOptions, past: Past | None, words: list[str]
) -> None:
    sent = hosted.write(["ended", "rounds", None])
    hosted.script("cp start ../kept", f"send {sent}")
    await hosted.execute(options, past)
    command = shlex.split((hosted.directory.path / "kept").read_text().splitlines()[-1])
    assert command[-1 - len(words) :] == [str(hosted.directory.path), *words]


async def test_a_guest_ends_with_a_cancelled_run(hosted: Hosted) -> None:
    hosted.script("echo $$ >pid; mv pid booted", "exec sleep 1000")
    running = asyncio.create_task(hosted.execute())
    await hosted.booted()
    pid = int((hosted.folder / "booted").read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
