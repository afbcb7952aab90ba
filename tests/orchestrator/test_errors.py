"""What a notebook shows of an error."""

from __future__ import annotations

from orchestrator.errors import OrchestratorError, RunError
from orchestrator.verbs.python_interface import load


def user_function() -> None:
    load("no-such-run")


def test_the_traceback_in_a_notebook_ends_at_the_call() -> None:
    try:
        user_function()
    except RunError as error:
        lines = error._render_traceback_()
    assert [line.strip().partition(" in ")[2] for line in lines if "File" in line] == [
        "test_the_traceback_in_a_notebook_ends_at_the_call",
        "user_function",
    ]
    assert lines[-1].startswith("RunError: there is no run 'no-such-run'")


def test_an_error_that_was_not_raised() -> None:
    assert OrchestratorError("text")._render_traceback_() == ["OrchestratorError: text"]
