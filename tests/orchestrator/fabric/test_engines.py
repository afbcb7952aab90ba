"""Which engine shapes the links, without opening one."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from orchestrator.errors import EngineError
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.engines import OPENING, open_fabric
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import Wires
from orchestrator.host.directory import RunDirectory
from orchestrator.run.links.media import Media
from orchestrator.scenario.sections.engines import ENGINES, SHARE_MEDIA, candidates
from tests.orchestrator.run.links.test_channel_probe import CELL, plan


def test_auto_is_userspace_where_links_share_media() -> None:
    assert candidates("auto", media=False) == ENGINES["auto"]
    assert candidates("auto", media=True) == ("userspace",)
    assert OPENING.keys() >= SHARE_MEDIA


def test_the_kernel_engine_is_refused_where_links_share_media() -> None:
    opening = open_fabric(Wires((), (), "kernel", media=True), cast(Hub, None), cast(RunDirectory, None))
    with pytest.raises(EngineError, match="kernel engine cannot let links share a medium: choose `engine: userspace`"):
        asyncio.run(opening)


def test_a_fabric_that_cannot_share_media_is_refused() -> None:
    class OfHosts:
        engine = "userspace"

    Media((), cast(Fabric, OfHosts()))
    with pytest.raises(EngineError, match="links of the engine userspace cannot share media"):
        Media(plan(CELL, CELL).media, cast(Fabric, OfHosts()))
