"""The hub, without a namespace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.hub import Hub, start_command


async def test_an_anchor_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    """As the `docker` command when its Engine hangs: it does not end when its input does."""
    hub = Hub(await start_command(["sleep", "60"], {}), True, {}, tmp_path)
    async with asyncio.timeout(10):
        with pytest.raises(HostError, match="no answer"):
            await hub.confirm(0.01)
    assert hub.anchor.returncode is not None
