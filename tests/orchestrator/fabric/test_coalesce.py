"""Simultaneous changes of links become one, and each caller gets its own result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from orchestrator.errors import FabricError
from orchestrator.fabric.base import LinkChange
from orchestrator.fabric.coalesce import Coalescing
from tests.texts import containing

PATIENCE = 20.0  # s


@pytest.mark.parametrize("results", [0, 1, 3])
async def test_an_engine_with_a_wrong_number_of_results_fails_each_caller(results: int) -> None:
    async def alter(changes: Sequence[LinkChange]) -> list[Exception | None]:
        return [None] * results

    fabric = Coalescing(alter)
    both = asyncio.gather(fabric.cut("a", "b"), fabric.restore("b", "a"), return_exceptions=True)
    for error in await asyncio.wait_for(both, PATIENCE):
        assert isinstance(error, FabricError)
        assert str(error) == containing(f"engine gave {results} results", "2 changes")
