"""The page of the limits of frameworks: what is kept of a study, and its table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.limits import KEPT, NOTES, STUDIES, framework, keep, kept

CONNECTION = {"node": "device-0", "at": None, "what": "device-0 waits", "lines": ["no answer"], "connections": []}


def limit(case: str, words: str, **changes: Any) -> dict[str, Any]:
    """A limit as `edgebed limits` writes it, of two runs on two days."""
    runs = [{"run": "a-20261129-235959-abcd"}, {"run": "a-20261130-000001-abcd"}]
    values = {"unit": "duration", "kind": "between", "low": 2.0, "high": 2.2, "middle": None}
    found = {"case": case, "axis": "latency", "words": words, "failure": "hang", "symptom": CONNECTION, "runs": runs}
    return {**values, **found, **changes}


def study(*limits: dict[str, Any]) -> dict[str, Any]:
    scale = {"seconds": 30.0, "rounds": 3, "accuracy": None, "bytes": 1e6}
    return {"name": "a", "wall_seconds": 600.0, "unimpaired": {"default": scale}, "limits": list(limits)}


STUDY_FILE = {"axes": {"latency": {}}, "cases": {"default": {}, "patient": {"programs.device.environment.WAIT": 20}}}
NOTES_OF_A = {"title": "A 1.0", "setting": "One server.", "axes": {}}


def table_row(*limits: dict[str, Any], notes: dict[str, Any] = NOTES_OF_A) -> str:
    lines = framework("a", notes, kept(study(*limits)), STUDY_FILE)
    (row,) = [line for line in lines if line.startswith("| latency")]
    return row


def test_the_date_is_that_of_the_last_run() -> None:
    results = kept(study(limit("default", "survives 2s, fails at 2.2s")))
    assert results["date"] == "2026-11-30"
    assert results["minutes"] == 10
    assert results["limits"][0]["runs"] == 2


def test_the_other_cases_show_what_moves_a_limit() -> None:
    row = table_row(limit("default", "survives 2s"), limit("patient", "survives 9s"))
    assert row == "| latency | survives 2s | hang | device-0 waits | with `WAIT: 20`: survives 9s |"


def test_the_words_of_a_person_replace_the_symptom() -> None:
    notes = {**NOTES_OF_A, "axes": {"latency": {"symptom": "0 connected", "moves": "no setting"}}}
    row = table_row(limit("default", "survives 2s"), notes=notes)
    assert row == "| latency | survives 2s | hang | 0 connected | no setting |"


def test_a_limit_by_chance_has_its_number_of_runs() -> None:
    row = table_row(limit("default", "half survive 30%", kind="chance", failure="slow"))
    assert "half survive 30%, 2 runs" in row


def test_an_axis_without_runs_is_not_tried() -> None:
    assert table_row(limit("patient", "survives 9s")).startswith("| latency | not tried |")


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"limits\.json is missing: name the folder"):
        keep(tmp_path)


def test_every_kept_study_is_shipped() -> None:
    files = sorted(KEPT.glob("*.json"))
    assert files
    for file in files:
        assert (STUDIES / file.name).with_suffix(".yaml").exists()
        assert f"\n{file.stem}:\n" in NOTES.read_text()
        assert json.loads(file.read_text())["limits"]
