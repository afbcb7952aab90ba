"""The page of a study: limits.html, one file that opens offline, with a strip for each axis of each case."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from orchestrator import text
from orchestrator.errors import RunError
from orchestrator.limits.results import mildest_failure
from orchestrator.limits.study import Search, StudyResult, Try, how_it_ended, limit_in_words
from orchestrator.record.directory import write_whole
from orchestrator.report.template import rendered
from orchestrator.results.checks.verdicts import MARKS, Verdict
from orchestrator.scenario.language.files import first_comment

PAGE = "limits.html"
WIDTH = 1000.0  # of a strip, in its own units
LABELLED = 90.0  # units between two values that are written below a strip


def write_page(result: StudyResult, beside: StudyResult | None = None) -> Path:
    """Write the page of a study into its folder, and return its path. ``beside``: another study, with strips next to
    those of the first. RunError if there is no room."""
    path = result.directory / PAGE
    try:
        write_whole(path, rendered("limits/page.html", **content(result, beside)))
    except OSError as error:
        raise RunError(f"the page {path} cannot be written ({error.strerror}): make room, and repeat") from None
    return path


def content(result: StudyResult, beside: StudyResult | None = None) -> dict[str, Any]:
    """The variables of the page."""
    study = result.study
    axes: dict[str, dict[str, Any]] = {}
    for shown in (result, beside):
        if shown is None:
            continue
        folder = Path(os.path.relpath(shown.directory, result.directory))
        for search in shown.searches:
            axis = search.axis
            if axis.name not in axes:
                axes[axis.name] = {"name": axis.name, "where": _where(axis), "strips": []}
            strip = _strip(search, folder)
            if beside is not None:
                strip["case"] = f"{shown.study.name}: {strip['case']}"
            axes[axis.name]["strips"].append(strip)
    runs = sum(len(search.tries) for search in result.searches)
    return dict(
        name=study.name,
        question=first_comment(study.source),
        scenario=study.scenario.name,
        verdict=_verdict(result),
        marks=MARKS,
        saying=_saying(result),
        keys=[
            ("axes", str(len(axes)), ""),
            ("cases", str(len(study.cases)), ""),
            ("runs", str(runs), ""),
            ("driver", _driver(result), ""),
            ("unimpaired", _unimpaired(result), "seconds of training"),
            ("wall time", text.duration(result.wall), "of all runs"),
        ],
        axes=list(axes.values()),
        width=WIDTH,
        figures={},
    )


def _driver(result: StudyResult) -> str:
    return result.study.cases[0].scenario.driver


def _unimpaired(result: StudyResult) -> str:
    seconds = [text.duration(scale.seconds) for scale in result.scales.values()]
    return ", ".join(seconds)


def _verdict(result: StudyResult) -> Verdict:
    if result.missed:
        return "fail"
    if result.missing:
        return "unknown"
    return "pass"


def _saying(result: StudyResult) -> str:
    if result.missed:
        missed = []
        for search in result.missed:
            least = search.axis.written(search.axis.required or 0.0)
            missed.append(f"{search.name} must survive {least}")
        return f"Not met: {text.some(missed)}."
    if result.missing:
        return f"{how_it_ended(result)}Not finished: {text.some(search.name for search in result.missing)}."
    required = [search for search in result.searches if search.required is not None]
    if required:
        return "All requirements are met."
    return "All limits were found."


def _where(axis: Any) -> str:
    if axis.key is not None:
        where = f"of {axis.links}"
        return f"{where}, {axis.direction} only" if axis.direction else where
    if axis.absent:
        return "devices that lose their links for good"
    target = axis.fault.get("node") or axis.fault.get("program") or "see the scenario"
    return f"{axis.fault['action']} of {target}"


def _strip(search: Search, folder: Path) -> dict[str, Any]:
    """One strip: its gradient, its runs and its words. Positions are from 0 to `WIDTH`. ``folder``: of the runs, from
    that of the page."""
    limit = search.limit
    axis = search.axis
    green = 0.0
    red = WIDTH
    known = limit is not None
    if limit is not None:
        match limit.kind:
            case "none":
                green = WIDTH
            case "all":
                red = 0.0
            case "between" | "chance":
                green = WIDTH * min(1.0, max(0.0, limit.low or 0.0))
                red = WIDTH * min(1.0, max(0.0, limit.high or 0.0))
            case _:
                known = False
    by_position = sorted(search.tries, key=lambda one: one.position)
    return {
        "case": search.case.name,
        "words": limit_in_words(search),
        "known": known,
        "green": green,
        "red": red,
        "dots": [_dot(search, one, folder) for one in search.tries],
        "labels": _labels(search),
        "required": None if search.required is None else WIDTH * search.required,
        "required_words": None if axis.required is None else axis.written(axis.required),
        "failure": _failure(search),
        "runs": [_row(search, one, folder) for one in by_position],
    }


def _failure(search: Search) -> dict[str, Any] | None:
    """The failure at the mildest value; None without any."""
    failed = mildest_failure(search)
    if failed is None:
        return None
    judgement = failed.made.judgement
    return {
        "at": search.axis.written(failed.value),
        "kind": judgement.kind,
        "why": judgement.why,
        "symptom": judgement.symptom,
    }


def _dot(search: Search, one: Try, folder: Path) -> dict[str, Any]:
    earlier = search.tries[: search.tries.index(one)]
    below = sum(abs(other.position - one.position) * WIDTH < 8 for other in earlier)
    return {
        "x": WIDTH * one.position,
        "y": 15 + 7 * (below % 3),
        "report": _report(one, folder),
        "state": _state(one),
        "title": f"{search.axis.written(one.value)}: {one.made.judgement.why}",
    }


def _state(one: Try) -> Verdict:
    match one.made.judgement.survived:
        case True:
            return "pass"
        case False:
            return "fail"
        case None:
            return "unknown"


def _report(one: Try, folder: Path) -> str:
    path = folder / one.made.facts.run.name / "report.html"
    return quote(path.as_posix())


def _labels(search: Search) -> list[dict[str, Any]]:
    """The values below a strip: both ends, and those of the limit, where there is room."""
    scale = search.axis.scale
    places = [0.0, 1.0]
    limit = search.limit
    if limit is not None:
        for end in (limit.low, limit.high):
            if end is not None and 0 < end < 1:
                places.append(end)
    labels: list[dict[str, Any]] = []
    for place in places:
        x = WIDTH * place
        if all(abs(label["x"] - x) >= LABELLED for label in labels):
            anchor = "middle"
            if place == 0:
                anchor = "start"
            elif place == 1:
                anchor = "end"
            words = scale.written(scale.value(place))
            labels.append({"x": x, "words": words, "anchor": anchor})
    return labels


def _row(search: Search, one: Try, folder: Path) -> dict[str, Any]:
    facts = one.made.facts
    return {
        "value": search.axis.written(one.value),
        "seed": one.seed,
        "state": _state(one),
        "kind": one.made.judgement.kind or "",
        "why": one.made.judgement.why,
        "report": _report(one, folder),
        "name": facts.run.name,
    }
