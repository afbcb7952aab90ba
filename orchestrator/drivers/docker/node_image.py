"""The image of nodes, and whether it fits this host and this version. Pure, except for the environment."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Set
from typing import Any

from node.messaging.wire import PROTOCOL
from orchestrator.drivers.docker.emulation import REMEDY
from orchestrator.errors import HostError

PROTOCOL_LABEL = "org.edgebed.protocol"
VERSION_LABEL = "org.edgebed.version"
BUILD = "docker build --file images/node/Dockerfile --tag {name} ."
NOBODY = (65532, 65532)  # the user under root, if the image does not name its user by number

Attributes = Mapping[str, Any]  # of an image

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
"""The name of a machine in kernels, and in images."""


def image_name() -> str:
    """The name of the image of nodes: $EDGEBED_IMAGE, otherwise ``edgebed-node``."""
    return os.environ.get("EDGEBED_IMAGE") or "edgebed-node"


def problem(
    name: str,
    image: Attributes | None,
    machine: str,
    emulated: Set[str] | None = None,
) -> HostError | None:
    """Why nodes cannot be made from this image, with the remedy; None if they can. ``image`` has its attributes.

    ``machine`` is the kernel's name for the machine of the Engine's host. ``emulated`` are the architectures that the
    host can emulate, for an image that the scenario gives to some nodes. It is None for the run's image, which must be
    for this host.
    """
    build = "build it in the project's folder, or in one that `edgebed image` writes (`edgebed docs images`)"
    command = BUILD.format(name=name)
    if image is None:
        place = "in EDGEBED_IMAGE" if emulated is None else "in the scenario's `hardware`"
        return HostError(
            f"the Docker Engine has no image '{name}'",
            f"name another {place}, or {build}",
            [command],
        )
    wanted = ARCHITECTURES.get(machine, machine)
    architecture = image["Architecture"]
    if architecture != wanted and architecture not in (emulated or ()):
        remedy = build
        if emulated is not None:
            remedy = f"let the Engine emulate {architecture} ({REMEDY}), or {build}"
        what = f"the image '{name}' is for {architecture}, this host is {wanted}"
        return HostError(what, remedy, [command])
    protocol = labels_of(image).get(PROTOCOL_LABEL)
    if protocol is None:
        return HostError(f"'{name}' is not a node image: it has no label {PROTOCOL_LABEL}", build, [command])
    if protocol != str(PROTOCOL):
        return HostError(
            f"the nodes in the image '{name}' speak protocol {protocol}, the orchestrator {PROTOCOL}",
            f"{build} from the version of the orchestrator",
            [command],
        )
    return None


def version_note(name: str, image: Attributes, version: str) -> str | None:
    """A note for the record if the image was built from another version than ``version``, otherwise None."""
    version_of_image = labels_of(image).get(VERSION_LABEL)
    if version_of_image == version:
        return None
    return f"the image {name} is of version {version_of_image}, the orchestrator of {version}"


def emulation_note(name: str, image: Attributes, machine: str) -> str | None:
    """A note for the record if nodes of this image are emulated, otherwise None."""
    own = ARCHITECTURES.get(machine, machine)
    emulated = image["Architecture"]
    if emulated == own:
        return None
    return f"nodes of the image {name} are emulated ({emulated} on {own}): what they compute is right, how fast is not"


def user_of(image: Attributes, user: int, group: int) -> tuple[int, int]:
    """The user and group of nodes, never root: the caller's; if that is root, the image's own."""
    if user != 0:
        return user, group
    setting = str(image["Config"].get("User") or "")
    own, _, own_group = setting.partition(":")
    if not own.isdigit() or int(own) == 0:
        return NOBODY
    if not own_group.isdigit():
        own_group = own
    return int(own), int(own_group)


def labels_of(image: Attributes) -> Mapping[str, str]:
    """The labels of an image, from its attributes."""
    config = image["Config"] or {}
    return config.get("Labels") or {}


def identity(attributes: Mapping[str, Any]) -> str:
    """The same for an image on all hosts. Its id is not: Engines with containerd have others."""
    config = attributes["Config"] or {}
    files = attributes.get("RootFS") or {}
    content = [attributes["Architecture"], attributes.get("Created"), files.get("Layers")]
    for key in ("Cmd", "Entrypoint", "Env", "Labels", "User", "WorkingDir"):
        content.append(config.get(key) or None)
    text_of_content = json.dumps(content, sort_keys=True)
    digest = hashlib.sha256(text_of_content.encode())
    return digest.hexdigest()


def describe_image(attributes: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What an agent reports of an image, from its attributes; None if the Engine has no such image."""
    if attributes is None:
        return None
    labels = labels_of(attributes)
    digests = attributes.get("RepoDigests") or ()
    return {
        "Architecture": attributes["Architecture"],
        "Config": {"Labels": dict(labels)},
        "RepoDigests": list(digests),
        "identity": identity(attributes),
    }
