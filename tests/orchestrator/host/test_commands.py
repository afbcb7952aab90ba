from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from orchestrator.host import commands
from tests.texts import containing


def test_an_ordinary_users_path_gets_the_folders_of_administration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/games")  # of a login shell on Debian
    commands.extend_path()
    assert os.environ["PATH"] == "/usr/local/bin:/usr/bin:/bin:/usr/games:/usr/local/sbin:/usr/sbin:/sbin"
    commands.extend_path()  # nothing more to add
    assert os.environ["PATH"].count("/usr/sbin") == 1


def test_a_users_own_folders_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/opt/mine:/sbin")
    commands.extend_path()
    assert os.environ["PATH"] == "/opt/mine:/sbin:/usr/local/sbin:/usr/sbin"


def test_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    commands.extend_path()
    assert os.environ["PATH"].startswith(os.defpath)
    assert shutil.which("sh") is not None


def test_what_is_absent_is_reported_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("unshare", "nsenter", "ip"):
        (tmp_path / command).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (error,) = commands.absent()
    assert str(error) == containing("'tc'", "iproute2 (`apt-get install iproute2`)")
    assert error.commands == ("apt-get install iproute2",)
