from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import RunError
from orchestrator.host.directory import RunDirectory
from orchestrator.host.tail import log_of


def test_the_log_of_a_node_and_the_logs_there_are(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "mine")
    with pytest.raises(RunError, match=r"has no log of 'edge-0'; it has none yet$"):
        log_of(directory, "edge-0")
    for name in ("edge-1", "cloud"):
        (directory.logs / f"{name}.log").touch()
    assert log_of(directory, "cloud") == directory.logs / "cloud.log"
    with pytest.raises(RunError, match=r"has no log of 'edge-0'; it has: cloud, edge-1$"):
        log_of(directory, "edge-0")
