"""Which image each host of a run needs, whether it has it, and from where it gets it. Pure.

A name with a registry's host in it (``registry.example:5000/edgebed-node``) is pulled from there, by the digest that it
has when the run starts. Any other is copied from the orchestrator's Engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator import text
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.docker.node_image import identity
from orchestrator.errors import HostError

LOADING = 2  # an Engine that loads an image has its archive and its layers on its disk at the same time

Images = dict[str, Mapping[str, Any]]  # attributes by name
Attributes = Mapping[str, Mapping[str, Any] | None]  # the same; None if the Engine has no such image


@dataclass(frozen=True)
class Archive:
    """An image of the orchestrator's Engine: its ``id`` there, its ``identity`` everywhere, its size in bytes."""

    id: str
    identity: str
    size: int


@dataclass(frozen=True)
class Pinned:
    """An image of a registry: ``repository`` and ``digest``. ``architectures`` are those it exists for."""

    repository: str
    digest: str
    architectures: tuple[str, ...]

    @property
    def reference(self) -> str:
        return f"{self.repository}@{self.digest}"


Source = Archive | Pinned | HostError  # an error if there is no source, or if nodes cannot be made from what it has


@dataclass(frozen=True)
class Delivery:
    """An image that hosts lack. They name it ``name``."""

    name: str
    source: Archive | Pinned
    hosts: tuple[str, ...]


def is_in_registry(name: str) -> bool:
    """Whether the name of an image starts with the host of a registry, by Docker's rule."""
    first, slash, _ = name.partition("/")
    if not slash:
        return False
    return "." in first or ":" in first or first == "localhost"


def split(name: str) -> tuple[str, str]:
    """The repository and the tag or digest of an image's name: "r:5000/a:1" -> ("r:5000/a", "1"), "a" -> ("a", "")."""
    repository, at, digest = name.partition("@")
    if at:
        return repository, digest
    before, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        return before, tag
    return name, ""


def names_of(name: str, architecture: str) -> tuple[str, str]:
    """The names under which the orchestrator's Engine may have an image for this architecture: its own, and the one
    that images/build.sh gives it. A name with a digest is that of one image."""
    if "@" in name:
        return name, name
    _, tag = split(name)
    if tag:
        return name, f"{name}-{architecture}"
    return name, f"{name}:{architecture}"


def pinned(name: str, facts: Mapping[str, Any]) -> Pinned:
    """The image of a registry, from what the registry reports (`Engine.in_registry`)."""
    platforms = facts.get("Platforms") or ()
    architectures = {str(platform["architecture"]) for platform in platforms}
    repository, _ = split(name)
    digest = str(facts["Descriptor"]["digest"])
    return Pinned(repository, digest, tuple(sorted(architectures)))


def archive(
    name: str,
    architecture: str,
    images: Attributes,
    *,
    given: bool,
) -> Source:
    """The image that the orchestrator's Engine copies to hosts of this architecture. ``images`` has the attributes of
    `names_of`. ``given``: the scenario names the image for some nodes, so that hosts may emulate its processor."""
    present = _present(name, architecture, images)
    chosen = _fitting(present, architecture)
    if chosen is None and given:
        chosen = next(iter(present), None)
    if chosen is None:
        return _absent(name, architecture)
    image = present[chosen]
    emulated = {image["Architecture"]} if given else None
    error = node_image.problem(chosen, image, architecture, emulated)
    if error is not None:
        return error
    return _archive(image)


def archive_of_program(name: str, architecture: str, images: Attributes) -> Source:
    """The same for an image with a program, which knows nothing of edgebed and is never emulated."""
    present = _present(name, architecture, images)
    chosen = _fitting(present, architecture)
    if chosen is not None:
        return _archive(present[chosen])
    _, tagged = names_of(name, architecture)
    return HostError(
        _lacks(name, architecture),
        "fetch or build it here, and `up` copies it",
        [f"docker pull --platform linux/{architecture} {name}", f"docker tag {name} {tagged}"],
    )


def _present(name: str, architecture: str, images: Attributes) -> Images:
    """Those of the images of `names_of` that the Engine has."""
    present: Images = {}
    for candidate in names_of(name, architecture):
        image = images[candidate]
        if image is not None:
            present[candidate] = image
    return present


def _fitting(images: Images, architecture: str) -> str | None:
    for name, image in images.items():
        if image["Architecture"] == architecture:
            return name
    return None


def _archive(image: Mapping[str, Any]) -> Archive:
    return Archive(str(image["Id"]), identity(image), int(image["Size"]))


def _lacks(name: str, architecture: str) -> str:
    own, tagged = names_of(name, architecture)
    return (
        f"this host has none for {architecture} to copy: its Docker Engine has neither '{own}' for that nor '{tagged}'"
    )


def has(facts: Mapping[str, Any] | None, source: Archive | Pinned) -> bool:
    """Whether a host has an image, from what its agent reports of the image of this name."""
    if facts is None:
        return False
    if isinstance(source, Archive):
        return bool(facts["identity"] == source.identity)
    return source.reference in facts["RepoDigests"]


def deliveries(
    facts: Mapping[str, Mapping[str, Any]],
    architectures: Mapping[str, str],
    sources: Mapping[tuple[str, str], Source],
) -> list[Delivery]:
    """What is to be copied or pulled. ``facts`` is what the agent of each host reports: its ``images`` by name, as
    `describe_image` gives them, and the bytes that are ``free`` for more. ``sources`` are by name and architecture. A
    host that has an image for which there is no source keeps it. HostError with everything that stands in the way."""
    missing: defaultdict[tuple[str, Archive | Pinned], list[str]] = defaultdict(list)
    without: defaultdict[HostError, list[str]] = defaultdict(list)
    obstacles: list[HostError] = []
    for host, of_host in facts.items():
        architecture = architectures[host]
        for name, image in of_host["images"].items():
            source = sources[name, architecture]
            if isinstance(source, HostError):
                if image is None:
                    without[source].append(host)
            elif not has(image, source):
                missing[name, source].append(host)
                error = obstacle(name, source, host, architecture, of_host["free"], image)
                if error is not None:
                    obstacles.append(error)
    problems = []
    for error, hosts in without.items():
        what = f"{', '.join(hosts)}: no image to make nodes from, and {error.what}"
        problems.append(HostError(what, error.remedy, error.commands))
    problems += obstacles
    if problems:
        raise _joined(problems)
    result = []
    for (name, source), hosts in missing.items():
        result.append(Delivery(name, source, tuple(hosts)))
    return result


def obstacle(
    name: str,
    source: Archive | Pinned,
    host: str,
    architecture: str,
    free: int,
    image: Mapping[str, Any] | None,
) -> HostError | None:
    """Why a host cannot get an image, or None. ``image`` is what it has under this name, which may share layers."""
    if isinstance(source, Pinned):
        if architecture in source.architectures or not source.architectures:
            return None
        available = text.some(source.architectures)
        return HostError(
            f"{source.repository} in its registry is for {available}, and {host} is {architecture}",
            f"push an image for {architecture} under the same name (`edgebed docs images`)",
        )
    needed = source.size
    if image is None:
        needed = LOADING * source.size
    if free >= needed:
        return None
    return HostError(
        f"{host} has {text.size(free)} free where its Docker Engine keeps images, and loading '{name}' takes"
        f" {text.size(needed)}",
        "make room there",
        ["docker system df", "docker system prune"],
    )


def _absent(name: str, architecture: str) -> HostError:
    own, tagged = names_of(name, architecture)
    if own == "edgebed-node":
        command = f"images/build.sh {architecture}"
    else:
        build = node_image.BUILD.format(name=tagged)
        command = build.replace(" --file", f" --platform linux/{architecture} --file")
    remedy = "build it here (`edgebed docs images`), and `up` copies it"
    return HostError(_lacks(name, architecture), remedy, [command])


def _joined(errors: list[HostError]) -> HostError:
    if len(errors) == 1:
        return errors[0]
    what = "; ".join(error.what for error in errors)
    remedies: dict[str, None] = {}  # in order, each once
    commands: dict[str, None] = {}
    for error in errors:
        remedies[error.remedy] = None
        commands |= dict.fromkeys(error.commands)
    return HostError(what, "; ".join(remedies), list(commands))
