from __future__ import annotations

import io
from pathlib import Path
from typing import cast

import pytest

from node.runtime.clock import run_virtual
from orchestrator.fabric.base import Counted, Fabric, LinkRow, since
from orchestrator.results.history import History
from orchestrator.results.record import COUNTERS
from orchestrator.run.context import RunContext
from orchestrator.run.monitor import Monitor
from orchestrator.run.view import PlainView
from tests.orchestrator.run.test_session import SCENARIO, Stage


def row(delivered: int, **others: int | float) -> LinkRow:
    """Packets of 1000 bytes from the edge to the cloud."""
    counts: LinkRow = dict.fromkeys(COUNTERS, 0)
    counts |= {"offered": delivered, "delivered": delivered, "delivered_bytes": 1000 * delivered}
    return {"source": "edge-0", "target": "cloud", **counts, **others}


class CountingFabric:
    """A link engine that has counted what the test says."""

    def __init__(self, *delivered: int) -> None:
        self.readings = iter(delivered)

    async def counters(self) -> Counted:
        return Counted(links=[row(next(self.readings))])


def test_what_probes_sent_before_training_is_told_apart(tmp_path: Path) -> None:
    async def main() -> None:
        stage = Stage(tmp_path, SCENARIO)
        fabric = cast(Fabric, CountingFabric(3780, 3780, 3785, 6240))
        run = RunContext(stage.plan, stage.directory, stage.record, lambda: 0.0, PlainView(io.StringIO()))
        monitor = Monitor(run, stage.session, fabric, None)
        await monitor.begin()
        for _ in range(3):
            await monitor.sample()
        stage.record.close()
        with History.open(stage.directory.path) as history:
            assert history.bytes_by_class() == {"edge-cloud": 2_460_000}
            assert history.probed_bytes_by_class() == {"edge-cloud": 3_780_000}
        await stage.session.close()

    run_virtual(main())


def test_counts_since_an_earlier_reading() -> None:
    before, now = row(10, drawn=10, asked_lost=0.5, others_too=1), row(25, drawn=25, asked_lost=1.75, others_too=1)
    assert since(now, None) == now
    assert since(now, before) == row(15, drawn=15, asked_lost=1.25, others_too=1)


@pytest.mark.parametrize("offered", [0, 9])
def test_a_link_that_began_anew_counts_from_there(offered: int) -> None:
    assert since(row(offered), row(10)) == row(offered)
