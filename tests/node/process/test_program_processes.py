"""Which processes belong to a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from node.process.program_processes import MARK, processes_of


def process(proc: Path, pid: int, *, state: str = "S", session: int = 1, environ: bytes = b"") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} (a ) b) {state} 1 {pid} {session} 0 -1")
    (folder / "environ").write_bytes(environ)


def test_the_session_of_the_command_and_what_has_its_mark(tmp_path: Path) -> None:
    process(tmp_path, 10, session=10)  # the command
    process(tmp_path, 11, session=10)  # with a cleared environment
    process(tmp_path, 12, session=12, environ=f"A=b\0{MARK}=cloud.web\0".encode())  # a daemon
    process(tmp_path, 13, session=13, environ=f"{MARK}=cloud.web2\0".encode())  # of another program
    process(tmp_path, 14, state="Z", session=10)  # has ended
    process(tmp_path, os.getpid(), session=10)
    (tmp_path / "self").mkdir()
    (tmp_path / "99").mkdir()  # has just ended
    assert sorted(processes_of("cloud.web", 10, tmp_path)) == [10, 11, 12]


def test_a_daemon_is_known_by_its_mark() -> None:
    code = "import os, sys; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, MARK: "only here"},
        text=True,
        start_new_session=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdin is not None
        daemon = int(command.stdout.readline())
        command.wait()
        assert daemon != command.pid
        assert processes_of("only here", command.pid) == [daemon]
        command.stdin.close()
