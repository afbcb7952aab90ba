"""Tolerances, and the comparison of two results."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.archive.expected import (
    ExpectedFigure,
    ExpectedRun,
    RunDifference,
    differences,
    facts,
    inexact,
    read_expected,
    tolerance_of,
)
from orchestrator.errors import ArchiveError, MistakeError


@pytest.mark.parametrize(
    ("name", "value", "tolerance"),
    [
        ("final.global", 0.9, 0.02),
        ("best.edges", 0.1, 0.02),
        ("seconds", 40.0, 4.0),
        ("to_target.seconds", 0.12, 1.0),
        ("to_target.rounds", 5, 1.0),
        ("rounds", 50, 5.0),
        ("privacy.epsilon", 0.0, 0.02),
        ("message_bytes.model", -10.0, 1.0),
    ],
)
def test_the_default_tolerance(name: str, value: float, tolerance: float) -> None:
    assert tolerance_of(name, value, {}) == pytest.approx(tolerance)


def test_a_tolerance_of_the_author() -> None:
    given: dict[str, str | float] = {"seconds": "20%", "final.global": 0.05, "rounds": "inf"}
    assert tolerance_of("seconds", 40.0, given) == pytest.approx(8.0)
    assert tolerance_of("final.global", 0.9, given) == 0.05
    with pytest.raises(MistakeError, match="'inf' is no tolerance"):
        tolerance_of("rounds", 1.0, given)


def result(value: float, verdict: str = "pass") -> ExpectedRun:
    figures = {"final.global": ExpectedFigure(expected=value, tolerance=0.02)}
    return ExpectedRun(case="a", seed=1, driver="sim", verdict=verdict, figures=figures)


def found(value: float, verdict: str = "pass", *, exact: bool = False) -> list[str]:
    return [each.figure for each in differences("run", result(0.5), result(value, verdict), exact=exact)]


def test_what_differs() -> None:
    assert found(0.5, exact=True) == []
    assert found(0.5 + 1e-15, exact=True) == ["final.global"]
    assert found(0.515) == []
    assert found(0.53) == ["final.global"]
    assert found(0.5, "unknown") == []
    assert found(0.5, "fail") == ["verdict"]
    assert found(0.5, "unknown", exact=True) == ["verdict"]
    lacking = result(0.5).model_copy(update={"figures": {}})
    assert [*differences("run", result(0.5), lacking, exact=False)] == [
        RunDifference("run", "final.global", "0.5 ± 0.02", "–")
    ]


def test_facts_that_decide_on_the_last_bit() -> None:
    meta = {"cpu": "X", "python": "3.11.7", "packages": {"torch": "2.1+cpu"}, "kernel": "6.1"}
    assert facts(meta) == {"processor": "X", "Python": "3.11", "torch": "2.1+cpu"}


def test_what_need_not_be_equal_to_the_last_bit() -> None:
    def run(driver: str, meta: dict[str, str], **node: str) -> Any:
        return SimpleNamespace(driver=driver, meta=meta, plan={"nodes": [node]})

    here = run("sim", {"cpu": "X"})
    assert inexact(here, here) == []
    assert inexact(run("sim", {"cpu": "Y"}), here) == ["processor: Y, here X"]
    assert inexact(here, run("sim", {"cpu": "X"}, device="cuda")) == ["training on an accelerator"]
    assert inexact(here, run("namespaces", {"cpu": "X"})) == ["real nodes"]


@pytest.mark.parametrize("text", ["", "{}", '{"runs": {"a": {"case": 1}}}', "[" * 100_000])
def test_a_file_that_makes_no_sense(tmp_path: Path, text: str) -> None:
    (tmp_path / "expected.json").write_text(text)
    with pytest.raises(ArchiveError, match=r"expected.json of the archive cannot"):
        read_expected(tmp_path / "expected.json")
