"""The first command, as a user who was just added to the host: no rights, and a PATH without /usr/sbin."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT

pytestmark = pytest.mark.e2e

LOGIN_PATH = "/usr/local/bin:/usr/bin:/bin"  # Debian's, of an ordinary user (ENV_PATH in /etc/login.defs)
PACKAGES = sysconfig.get_path("purelib")
PYTHONS = (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}")
"""This one, or the system's of the same version where this one lies in a home that others may not enter."""


class FreshUser:
    """A user with a home, in which a copy of the project lies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.project = Path("/home", name, "edgebed")
        for package in ("edgebed", "netem", "node", "orchestrator", "scenarios"):
            shutil.copytree(ROOT / package, self.project / package, ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["chown", "--recursive", f"{name}:", self.project], check=True)

    def types(self, line: str) -> subprocess.CompletedProcess[str]:
        """A line in a login shell of this user, in the project's folder."""
        prepared = f"export PATH={LOGIN_PATH} PYTHONPATH={shlex.quote(PACKAGES)}; cd {self.project} && {line}"
        return subprocess.run(
            ["su", "-", self.name, "-c", prepared], capture_output=True, text=True, timeout=240, check=False
        )


@pytest.fixture(scope="module")
def user() -> Iterator[FreshUser]:
    if os.geteuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("only root can add a user")
    name = f"edgebed-{os.getpid()}"
    subprocess.run(["useradd", "--create-home", "--home-dir", f"/home/{name}", "--shell", "/bin/sh", name], check=True)
    try:
        yield FreshUser(name)
    finally:
        subprocess.run(["userdel", "--remove", name], check=True, capture_output=True)


@pytest.fixture(scope="module")
def python(user: FreshUser) -> str:
    for each in PYTHONS:
        if user.types(f"{each} -c 'import torch, zmq'").returncode == 0:
            return each
    pytest.skip("no Python here is one that another user may run with these packages")


def test_a_run(user: FreshUser, python: str) -> None:
    assert user.types("command -v tc").returncode != 0 or Path("/usr/bin/tc").exists()
    done = user.types(f"{python} -m orchestrator up scenarios/hello.yaml --set algorithm.rounds=2 --json")
    assert done.returncode in (0, 3), done.stderr  # 3: this machine is too busy to keep pace
    summary = json.loads(done.stdout)
    assert (summary["rounds"], summary["error"]) == (2, None)


def test_what_the_host_can_do(user: FreshUser, python: str) -> None:
    done = user.types(f"{python} -m orchestrator doctor --json")
    assert done.returncode == 0, done.stdout
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["commands"]["ok"] is found["namespaces"]["ok"] is found["veth interfaces"]["ok"] is True
    assert "unprivileged" in found["namespaces"]["detail"]


def test_the_other_verbs(user: FreshUser, python: str) -> None:
    for line in ("validate scenarios/hello.yaml", "plan scenarios/hello.yaml", "ps", "down --all"):
        done = user.types(f"{python} -m orchestrator {line} --quiet")
        assert (done.returncode, done.stderr) == (0, ""), line
