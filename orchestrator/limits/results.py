"""The results of a study as JSON, CSV and JUnit, and its files."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import RunError
from orchestrator.limits.outcome import Unimpaired
from orchestrator.limits.reading import COPY
from orchestrator.limits.study import Search, StudyResult, Try, limit_in_words
from orchestrator.record.directory import write_whole
from orchestrator.results.junit import CaseOutcome, suites_of, write_suites

JSON_FILE = "limits.json"
CSV_FILE = "limits.csv"
COLUMNS = ("case", "axis", "value", "seed", "survived", "kind", "why", "seconds", "rounds", "accuracy", "run")


def to_json(result: StudyResult) -> dict[str, Any]:
    """The object that `limits --json` prints, and limits.json holds.

    ``limits``: one for each case and axis, with ``kind`` as in `orchestrator.limits.verdict.Limit`, ``low`` and
    ``high`` in seconds, bits per second, fractions or devices, ``required`` and ``met``, the first ``symptom`` of the
    mildest failure, and its ``runs``. ``unimpaired``: by case. ``missing``: the searches that did not end, and why is
    ``ended``.
    """
    study = result.study
    return {
        "name": study.name,
        "scenario": str(study.scenario),
        "unimpaired": {case: _scale(scale) for case, scale in result.scales.items()},
        "limits": [_limit(search) for search in result.searches],
        "ended": result.ended,
        "missing": [search.name for search in result.missing],
        "budget": study.budget,
        "wall_seconds": round(result.wall, 1),
    }


def _scale(scale: Unimpaired) -> dict[str, Any]:
    return {
        "seconds": round(scale.seconds, 3),
        "rounds": scale.rounds,
        "accuracy": scale.accuracy,
        "bytes": scale.bytes,
    }


def _limit(search: Search) -> dict[str, Any]:
    limit = search.limit
    axis = search.axis

    def value(position: float | None) -> float | None:
        return None if position is None else axis.scale.value(position)

    failure = mildest_failure(search)
    symptom = failure.made.judgement.symptom if failure is not None else None
    return {
        "case": search.case.name,
        "axis": axis.name,
        "unit": axis.scale.unit,
        "kind": limit.kind if limit is not None else None,
        "low": value(limit.low) if limit is not None else None,
        "high": value(limit.high) if limit is not None else None,
        "middle": value(limit.middle) if limit is not None else None,
        "words": limit_in_words(search),
        "failure": failure.made.judgement.kind if failure is not None else None,
        "symptom": symptom.to_json() if symptom is not None else None,
        "required": axis.required,
        "met": search.meets_requirement,
        "runs": [_run(one) for one in search.tries],
    }


def _run(one: Try) -> dict[str, Any]:
    judgement = one.made.judgement
    facts = one.made.facts
    return {
        "value": one.value,
        "seed": one.seed,
        "survived": judgement.survived,
        "kind": judgement.kind,
        "why": judgement.why,
        "seconds": facts.seconds,
        "rounds": facts.rounds,
        "accuracy": facts.accuracy,
        "run": facts.run.name,
    }


def mildest_failure(search: Search) -> Try | None:
    """The failed run at the mildest value: what fires first."""
    failures = [one for one in search.tries if one.made.judgement.survived is False]
    return min(failures, key=lambda one: one.position, default=None)


def rows(result: StudyResult) -> Iterator[tuple[Any, ...]]:
    """One row for each run, with `COLUMNS`."""
    for search in result.searches:
        for one in search.tries:
            run = {"case": search.case.name, "axis": search.axis.name, **_run(one)}
            yield tuple(run[column] for column in COLUMNS)


def as_csv(result: StudyResult) -> str:
    """The runs as a table."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows(result))
    return output.getvalue()


def junit(result: StudyResult) -> ET.Element:
    """One test case for each search: failed if its requirement is not met, skipped if it found no limit."""
    cases: list[tuple[str, CaseOutcome, str]] = []
    for search in result.searches:
        words = limit_in_words(search)
        met = search.meets_requirement
        outcome: CaseOutcome = "skipped"
        if met is False:
            outcome = "failure"
        elif search.limit is not None and search.limit.kind != "unknown":
            outcome = "passed"
        if met is False and search.axis.required is not None:
            words += f"; {search.axis.written(search.axis.required)} must survive"
        cases.append((search.name, outcome, words))
    return suites_of(f"edgebed.limits.{result.study.name}", cases, result.wall)


def write_junit(result: StudyResult, file: Path) -> None:
    """Write the limits as JUnit XML. RunError if writing fails."""
    write_suites(junit(result), file)


def write_files(result: StudyResult, facts: Mapping[str, Any]) -> None:
    """Write limits.json and limits.csv into the study's folder. RunError if there is no room."""
    directory = result.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / COPY, result.study.source)
        write_whole(directory / JSON_FILE, json.dumps(facts, indent=2) + "\n")
        write_whole(directory / CSV_FILE, as_csv(result))
    except OSError as error:
        raise RunError(
            f"cannot write the results in {directory} ({error.strerror}): make room, or choose --runs"
        ) from None
