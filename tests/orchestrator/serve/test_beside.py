"""The page beside a run: a process that ends with whoever opened it."""

from __future__ import annotations

import re
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.host.process.python import module
from orchestrator.record.directory import RunDirectory
from orchestrator.serve.beside import Page, page_of


def test_the_page_is_announced_and_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with page_of(tmp_path / "not made yet") as page:
        page.announce(RunDirectory(tmp_path / "a b"))
        (said,) = re.findall(r"^page of this run: (\S+)$", capfd.readouterr().err, re.MULTILINE)
        address = urlsplit(said)
        assert (address.hostname, address.path) == ("127.0.0.1", "/run/a%20b")
        connection = HTTPConnection("127.0.0.1", address.port or 0, timeout=20)
        connection.request("GET", f"{address.path}?{address.query}")
        assert connection.getresponse().status == 303
        connection.close()
    with pytest.raises(ConnectionError):
        HTTPConnection("127.0.0.1", address.port or 0, timeout=20).connect()


def test_a_page_that_cannot_be_opened_is_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE, text=True) as process:
        Page(process).announce(RunDirectory(Path("run")))
    assert "warning: there is no page" in capfd.readouterr().err


def test_its_process_ends_with_its_input(tmp_path: Path) -> None:
    done = subprocess.run(
        module("orchestrator.serve", str(tmp_path)), input="", capture_output=True, text=True, timeout=60, check=True
    )
    assert '"address": "http://127.0.0.1:' in done.stdout
    assert done.stderr == ""
