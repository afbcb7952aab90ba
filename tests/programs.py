"""Programs that tests need and README does not name. A mark skips a test where one of its programs is missing:

    @pytest.mark.programs("ping")

In CI, which installs them all, the test fails instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

import pytest

CI = "EDGEBED_ALL_PROGRAMS"
"""The variable that `.ci/run` sets where it has installed all of these packages."""

PACKAGES = {
    "chromium": "chromium",
    "docker-registry": "docker-registry",
    "dockerd": "docker.io",
    "docker": "docker.io",
    "iperf3": "iperf3",
    "mmdebstrap": "mmdebstrap",
    "mosquitto": "mosquitto",
    "mosquitto_pub": "mosquitto-clients",
    "munged": "munge",
    "ping": "iputils-ping",
    "qemu-aarch64-static": "qemu-user-static",
    "qemu-x86_64-static": "qemu-user-static",
    "sbatch": "slurm-client",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sqlite3": "sqlite3",
}
"""Programs, and the packages of Debian that have them."""


def missing(programs: Iterable[str]) -> str:
    """Which programs are not installed, and the remedy; empty if all are."""
    absent = [program for program in programs if shutil.which(program) is None]
    if not absent:
        return ""
    packages = sorted({PACKAGES[program] for program in absent})
    return f"needs {', '.join(absent)}: apt-get install {' '.join(packages)}"


def give_up(reason: str) -> None:
    """Skip the test, or fail it in CI."""
    if os.environ.get(CI):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def check(item: pytest.Item) -> None:
    """Give up a test if a program of its marks is missing."""
    for mark in item.iter_markers("programs"):
        if reason := missing(mark.args):
            give_up(reason)
