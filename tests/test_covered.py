"""The report on the lines that the unit tests reach stands above pytest's last line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_report_of_a_few_tests() -> None:
    options = ("-q", "-p", "no:cacheprovider", "-p", "tests.covered")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/netem/test_units.py"],
        cwd=ROOT, env=os.environ | {"PYTEST_ADDOPTS": ""}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert re.match(r"\d+ passed in ", last)
    total, *least = [line for line in lines if re.search(r" lines\)$", line)]
    assert re.match(r" +\d+\.\d%  in all \(\d+ of \d+ lines\)", total)
    assert len(least) == 10
    assert all(line.startswith("   0.0%  ") for line in least)


def test_make_coverage_loads_it() -> None:
    assert "-p tests.covered" in (ROOT / "Makefile").read_text()
