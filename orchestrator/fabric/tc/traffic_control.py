"""One persistent `tc` process: a change of a link then costs a line of input instead of a new process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from netem.kernel import batch
from netem.kernel.batch import Reply
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.hub import Hub

Command = Sequence[str]


class TrafficControl:
    """Runs commands of tc in the hub, one batch after the other. tc ends with its input, hence with the orchestrator.
    Every interface needs a new name, because tc caches the names and indexes of interfaces (ll_map.c of iproute2)."""

    def __init__(self, hub: Hub, environment: Mapping[str, str]) -> None:
        self._hub = hub
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._lines = 0  # number of lines that the process has read
        self._turn = asyncio.Lock()

    async def attempt(self, commands: Sequence[Command]) -> list[Reply]:
        """Run all commands in order, even after a failure; returns the reply to each. HostError if tc ends."""
        async with self._turn:
            first = self._lines + 1
            end = self._lines + len(commands) + 1
            try:
                lines = batch.lines(commands)
                said = await self._ask(lines, end)
            except BaseException:
                await self._end()  # its next output would be read as that of another batch
                raise
            return batch.replies(commands, said, first)

    async def run(self, commands: Sequence[Command]) -> str:
        """Run commands; returns the output of the last one. HostError if one of them fails."""
        replies = await self.attempt(commands)
        for command, reply in zip(commands, replies, strict=True):
            if reply.error:
                written = " ".join(command)
                raise HostError(f"`{written}` failed ({reply.error})")
        return replies[-1].shown

    async def _ask(self, lines: str, last: int) -> str:
        """tc's output for `lines`; `last` is the number of the END line after them."""
        if self._process is None:
            self._process = await self._hub.spawn(
                batch.ARGUMENTS, environment=self._environment, errors=asyncio.subprocess.STDOUT
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        said: list[str] = []
        try:
            process.stdin.write(f"{lines}{batch.END}\n".encode())
            await process.stdin.drain()
            while line := await process.stdout.readline():
                text = line.decode()
                said.append(text)
                failed = batch.failed_line(text.strip())
                if failed == last:
                    self._lines = last
                    return "".join(said[:-2])  # the last two are the error of the END line
        except ConnectionError:
            pass  # tc has ended; its output so far goes into the error
        output = "".join(said).strip() or "it printed nothing"
        raise HostError(f"tc ended before it had run all commands: {output}")

    async def _end(self) -> None:
        process = self._process
        self._process = None
        self._lines = 0
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    async def close(self) -> None:
        async with self._turn:
            await self._end()
