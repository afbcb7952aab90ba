"""The Docker Engine of this host, through its SDK, and the containers of runs, which are found by their labels.

Labels are the only state: `ps` and `down` ask the Engine itself which containers belong to a run. Only this module
turns the SDK's errors into those of `orchestrator.errors`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

import docker
from docker import auth
from docker.errors import APIError, DockerException, ImageNotFound
from docker.models.containers import Container

from orchestrator.errors import DriverError, HostError
from orchestrator.host.docker_socket import DIRECTORY, NODE, RUN, NodeContainer, address, reach

T = TypeVar("T")
Event = dict[str, Any]
Printed = tuple[str, str]  # output and errors
Options = Mapping[str, Any]  # the SDK's arguments for a container

TIMEOUT = 120  # s for one answer; an Engine that starts many containers is slow
GONE = (404, 409)  # no such container; the container does not run, or is being removed already
REMOVAL_PATIENCE = 20.0  # s
AT_ONCE = 8  # removals at the same time


class Engine:
    """A connection to the Engine, which the caller closes. Methods block, and several threads may call them."""

    def __init__(self, client: docker.DockerClient) -> None:
        self.client = client

    @classmethod
    def connect(cls) -> Engine:
        """Connect to the Engine at DOCKER_HOST, else at the usual address. HostError with the remedy on failure."""
        reach()
        try:
            client = docker.DockerClient(base_url=address(), timeout=TIMEOUT)
            return cls(client)
        except (DockerException, OSError) as error:
            raise HostError(f"{address()} does not answer as a Docker Engine: {error}") from None

    def close(self) -> None:
        self.client.close()

    def facts(self) -> dict[str, Any]:
        """The facts about the Engine and its host (`docker info`)."""
        with plain_words("asking the Docker Engine about itself"):
            return dict(self.client.info())

    def image(self, name: str) -> dict[str, Any] | None:
        """The attributes of an image (`docker image inspect`); None if the Engine has no such image."""
        try:
            with plain_words(f"looking for the image {name}"):
                image = self.client.images.get(name)
                return dict(image.attrs)
        except _MissingError:
            return None

    def tag(self, image: str, name: str) -> None:
        """Give an image, by its id or name, this name too (`docker tag`)."""
        with plain_words(f"naming the image {name}"):
            self.client.images.get(image).tag(name)

    def in_registry(self, name: str) -> dict[str, Any]:
        """What the registry of this name reports of an image: its ``Descriptor`` with the ``digest``, and
        ``Platforms``. DriverError if the registry, which the Engine asks, does not answer or has no such image."""
        with plain_words(f"looking for the image {name} in its registry"):
            api: Any = self.client.api  # what is known of its types is not all of it
            return dict(api.inspect_distribution(name))

    def login(self, name: str) -> str | None:
        """The login that this user has stored by `docker login` for the registry of this name, as a header; None
        without one."""
        with plain_words(f"looking for the login of {name}"):
            registry, _ = auth.resolve_repository_name(name)
            header = auth.get_config_header(self.client.api, registry)
        if isinstance(header, bytes):
            return header.decode()
        return header

    def create(self, image: str, command: list[str], options: Options) -> Container:
        """Make a container without starting it."""
        with plain_words(f"making the container {options['name']}"):
            return self.client.containers.create(image, command, **options)

    def tried(self, image: str, command: list[str], options: Options) -> Printed:
        """Run a container to its end, and remove it. Returns its output and its errors."""
        container = self.create(image, command, options)
        try:
            with plain_words(f"starting {container.name}"):
                container.start()
                container.wait(timeout=TIMEOUT)
                stdout = container.logs(stdout=True, stderr=False)
                stderr = container.logs(stdout=False, stderr=True)
                output = stdout.decode(errors="replace")
                errors = stderr.decode(errors="replace")
        finally:
            with contextlib.suppress(DriverError), plain_words(f"removing {container.name}"):
                container.remove(force=True, v=True)
        return output, errors

    def events(self, run: str, kinds: Iterable[str]) -> Stream[Event]:
        """The events of a run's containers, from this second on."""
        filters = {"type": "container", "event": list(kinds), "label": f"{RUN}={run}"}
        with plain_words("listening to the Docker Engine"):
            now = int(time.time())
            events = self.client.events(since=now, decode=True, filters=filters)
            return Stream(events)

    def output(self, container: Container) -> Stream[bytes]:
        """The output of a container, from now on. Call it before the container starts."""
        with plain_words(f"attaching to {container.name}"):
            output = container.attach(stream=True, stdout=True, stderr=True)
            return Stream(output)

    def hold(self, container: Container) -> Any:
        """Hold the standard input of a container that has not started yet open, until the result is closed."""
        with plain_words(f"attaching to {container.name}"):
            return container.attach_socket(params={"stdin": 1, "stream": 1})

    def containers(self, run: str | None = None) -> list[NodeContainer]:
        """The containers of one run, or of all runs, in any state."""
        label = RUN if run is None else f"{RUN}={run}"
        with plain_words("looking for containers"):
            containers = self.client.containers.list(
                all=True,
                filters={"label": label},
                ignore_removed=True,
            )
        return [_described(container) for container in containers]

    def remove(self, containers: Iterable[NodeContainer]) -> list[NodeContainer]:
        """Kill and remove containers, and wait for their removal. Returns those that are left after a while."""
        left = list(containers)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self._remove, left))
        deadline = time.monotonic() + REMOVAL_PATIENCE
        while left and time.monotonic() < deadline:
            present = set()
            for run in {container.run for container in left}:
                present |= {container.id for container in self.containers(run)}
            left = [container for container in left if container.id in present]
            if left:
                time.sleep(0.05)
        return left

    def _remove(self, container: NodeContainer) -> None:
        # `remove` finds what is left.
        with contextlib.suppress(DriverError), plain_words(f"removing {container.node}"):
            self.client.api.remove_container(container.id, force=True, v=True)


class Stream(Generic[T]):
    """A streamed answer of the Engine. One thread reads it to its end; another thread may ``cancel`` it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[T]:
        try:
            yield from self._stream
        finally:
            self._stream._response.close()  # the SDK leaves the socket open

    def cancel(self) -> None:
        """End the reader's iteration. Does nothing if it has ended."""
        with contextlib.suppress(OSError):
            self._stream.close()


class _MissingError(DriverError):
    """The image or container does not exist, or the container does not run."""


@contextlib.contextmanager
def unless_gone() -> Iterator[None]:
    """Ignore that the container has ended or is gone. Its Exit follows."""
    with contextlib.suppress(_MissingError):
        yield


@contextlib.contextmanager
def plain_words(doing: str) -> Iterator[None]:
    """Turn the SDK's errors into DriverError, or into HostError if the host needs a remedy."""
    try:
        yield
    except ImageNotFound as error:
        raise _MissingError(f"{doing}: {error.explanation}") from None
    except APIError as error:
        reason = str(error.explanation or error)
        if "no space left on device" in reason:
            raise HostError(
                f"{doing}: the Docker Engine's disk is full: make room (`docker system df`, `docker system prune`)"
            ) from None
        kind = DriverError
        if error.status_code in GONE:
            kind = _MissingError
        raise kind(f"{doing}: the Docker Engine refused: {reason}") from None
    except (DockerException, OSError) as error:  # the SDK's connection errors are OSErrors
        raise DriverError(f"{doing}: the Docker Engine does not answer ({error}): is dockerd still running?") from None


def _described(container: Container) -> NodeContainer:
    labels = container.labels
    state = container.attrs["State"]
    return NodeContainer(
        id=str(container.id),
        run=labels[RUN],
        node=labels.get(NODE, ""),
        directory=Path(labels.get(DIRECTORY, "")),
        pid=state.get("Pid") or None,
    )
