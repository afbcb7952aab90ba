"""A disk that is full, whatever was being written: one message, exit code 1, and what was found out is not lost."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import OWN_MOUNTS, ROOT, SMALL, write

pytestmark = pytest.mark.e2e

# Each run is a fork of one warm process, and has a file system of its own, mounted where nobody else sees it.
WALK = """
import json, os, subprocess, sys, tempfile
import orchestrator.__main__, orchestrator.cli.main, orchestrator.run.launch, orchestrator.run.display.terminal
import orchestrator.drivers.sim.driver
runs, scenario, reports, *sizes = sys.argv[1:]
for size in sizes:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", runs], check=True)
    said = [tempfile.TemporaryFile("w+") for _ in range(2)]
    child = os.fork()
    if child == 0:
        for number, file in enumerate(said, start=1):
            os.dup2(file.fileno(), number)
        junit = f"{reports}/{size}.xml"
        sys.argv = ["edgebed", "up", scenario, "--driver", "sim", "--workers", "1", "--runs", runs, "--junit", junit]
        orchestrator.__main__.main()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = [path for path, _, _ in os.walk(runs) if os.path.basename(path) in ("nodes", "control")]
    logs = [path for path, _, names in os.walk(runs) if "orchestrator.log" in names]
    reports_written = [path for path, _, names in os.walk(runs) if "report.html" in names]
    for file in said:
        file.seek(0)
    output, errors = (file.read() for file in said)
    subprocess.run(["umount", runs], check=True)
    print(json.dumps({"size": int(size), "code": code, "output": output, "errors": errors, "left": left + logs,
                      "report": bool(reports_written)}))
"""


def walked(tmp_path: Path, sizes: list[int]) -> list[dict[str, Any]]:
    runs, reports = tmp_path / "runs", tmp_path / "reports"
    runs.mkdir()
    path = write(tmp_path, SMALL)
    done = subprocess.run(
        [*OWN_MOUNTS, sys.executable, "-c", WALK, runs, path, reports, *map(str, sizes)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_disk_that_is_full_at_any_byte(tmp_path: Path) -> None:
    sizes = [*range(4, 120, 24), *range(120, 400, 56), *range(400, 640, 30), 8192]
    results = walked(tmp_path, sizes)
    for result in results:
        size, errors = result["size"], result["errors"]
        complete = result["report"]
        assert result["code"] == (0 if complete else 1), result
        assert errors.count("\n") == errors.count("error: ") == (0 if complete else 1), result
        assert result["left"] == [], result
        if "verdict" in result["output"]:  # the run came to its end, or as far as it could
            suite = ET.parse(tmp_path / "reports" / f"{size}.xml").getroot()
            assert int(suite.get("tests", "0")) > 0
    assert results[-1]["report"]
    last = [result for result in results if not result["report"]][-1]  # it has room for all rounds
    assert "all rounds done" in last["output"], last
    assert "cannot be written (No space left" in last["errors"], last
    assert any("verdict" not in result["output"] for result in results)
