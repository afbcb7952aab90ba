"""Tests of the standard streams of a command, in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """\
import ctypes, os, subprocess, sys, edgebed, numpy as np
def loud(what):
    print(what, "printed")
    ctypes.CDLL(None).puts(f"{what} by C".encode())
    ctypes.CDLL(None).fflush(None)
    subprocess.run(["echo", what, "by a child"])
loud("import")
def read():
    loud("read")
    x = np.random.default_rng(0).normal(0, 1, (400, 8)); y = (x[:, 0] > 0).astype(int)
    return {"x_train": x[:300], "y_train": y[:300], "x_test": x[300:], "y_test": y[300:]}
PLUGIN = edgebed.Plugin(datasets=[edgebed.Dataset("loud", summary="prints", read=read)])
"""
SCENARIO = """\
algorithm: {name: fedavg, rounds: 2, learning_rate: 0.1}
data: {dataset: DATASET, samples_per_client: 100, evaluate_samples: 100}
model: mlp
topology: {devices: 2}
driver: sim
"""
POSIX = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator", *words]


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **more}


@pytest.mark.parametrize("words", [("validate",), ("plan",), pytest.param(("up",), marks=pytest.mark.slow)])
def test_under_json_standard_output_is_one_object_whatever_a_plug_in_prints(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "loud.py").write_text(PLUGIN)
    (tmp_path / "s.yaml").write_text("plugins: [loud.py]\n" + SCENARIO.replace("DATASET", "loud"))
    argv, variables = command(*words, "s.yaml", "--json"), environment(tmp_path)
    done = subprocess.run(argv, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert isinstance(json.loads(done.stdout), dict)
    for how in ("printed", "by C", "by a child"):
        assert f"import {how}" in done.stderr


def test_a_non_blocking_pipe_that_is_full_is_waited_for() -> None:
    """Another process that shares the pipe may set O_NONBLOCK, which belongs to the open file (open(2))."""
    program = "from orchestrator.host.process.streams import survive_readers; survive_readers(); print('x' * 200_000)"
    reading, writing = os.pipe()  # holds 64 KiB (pipe(7))
    os.set_blocking(writing, False)
    with subprocess.Popen([sys.executable, "-c", program], stdout=writing) as process, open(reading, "rb") as output:
        os.close(writing)
        assert output.read() == b"x" * 200_000 + b"\n"
    assert process.returncode == 0


def on_terminal(folder: Path, variables: dict[str, str], *words: str) -> tuple[int, bytes]:
    """The exit code and the output of a command on a terminal."""
    ours, its = pty.openpty()
    shown = b""
    with subprocess.Popen(
        command(*words), cwd=folder, env=environment(folder, **variables), stdout=its, stderr=subprocess.STDOUT
    ) as process:
        os.close(its)
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # the process has ended
            pass
    os.close(ours)
    return process.returncode, shown


@pytest.mark.parametrize(
    ("word", "variables"),
    [
        ("plan", {"PYTHONIOENCODING": "latin-1"}),
        ("plan", POSIX),
        pytest.param("up", {"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.slow),
    ],
    ids=["latin-1", "POSIX", "ascii"],
)
def test_a_terminal_without_utf_8_gets_other_characters(tmp_path: Path, word: str, variables: dict[str, str]) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("DATASET", "digits"))
    code, shown = on_terminal(tmp_path, variables, word, "s.yaml")
    assert code == 0, shown
    assert b"Traceback" not in shown
    assert b"warning" not in shown
    shown.decode("latin-1" if "latin-1" in variables.values() else "ascii")
