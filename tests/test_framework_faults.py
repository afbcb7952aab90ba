"""The page of frameworks under faults: what is kept of a suite."""

from __future__ import annotations

import json

import yaml

from docs.faults import KEPT, NOTES, kept


def test_what_is_kept_has_the_date_of_the_last_run() -> None:
    runs = [{"run": "a-20261129-235959-abcd", "seed": 1}, {"run": "a-20261130-000001-abcd", "seed": 2}]
    facts = kept({"name": "a-faults", "scenario": "a.yaml", "runs": runs})
    assert facts == {"date": "2026-11-30", "scenario": "a.yaml", "runs": [{"seed": 1}, {"seed": 2}]}


def test_every_result_is_on_the_page_and_its_cases_are_known() -> None:
    notes = yaml.safe_load(NOTES.read_text())
    assert {file.stem for file in KEPT.glob("*.json")} == set(notes)
    for name, note in notes.items():
        runs = json.loads((KEPT / f"{name}.json").read_text())["runs"]
        cases = {run["case"] for run in runs}
        assert note.get("explanations", {}).keys() <= cases
