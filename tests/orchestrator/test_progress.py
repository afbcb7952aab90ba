"""What is printed while a command works."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from orchestrator.progress import logging_to, waiting

log = logging.getLogger("node.learning.data.datasets")


def patience_is_over() -> None:
    """Wait until the timer of `waiting` has printed."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()


def test_a_quick_command_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("planning", patience=60.0):
        log.info("downloading")
    assert capsys.readouterr().err == ""


def test_a_slow_command_prints_its_task_and_then_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("planning", patience=0.0):
        patience_is_over()
        said = capsys.readouterr().err
        log.info("downloading %s", "mnist")
    assert said == "planning …\n"
    assert capsys.readouterr().err == "downloading mnist …\n"
    log.info("later")
    assert capsys.readouterr().err == ""


def test_if_it_becomes_slow_the_latest_step_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("planning", patience=0.2):
        log.info("downloading")
        patience_is_over()
    assert capsys.readouterr().err == "downloading …\n"


def test_a_warning_is_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("planning", patience=60.0):
        log.warning("no space")
    assert capsys.readouterr().err == "no space …\n"


def test_on_a_terminal_the_step_is_shown_in_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = ""
    with waiting("planning", patience=0.0):
        while "planning …" not in said:  # it is shown again and again
            time.sleep(0.05)
            said += capsys.readouterr().err
    assert "\x1b[2K" in capsys.readouterr().err  # the line is erased


def test_a_step_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with waiting("reading [/bold]", patience=60.0):
        log.warning("preparing data [/x]\x1b[2J")
    assert "preparing data [/x]␛[2J …" in capsys.readouterr().err


def test_what_is_logged() -> None:
    told: list[str] = []
    with logging_to(told.append):
        log.info("downloading %s", "mnist")
    log.info("later")
    assert told == ["downloading mnist"]
