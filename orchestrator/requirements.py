"""What each driver needs of this host; looked at before a run makes anything."""

from __future__ import annotations

import contextlib
import os
import shutil

from orchestrator.errors import HostError
from orchestrator.fabric.helper import without_client
from orchestrator.host.commands import absent
from orchestrator.host.namespaces import refusal


def missing(driver: str) -> list[HostError]:
    """What this host lacks for a driver, each with its remedy; empty if a run can begin."""
    found = [] if driver == "sim" else absent()
    if driver == "namespaces" and shutil.which("unshare") is not None:
        found += [error for error in [refusal()] if error is not None]
    if driver == "docker":
        found += _engine()
        if os.geteuid() != 0:
            found += [error for error in [without_client()] if error is not None]
    return found


def require(driver: str) -> None:
    """HostError that names all that this host lacks for a driver."""
    found = missing(driver)
    if len(found) == 1:
        raise found[0]
    if found:
        raise HostError("\n".join(str(error) for error in found))


def _engine() -> list[HostError]:
    """What is wrong with the Docker Engine, or else with its image of nodes."""
    # Here and not above: the SDK's import takes a quarter of a second.
    from orchestrator.drivers import docker_image
    from orchestrator.drivers.docker import unfit
    from orchestrator.host.docker import Engine

    name = docker_image.image_name()
    try:
        engine = Engine.connect()
    except HostError as error:
        return [error]
    with contextlib.closing(engine):
        facts, image = engine.facts(), engine.image(name)
    found = unfit(facts, os.uname().release) or docker_image.problem(name, image, facts["Architecture"])
    return [] if found is None else [found]
