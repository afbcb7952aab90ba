"""The images of nodes on the host of an agent: what its Engine has, what is copied to it, and what it pulls."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from orchestrator import text
from orchestrator.drivers.docker.engine import Engine
from orchestrator.drivers.docker.node_image import describe_image
from orchestrator.drivers.docker.transfers import Loading, Pulling
from orchestrator.errors import DriverError, HostError

LOOK_EVERY = 1.0  # s for which the question how a pull proceeds may wait


class Images:
    """``folder`` lies where the Engine keeps its images."""

    def __init__(
        self,
        folder: Path,
        connect: Callable[[], Engine] = Engine.connect,
        load: Callable[[str], Loading] = Loading,
        pull: Callable[[str, str, str | None], Pulling] = Pulling,
    ) -> None:
        self._folder = folder
        self._connect = connect
        self._load = load
        self._pull = pull
        self._loading: dict[str, Loading] = {}  # by the name that the image gets
        self._free: dict[str, int] = {}  # bytes, when it started
        self._pulling: dict[str, tuple[Pulling, asyncio.Task[None]]] = {}
        self._progress: dict[str, tuple[int, int]] = {}

    def images(self, names: Sequence[str]) -> dict[str, Any]:
        """What the Engine has under each name, as `describe_image` reports it, and the bytes that are free for more."""
        with contextlib.closing(self._connect()) as engine:
            described = {}
            for name in names:
                image = engine.image(name)
                described[name] = describe_image(image)
            return {"images": described, "free": self._room()}

    async def load(self, name: str, data: bytes, first: bool) -> None:
        """Give the Engine the next bytes of an image's archive. Answered when the Engine has taken them."""
        if first:
            self._end_loading(name)
            self._free[name] = await asyncio.to_thread(self._room)
            self._loading[name] = await asyncio.to_thread(self._load, name)
        with self._disk(name):
            loading = self._of(self._loading, name)
            await asyncio.to_thread(loading.add, data)

    async def finish_load(self, name: str) -> None:
        """The archive is whole: wait until the Engine has the image, and tag it."""
        try:
            with self._disk(name):
                loading = self._of(self._loading, name)
                image = await asyncio.to_thread(loading.finish)
            await asyncio.to_thread(self._tag, image, name)
        finally:
            self._end_loading(name)

    async def pull(
        self,
        name: str,
        repository: str,
        digest: str,
        login: str | None,
    ) -> None:
        """Have the Engine pull an image from its registry by its digest, and tag it, see `pull_progress`."""
        self._free[name] = await asyncio.to_thread(self._room)
        pulling = await asyncio.to_thread(self._pull, repository, digest, login)
        finishing = self._finish(pulling, name, f"{repository}@{digest}")
        task = asyncio.create_task(finishing)
        self._pulling[name] = (pulling, task)

    async def pull_progress(self, name: str) -> tuple[bool, int, int]:
        """Whether a pull is over, or after a while its bytes that are done and known. Raises its error."""
        _, task = self._of(self._pulling, name)
        await asyncio.wait([task], timeout=LOOK_EVERY)
        over = task.done()
        if over:
            task.result()
        done, known = self._progress.get(name, (0, 0))
        return over, done, known

    async def close(self) -> None:
        """End all transfers. The Engine discards what is not whole."""
        for name in list(self._loading):
            self._end_loading(name)
        tasks = []
        for pulling, task in self._pulling.values():
            pulling.close()
            tasks.append(task)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _room(self) -> int:
        usage = shutil.disk_usage(self._folder)
        return usage.free

    @contextlib.contextmanager
    def _disk(self, name: str) -> Iterator[None]:
        """Say how much was free if the disk is full."""
        try:
            yield
        except HostError as error:
            free = text.size(self._free[name])
            raise HostError(
                f"{error.what} ({free} were free before)",
                "make room there",
                ["docker system df", "docker system prune"],
            ) from None

    async def _finish(self, pulling: Pulling, name: str, reference: str) -> None:
        def report(done: int, total: int) -> None:
            self._progress[name] = done, total

        try:
            with self._disk(name):
                await asyncio.to_thread(pulling.finish, report)
            if "@" not in name:  # otherwise it is the reference
                await asyncio.to_thread(self._tag, reference, name)
        finally:
            pulling.close()

    def _of(self, transfers: dict[str, Any], name: str) -> Any:
        if name not in transfers:
            raise DriverError(f"the image {name} has not been started: the agent has restarted")
        return transfers[name]

    def _end_loading(self, name: str) -> None:
        loading = self._loading.pop(name, None)
        if loading is not None:
            loading.close()

    def _tag(self, image: str, name: str) -> None:
        with contextlib.closing(self._connect()) as engine:
            engine.tag(image, name)
