"""A socket for one user. A stranger is a process of another user."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from orchestrator.host.process.user_socket import ask, listen, user_name, user_of

STRANGER = 65534
CONNECT = """
import os, socket, sys
os.setgroups([]); os.setgid({user}); os.setuid({user})
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print("connected")
except PermissionError:
    print("refused")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


def answer_once(listening: socket.socket, reply: bytes, heard: list[bytes]) -> threading.Thread:
    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            heard.append(connection.recv(1000))
            connection.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(("reply", "read"), [(b'{"a": 1}\n', {"a": 1}), (b"", None), (b"3\n", None)])
def test_a_request_and_its_reply(tmp_path: Path, reply: bytes, read: object) -> None:
    heard: list[bytes] = []
    with listen(tmp_path / "commands") as listening:
        assert stat.S_IMODE((tmp_path / "commands").stat().st_mode) == 0o600
        thread = answer_once(listening, reply, heard)
        assert ask(tmp_path / "commands", {"op": "x"}) == read
        thread.join()
    assert heard == [b'{"op": "x"}\n']


def test_a_path_that_is_too_long_for_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with listen(folder / "commands") as listening:
        thread = answer_once(listening, b"{}\n", [])
        assert ask(folder / "commands", {}) == {}
        thread.join()


def test_without_a_listener(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ask(tmp_path / "commands", {})
    listen(tmp_path / "commands").close()
    with pytest.raises(ConnectionRefusedError):
        ask(tmp_path / "commands", {})


def test_the_user_of_a_connection(tmp_path: Path) -> None:
    with listen(tmp_path / "commands") as listening, socket.socket(socket.AF_UNIX) as own:
        own.connect(str(tmp_path / "commands"))
        connection, _ = listening.accept()
        with connection:
            assert user_of(connection) == os.geteuid()
    assert user_name(2**31 - 7) == str(2**31 - 7)


@needs_root
def test_a_stranger_cannot_connect_and_is_known_if_it_could() -> None:
    with tempfile.TemporaryDirectory() as folder, listen(path := Path(folder, "commands")) as listening:
        os.chmod(folder, 0o755)
        script = [sys.executable, "-I", "-S", "-c", CONNECT.format(user=STRANGER), str(path)]
        assert subprocess.run(script, capture_output=True, check=True).stdout == b"refused\n"
        path.chmod(0o666)
        assert subprocess.run(script, capture_output=True, check=True).stdout == b"connected\n"
        connection, _ = listening.accept()
        with connection:
            assert user_of(connection) == STRANGER
