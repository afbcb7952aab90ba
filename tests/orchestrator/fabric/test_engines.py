"""Which engine shapes the links, without opening one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from orchestrator.errors import EngineError, HostError
from orchestrator.fabric.base import Fabric
from orchestrator.fabric.engines import open_fabric
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.namespaces.wiring import Wires
from orchestrator.fabric.tc.kernel_media import KernelMedia
from orchestrator.fabric.userspace import UserspaceFabric
from orchestrator.record.directory import RunDirectory
from orchestrator.run.links.media import Media
from orchestrator.scenario.sections.engines import ENGINES, candidate_engines
from tests.orchestrator.fabric.tc.test_kernel import WritingHub
from tests.orchestrator.run.links.test_channel_measurement import CELL, plan


def test_auto_is_userspace_where_links_share_media() -> None:
    assert candidate_engines("auto") == ENGINES["auto"] == ("kernel", "userspace")
    assert candidate_engines("auto", media=True) == ("userspace",)
    assert candidate_engines("kernel", media=True) == ("kernel",)
    assert candidate_engines("kernel", "cross traffic on cell-0") == ()


def test_the_kernel_engine_is_refused_with_the_reason() -> None:
    wires = Wires((), (), "kernel", media=True, beyond_kernel="cross traffic on cell-0")
    opening = open_fabric(wires, cast(Hub, None), cast(RunDirectory, None))
    with pytest.raises(EngineError, match=r"cannot make these links.*cell-0"):
        asyncio.run(opening)


async def test_no_engine_is_left_open_where_the_settings_of_tcp_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(WritingHub):
        async def set_up(self, *_: object, **__: object) -> dict[str, str]:
            raise HostError("no networks here")

    opened: list[str] = []
    monkeypatch.setattr(UserspaceFabric, "open", opened.append)
    with pytest.raises(HostError, match="no networks here"):
        await open_fabric(Wires((), (), "userspace"), cast(Hub, Broken()), RunDirectory(tmp_path))
    assert opened == []


async def test_a_host_without_ifb_is_refused() -> None:
    assert await KernelMedia.missing(cast(Hub, WritingHub())) == ""
    hub = WritingHub()
    hub.refused = "type ifb"
    assert await KernelMedia.missing(cast(Hub, hub)) == "refused"


def test_a_fabric_that_cannot_share_media_is_refused() -> None:
    class OfHosts:
        engine = "userspace"

    Media((), cast(Fabric, OfHosts()))
    with pytest.raises(EngineError, match=r"links.*engine userspace cannot share"):
        Media(plan(CELL, CELL).media, cast(Fabric, OfHosts()))
