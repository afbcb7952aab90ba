"""The hub of a run: one network namespace that every link passes, and commands that enter any namespace of the run.

As root the hub is a network namespace. For other users it is inside a new user namespace, in which the caller has every
capability (user_namespaces(7)). The nodes are created in the same user namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import ChildError, HostError
from orchestrator.fabric.namespaces.anchor import PATIENCE, remove
from orchestrator.host.commands import absent
from orchestrator.host.kernel.namespaces import entry, refused
from orchestrator.host.process import python
from orchestrator.host.process.child import JsonChild
from orchestrator.host.process.processes import PART, TOKEN, labels
from orchestrator.text import how_ended

_ANCHOR_FILE = Path(__file__).with_name("anchor.py")
ANCHOR = (sys.executable, "-I", "-S", str(_ANCHOR_FILE))
IP_BATCH = ("ip", "-batch", "-")
BRIDGE_BATCH = ("bridge", "-batch", "-")
TC_BATCH = ("tc", "-batch", "-")
START_TIMEOUT = 10.0
SETUP_TIMEOUT = 60.0  # s, including the wait for earlier requests
LONGEST_LINE = 1 << 26  # bytes; tc shows all queues of an interface in one line


class Hub:
    """The run's hub, kept alive by its anchor process. A command with the prefix ``enter()`` runs inside it."""

    def __init__(
        self,
        anchor: asyncio.subprocess.Process,
        privileged: bool,
        label: Mapping[str, str],
        directory: Path,
    ) -> None:
        """``label``: the environment variables of the run's processes. ``directory``: the run's, for a log."""
        self.anchor = anchor
        self.privileged = privileged
        self._label = label
        self._log = directory / "logs" / "hub.log"
        self._groups: list[str] = []
        self._setup: JsonChild | None = None
        self._starting = asyncio.Lock()

    @classmethod
    async def open(cls, run: str, directory: Path) -> Hub:
        privileged = os.geteuid() == 0
        for error in absent():
            raise error
        label = labels(run, directory, "hub")
        command = ["unshare"]
        if not privileged:
            command += ["--user", "--map-root-user"]
        command += ["--net", "--", *ANCHOR]
        anchor = await start_command(command, label)
        hub = cls(anchor, privileged, label, directory)
        await hub.confirm()
        return hub

    async def confirm(self, timeout: float = START_TIMEOUT) -> None:
        """Wait until the anchor answers from its namespaces; HostError if it does not."""
        anchor = self.anchor
        assert anchor.stdin is not None
        assert anchor.stdout is not None
        assert anchor.stderr is not None
        try:
            anchor.stdin.write(b"echo here\n")
            await anchor.stdin.drain()
            async with asyncio.timeout(timeout):
                line = await anchor.stdout.readline()
        except ConnectionError:
            line = b""
        except TimeoutError:
            line = b""
            with contextlib.suppress(ProcessLookupError):
                anchor.kill()  # it may wait for an Engine that hangs, and not end with its input
        if line.strip() != b"here":
            anchor.stdin.close()
            errors = await anchor.stderr.read()
            reason = errors.decode().strip() or "no answer"
            await anchor.wait()
            raise self._refused(reason)

    def _refused(self, reason: str) -> HostError:
        return refused(reason, root=self.privileged)

    def enter(
        self,
        pid: int | None = None,
        *,
        network: bool = True,
    ) -> list[str]:
        """The argv prefix that runs a command in the network namespace of ``pid`` (default: the hub). There is none for
        this process: only root could enter the host's namespace from another user namespace."""
        if pid == os.getpid():
            return []
        target = self.anchor.pid if pid is None else pid
        namespaces = ["--net"] if network else []
        user = None if self.privileged else self.anchor.pid
        return entry(target, namespaces, user)

    def remember_cgroup(self, path: Path) -> None:
        """Make the anchor remove this cgroup when the run ends, even by SIGKILL."""
        assert self.anchor.stdin is not None
        self._groups.append(str(path))
        self.anchor.stdin.write(f"cgroup {path}\n".encode())

    async def watch(self) -> None:
        """Wait until the anchor ends, and raise HostError: running processes continue, but none can enter the hub."""
        code = await self.anchor.wait()
        raise HostError(
            f"the process that keeps the run's network namespace (its anchor) ended ({how_ended(code)}): run again"
        )

    async def run(
        self,
        argv: Sequence[str],
        *,
        pid: int | None = None,
        stdin: str = "",
    ) -> str:
        """Run a command in the hub or the network namespace of ``pid``; returns its output. HostError if it fails."""
        code, output, errors = await self.attempt(argv, pid=pid, stdin=stdin)
        if code != 0:
            command = " ".join(argv)
            raise HostError(f"`{command}` failed ({errors.strip()}); input was:\n{stdin}".rstrip())
        return output

    async def attempt(
        self,
        argv: Sequence[str],
        *,
        pid: int | None = None,
        stdin: str = "",
    ) -> tuple[int, str, str]:
        """Like ``run``, but returns exit code, output and errors. Cancellation kills the command."""
        process = await self.spawn(argv, pid=pid)
        try:
            output, errors = await process.communicate(stdin.encode())
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return process.returncode, output.decode(), errors.decode()

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        pid: int | None = None,
        environment: Mapping[str, str] | None = None,
        errors: int | None = asyncio.subprocess.PIPE,
    ) -> asyncio.subprocess.Process:
        """Start a command like ``run``, with open pipes. `env` sets the environment inside the namespace, because not
        every ``enter`` passes it on; all pass on TOKEN."""
        environment = environment or {}
        command = [*self.enter(pid), "env"]
        for key, value in environment.items():
            if key != TOKEN:
                command.append(f"{key}={value}")
        command += argv
        return await start_command(command, environment, errors)

    async def set_up(
        self,
        pid: int | None,
        settings: Mapping[str, str],
        lines: str = "",
        *,
        read: bool = False,
    ) -> dict[str, str]:
        """Make TCP ``settings`` and run ``lines`` of `ip -batch` in the network namespace of ``pid`` (None: the hub).
        HostError if a line fails. Returns all TCP settings in force in it if ``read`` is set. The namespace of ``pid``
        stays, also after the end of its processes, until `forget`."""
        async with self._starting:
            if self._setup is None:
                self._setup = await self._start_setup()
        try:
            answer = await self._setup.request(
                "set up",
                SETUP_TIMEOUT,
                pid=pid,
                settings=dict(settings),
                lines=lines,
                read=read,
            )
        except ChildError as error:
            raise HostError(str(error)) from None
        return dict(answer["tcp"])

    async def _start_setup(self) -> JsonChild:
        self._log.parent.mkdir(exist_ok=True)
        program = python.module("orchestrator.fabric.namespaces.setup")
        return await JsonChild.start(
            "the process that sets up networks",
            [*self.enter(), *program],
            environment={**self._label, PART: "networks"},
            log=self._log,
        )

    async def unsent(self, pid: int) -> int:
        """The connections of a node that has ended that still have something to send; see `set_up`. HostError if that
        cannot be known."""
        answer = await self._of_kept("unsent", pid)
        return int(answer.get("unsent", 0))

    async def forget(self, pid: int) -> None:
        """Let the network namespace of a node that has ended go."""
        await self._of_kept("forget", pid)

    async def _of_kept(self, operation: str, pid: int) -> dict[str, Any]:
        if self._setup is None:
            return {}
        arguments = {operation: pid}
        try:
            return await self._setup.request(operation, SETUP_TIMEOUT, **arguments)
        except ChildError as error:
            raise HostError(str(error)) from None

    async def close(self) -> None:
        if self._setup is not None:
            await self._setup.close()
        assert self.anchor.stdin is not None
        self.anchor.stdin.close()
        await self.anchor.wait()
        # The anchor has removed the cgroups, unless it was killed.
        await asyncio.to_thread(remove, self._groups, PATIENCE)


async def start_command(
    argv: Sequence[str],
    environment: Mapping[str, str],
    errors: int | None = asyncio.subprocess.PIPE,
) -> asyncio.subprocess.Process:
    """Start a command with open pipes, and with these variables in addition to those of this process."""
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        limit=LONGEST_LINE,
        env={**os.environ, **environment},
        start_new_session=True,
    )
