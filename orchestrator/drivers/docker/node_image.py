"""Which image nodes are made from, and whether it fits this host and this version. Pure but for the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from typing import Any

from node.messaging.wire import PROTOCOL
from orchestrator.drivers.docker.emulation import REMEDY
from orchestrator.errors import HostError

PROTOCOL_LABEL, VERSION_LABEL = "org.edgebed.protocol", "org.edgebed.version"
BUILD = "docker build --file images/node/Dockerfile --tag {name} ."
NOBODY = (65532, 65532)  # for root, where the image does not say by number as whom it runs

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
"""What kernels call a machine, and what images do."""


def image_name() -> str:
    """The image of nodes: $EDGEBED_IMAGE, else ``edgebed-node``."""
    return os.environ.get("EDGEBED_IMAGE") or "edgebed-node"


def problem(
    name: str, image: Mapping[str, Any] | None, machine: str, emulated: Set[str] | None = None
) -> HostError | None:
    """Why nodes cannot be made from what the Engine knows of this image, with the remedy; None if they can.

    ``machine`` is the Engine's host as its kernel calls it. ``emulated``: the architectures that it can emulate, for an
    image that the scenario gives to some nodes; None for the run's own, which must be for this host.
    """
    build, command = "build it in the project's folder (docs/images.md)", BUILD.format(name=name)
    if image is None:
        elsewhere = "in EDGEBED_IMAGE" if emulated is None else "in the scenario's `hardware`"
        return HostError(f"the Docker Engine has no image '{name}'", f"name another {elsewhere}, or {build}", [command])
    wanted, found = ARCHITECTURES.get(machine, machine), image["Architecture"]
    if found != wanted and found not in (emulated or ()):
        remedy = build if emulated is None else f"have it emulate {found} ({REMEDY}), or {build}"
        return HostError(f"the image '{name}' is for {found}, this host is {wanted}", remedy, [command])
    protocol = _labels(image).get(PROTOCOL_LABEL)
    if protocol is None:
        return HostError(f"'{name}' is not an image of nodes, it has no label {PROTOCOL_LABEL}", build, [command])
    if protocol != str(PROTOCOL):
        return HostError(
            f"the nodes in the image '{name}' speak protocol {protocol}, the orchestrator {PROTOCOL}",
            f"{build} from the version of the orchestrator",
            [command],
        )
    return None


def version_note(name: str, image: Mapping[str, Any], version: str) -> str | None:
    """In words for the record, that the image was built from another version than ``version``; None if not."""
    built = _labels(image).get(VERSION_LABEL)
    return None if built == version else f"the image {name} is of version {built}, the orchestrator of {version}"


def emulation_note(name: str, image: Mapping[str, Any], machine: str) -> str | None:
    """In words for the record, that nodes of this image are emulated; None if they are not."""
    own, found = ARCHITECTURES.get(machine, machine), image["Architecture"]
    if found == own:
        return None
    return f"nodes of the image {name} are emulated ({found} on {own}): what they compute is right, how fast is not"


def user_of(image: Mapping[str, Any], user: int, group: int) -> tuple[int, int]:
    """As whom nodes run, never as root: as the caller, whose ``user`` and ``group`` these are, and for root as the
    image's own user."""
    if user != 0:
        return user, group
    own, _, its_group = str(image["Config"].get("User") or "").partition(":")
    if not own.isdigit() or int(own) == 0:
        return NOBODY
    return int(own), int(its_group if its_group.isdigit() else own)


def _labels(image: Mapping[str, Any]) -> Mapping[str, str]:
    return image["Config"].get("Labels") or {}
