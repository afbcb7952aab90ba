"""The limits of a study in a terminal."""

from __future__ import annotations

from rich.console import Console

from orchestrator.layout import write_table
from orchestrator.limits.results import mildest_failure
from orchestrator.limits.study import StudyResult, limit_in_words


def print_limits(result: StudyResult, console: Console) -> None:
    """Print one row for each search: its limit, its runs, and how the mildest failure looks."""
    rows = []
    for search in result.searches:
        failure = mildest_failure(search)
        symptom = ""
        kind = ""
        if failure is not None:
            judgement = failure.made.judgement
            kind = judgement.kind or ""
            symptom = judgement.why
            if judgement.symptom is not None:
                symptom = judgement.symptom.what
        required = ""
        if search.axis.required is not None:
            required = search.axis.written(search.axis.required)
            if search.meets_requirement is not None:
                required += ": met" if search.meets_requirement else ": not met"
        rows.append(
            (
                search.case.name,
                search.axis.name,
                limit_in_words(search),
                str(len(search.tries)),
                required,
                kind,
                symptom,
            )
        )
    headings = ("case", "axis", "limit", "runs", "required", "fails by", "first symptom")
    write_table(console, headings, rows, title=f"limits of {result.study.scenario.name}", right={3})
