"""One `tc` that stays: a change of a link then costs a line to a process, and not a process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from netem import batch, tc
from netem.batch import Reply
from orchestrator.errors import HostError
from orchestrator.fabric.hub import Hub

Command = Sequence[str]


class TrafficControl:
    """Runs commands of tc in the hub, one batch after the other. It ends with its input, as the orchestrator does.

    Interfaces must have names that were not used before: tc remembers which is which (ll_map.c of iproute2).
    """

    def __init__(self, hub: Hub, environment: Mapping[str, str]) -> None:
        self._hub = hub
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._lines = 0  # that the process was given
        self._turn = asyncio.Lock()

    async def attempt(self, commands: Sequence[Command]) -> list[Reply]:
        """Run commands one after the other, whether they succeed or not; what became of each. HostError without tc."""
        async with self._turn:
            first = self._lines + 1
            try:
                said = await self._ask(tc.batch(commands), self._lines + len(commands) + 1)
            except BaseException:
                await self._end()  # what it says next would be taken for another batch's
                raise
            return batch.replies(commands, said, first)

    async def run(self, commands: Sequence[Command]) -> str:
        """Run commands; what the last one shows. HostError if one of them fails."""
        results = await self.attempt(commands)
        for command, result in zip(commands, results, strict=True):
            if result.error:
                raise HostError(f"`{' '.join(command)}` failed ({result.error})")
        return results[-1].shown

    async def _ask(self, lines: str, last: int) -> str:
        """What tc says of some lines; `last` is the number of the one that ends them."""
        if self._process is None:
            self._process = await self._hub.spawn(
                batch.ARGUMENTS, environment=self._environment, errors=asyncio.subprocess.STDOUT
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        said = []
        try:
            self._process.stdin.write(f"{lines}{batch.END}\n".encode())
            await self._process.stdin.drain()
            while line := await self._process.stdout.readline():
                said.append(line.decode())
                if batch.failed_line(said[-1].strip()) == last:
                    self._lines = last
                    return "".join(said[:-2])  # the last two are the complaint of the end
        except ConnectionError:
            pass  # it has ended; what it said before stands in the error
        raise HostError(f"tc ended before its commands did: {''.join(said).strip() or 'without a word'}")

    async def _end(self) -> None:
        process, self._process, self._lines = self._process, None, 0
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    async def close(self) -> None:
        async with self._turn:
            await self._end()
