"""Which image nodes are made from, and whether it fits this host and this version. Pure but for the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from node.wire import PROTOCOL

PROTOCOL_LABEL, VERSION_LABEL = "org.edgebed.protocol", "org.edgebed.version"
BUILD = "docker build --file images/node/Dockerfile --tag {name} ."
NOBODY = (65532, 65532)  # for root, where the image does not say by number as whom it runs

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
"""What kernels call a machine, and what images do."""


def image_name() -> str:
    """The image of nodes: $EDGEBED_IMAGE, else ``edgebed-node``."""
    return os.environ.get("EDGEBED_IMAGE") or "edgebed-node"


def problem(name: str, image: Mapping[str, Any] | None, machine: str) -> str | None:
    """Why nodes cannot be made from what the Engine knows of this image, with the remedy; None if they can.

    ``machine`` is the Engine's host as its kernel calls it.
    """
    build = f"build it in the project's folder (docs/images.md): `{BUILD.format(name=name)}`"
    if image is None:
        return f"the Docker Engine has no image '{name}': {build}; or name another in EDGEBED_IMAGE"
    wanted = ARCHITECTURES.get(machine, machine)
    if image["Architecture"] != wanted:
        return f"the image '{name}' is for {image['Architecture']}, this host is {wanted}: {build}"
    protocol = _labels(image).get(PROTOCOL_LABEL)
    if protocol is None:
        return f"'{name}' is not an image of nodes, it has no label {PROTOCOL_LABEL}: {build}"
    if protocol != str(PROTOCOL):
        return (
            f"the nodes in the image '{name}' speak protocol {protocol}, the orchestrator {PROTOCOL}: {build}"
            " from the version of the orchestrator"
        )
    return None


def version_note(name: str, image: Mapping[str, Any], version: str) -> str | None:
    """In words for the record, that the image was built from another version than ``version``; None if not."""
    built = _labels(image).get(VERSION_LABEL)
    return None if built == version else f"the image {name} is of version {built}, the orchestrator of {version}"


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
