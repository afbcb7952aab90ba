"""The cases that every link engine passes, with the kernel engine on a real kernel."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import fabrics
from tests.lab.inside.stage import Stage

CASES = [each for each in fabrics.CASES if each is not fabrics.a_refused_change_changes_nothing]
"""This kernel refuses no change of the cases; `tests.conformance` has a `tc` that does."""


@pytest.mark.parametrize("case", [*CASES, *fabrics.OF_MEDIA], ids=lambda case: case.__name__)
def test_kernel(case: fabrics.Case, shared: Stage, tmp_path: Path) -> None:
    with Stage(2, tmp_path, "{latency: 10ms, loss: 1%}", shared.tried) as stage:
        for node in stage.plan.nodes:
            stage.attach(node.name)

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
        if case in fabrics.OF_MEDIA:
            stage.do(fabrics.share(for_case))
        stage.do(case(for_case))
