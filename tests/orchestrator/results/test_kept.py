"""Recorded runs that are kept as files: what is read from them stays the same, whatever changes in the code.

``kept/NAME`` has the scenario in force, the plan and the record of a run, and in ``summary.json`` what edgebed 0.2.0
wrote about it on 2026-11-29, without the sentences of the checks. ``hello``, ``mqtt`` and ``on-the-move`` ran as
processes on a busy host, the others under ``sim``. ``expected-more`` is ``hello`` with an accuracy that it cannot
reach. Names of folders and of the host's system are replaced. A record with another version of the schema needs new
files.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.results.history import History
from orchestrator.results.summary import summary

KEPT = Path(__file__).parent / "kept"
RUNS = sorted(folder.name for folder in KEPT.iterdir())


def read(name: str, folder: Path) -> dict[str, Any]:
    """The summary of a kept run, which is unpacked into a folder, without the sentences of its checks."""
    for packed in (KEPT / name).glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    values = json.loads(json.dumps(summary(History.open(folder))))
    del values["run"]
    for check in values["checks"]:
        del check["detail"]
    return dict(values)


def test_ten_runs_are_kept() -> None:
    assert len(RUNS) == 10
    verdicts = {json.loads((KEPT / name / "summary.json").read_text())["verdict"] for name in RUNS}
    assert {"pass", "fail"} <= verdicts


@pytest.mark.parametrize("name", RUNS)
def test_a_kept_run_is_read_as_before(name: str, tmp_path: Path) -> None:
    assert read(name, tmp_path) == json.loads((KEPT / name / "summary.json").read_text())
