from __future__ import annotations

import io
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

from orchestrator.run.display.single_line import Glimpse
from orchestrator.run.display.snapshot import Snapshot

SNAPSHOT = Snapshot(t=1.0, round=3, rounds_total=10, nodes_up=5, nodes_total=5, value=0.61, left=70.0, left_here=7.0)


def shown(terminal: bool, snapshot: Snapshot = SNAPSHOT) -> str:
    file = io.StringIO()
    view = Glimpse("[1/2] a, seed 1", Console(file=file, force_terminal=terminal, width=80, color_system=None))
    view.update(snapshot)
    view.line("fault: crash edge-1")
    print("the program's own output")
    view.close()
    return file.getvalue()


def test_a_line_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "[1/2] a, seed 1: round 3 of 10, accuracy 61.0% so far, about 7 s left" in shown(True)
    assert capsys.readouterr().out == "the program's own output\n"
    assert "a, seed 1: round 3, accuracy" in shown(True, replace(SNAPSHOT, rounds_total=None))


def test_nothing_elsewhere() -> None:
    assert shown(False) == ""


def test_a_line_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    output = SimpleNamespace(update=said.append)
    shell, display = ModuleType("IPython"), ModuleType("IPython.display")
    vars(shell)["get_ipython"] = lambda: SimpleNamespace(kernel=object(), execution_count=1)
    vars(display).update(HTML=str, display=lambda html, display_id: output)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert shown(False) == ""
    line = "[1/2] a, seed 1: round 3 of 10, accuracy 61.0% so far, about 7 s left"
    assert said == [f'<progress value="0.300"></progress> {line}', ""]
