"""The cases that every link engine passes, with the kernel engine on a real kernel."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from edgebed.testing import fabrics
from tests.lab.inside.stage import Stage

LAST = fabrics.closing_twice_is_closing_once
LEFT_OUT = {LAST, fabrics.a_refused_change_changes_nothing}
"""This kernel refuses no change of the cases; `tests.conformance` has a `tc` that does."""
CASES = [each for each in fabrics.CASES if each not in LEFT_OUT]


@pytest.fixture(scope="module")
def linked(shared: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One stage for all cases, as a new one takes seconds."""
    with Stage(2, tmp_path_factory.mktemp("stage"), "{latency: 10ms, loss: 1%}", shared.tried) as stage:
        for node in stage.plan.nodes:
            stage.attach(node.name)
        yield stage


@pytest.mark.parametrize("case", [*CASES, *fabrics.OF_MEDIA, LAST], ids=lambda case: case.__name__)
def test_kernel(case: fabrics.Case, linked: Stage) -> None:
    stage = linked

    def shown(*ends: str) -> tuple[float, bool]:
        """From the leaf of the link's class, which is netem unless the link is cut."""
        command = [*stage.hub.enter(), "tc", "-j", "qdisc", "show", "dev", stage.interface(ends[1])]
        listed: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        parent = f"1:{stage.fabric._links[ends[0], ends[1]].index:x}"
        leaf = next(each for each in listed if each.get("parent") == parent)
        if leaf["kind"] == "netem":
            return leaf["options"]["delay"]["delay"], False
        return stage.profile(*ends).latency, True

    way = stage.fabric._media.way
    for_case = fabrics.Stage(stage.fabric, stage.plan, shown, None, stage.start, lambda *ends: tuple(way(ends)))
    for link in stage.plan.links:
        stage.do(stage.fabric.restore(link.source, link.target))
    stage.do(fabrics.share(for_case) if case in fabrics.OF_MEDIA else stage.fabric.shape(stage.plan.links))
    stage.do(case(for_case))
