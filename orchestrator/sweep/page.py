"""The page of a sweep: sweep.html, one file that opens offline, with curves, bars and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from orchestrator import text
from orchestrator.errors import RunError
from orchestrator.record.directory import write_whole
from orchestrator.report.marks import Figure
from orchestrator.report.template import rendered
from orchestrator.results.checks.verdicts import MARKS, Verdict
from orchestrator.results.evaluation.targets import Judged, judged_on
from orchestrator.scenario.language.files import first_comment
from orchestrator.sweep.curves import RunCurve, read_curve
from orchestrator.sweep.drawing import Look, bars, both_curves, looks, stacked_bytes
from orchestrator.sweep.quantities import REACHED, Figures, Result, compare, judged_by
from orchestrator.sweep.reading import Sweep
from orchestrator.sweep.tables import (
    COSTS,
    about_comparisons,
    about_rounds,
    columns_of_learning,
    comparison_table,
    failures,
    legend,
    results_of,
    table,
    verdicts,
)
from orchestrator.verbs.results.figures import drawable, write_figures

PAGE = "sweep.html"
FIGURES = "figures"


def write_page(
    sweep: Sweep,
    results: Sequence[Result],
    directory: Path,
    *,
    with_figures: bool = False,
) -> Path:
    """Write the page of a sweep into its directory, and return its path. ``with_figures``: also the figures for papers,
    if matplotlib is installed. RunError if there is no room."""
    path = directory / PAGE
    shown = content(sweep, results)
    try:
        write_whole(path, rendered("sweep/page.html", **shown))
    except OSError as error:
        raise RunError(
            f"the page {path} cannot be written ({error.strerror}): make room, then `sweep --collect`"
        ) from None
    if with_figures and drawable():
        write_figures(shown["figures"], directory / FIGURES)
    return path


def render(sweep: Sweep, results: Sequence[Result]) -> str:
    """The page as one HTML text."""
    return rendered("sweep/page.html", **content(sweep, results))


def content(sweep: Sweep, results: Sequence[Result]) -> dict[str, Any]:
    """The variables of the page. The runs are read one after another, and only their curves are kept."""
    cases = looks(list(sweep.cases))
    complete = [result for result in results if not result.failed]
    target = sweep.target
    judged: Judged | list[str]
    if target is not None and target.scope == "own":
        judged = target.judged
    else:
        judged = judged_by(complete)
    by_case = {look.case: results_of(look.case, complete) for look in cases}
    last = dict[Path, float | None]()

    def read(case: str) -> list[RunCurve]:
        curves = dict[Path, RunCurve]()
        for result in by_case[case]:
            if result.run is not None:
                curve = read_curve(result.run, judged)
                curves[result.run] = curve
                last[result.run] = curve.last
        return list(curves.values())

    figures = both_curves(cases, read)
    figures |= _bars(sweep, cases, by_case)
    comparisons = compare(results)
    runs = []
    for result in complete:
        if result.run is not None:
            accuracy = last.get(result.run)
            runs.append(_run_row(result, result.run, accuracy))
    return dict(
        name=sweep.name,
        question=first_comment(sweep.source),
        scenario=sweep.scenario.name,
        verdict=_verdict(sweep, results),
        marks=MARKS,
        complete=len(complete),
        planned=text.count(len(sweep.combinations), "run"),
        verdicts=verdicts(results),
        keys=_keys(sweep, complete),
        judged_on=judged_on(judged),
        seeds=len({combination.seed for combination in sweep.combinations}),
        figures=figures,
        legend=legend(sweep),
        about_rounds=about_rounds(sweep),
        about_comparisons=about_comparisons(sweep, comparisons),
        comparisons=comparison_table(comparisons),
        tables=[
            table(sweep, results, columns_of_learning(target)),
            table(sweep, results, COSTS),
        ],
        runs=runs,
        failures=failures(results),
    )


def _bars(
    sweep: Sweep,
    cases: Sequence[Look],
    by_case: Mapping[str, Sequence[Result]],
) -> dict[str, Figure]:
    """Rounds, seconds and bytes to the target; empty without a target, or if no run reached it."""
    runs: dict[str, list[Figures]] = {}
    some_reached = False
    for case, results in by_case.items():
        runs[case] = [result.figures for result in results]
        for figures in runs[case]:
            if figures.get(REACHED):
                some_reached = True
    if not some_reached:
        return {}
    return {
        "target-rounds": bars(cases, runs, "to_target.rounds", "rounds to the target", text.number),
        "target-time": bars(cases, runs, "to_target.seconds", "seconds to the target", text.duration),
        "target-bytes": stacked_bytes(cases, runs, "to_target.bytes.", "bytes to the target"),
    }


def _verdict(sweep: Sweep, results: Sequence[Result]) -> Verdict:
    all_pass = True
    for result in results:
        if result.failed or result.verdict == "fail":
            return "fail"
        if result.verdict != "pass":
            all_pass = False
    if all_pass and len(results) >= len(sweep.combinations):
        return "pass"
    return "unknown"


def _keys(
    sweep: Sweep,
    complete: Sequence[Result],
) -> list[tuple[str, str, str]]:
    """The key numbers at the top of the page: label, value, note."""
    walls = []
    for result in complete:
        if "wall_seconds" in result.figures:
            walls.append(result.figures["wall_seconds"])
    wall = sum(walls) if walls else None
    seeds = sorted({combination.seed for combination in sweep.combinations})
    listed_seeds = text.some(map(str, seeds))
    drivers = sorted({combination.scenario.driver for combination in sweep.combinations})
    aim = "none"
    aim_note = ""
    if sweep.target is not None:
        aim = text.percent(sweep.target.accuracy)
        aim_note = f"{sweep.target.scope} accuracy"
    return [
        ("cases", str(len(sweep.cases)), ""),
        ("seeds", str(len(seeds)), listed_seeds),
        ("runs", str(len(complete)), f"of {len(sweep.combinations)}"),
        ("target", aim, aim_note),
        ("driver", ", ".join(drivers), ""),
        ("wall time", text.duration(wall), "of all runs"),
    ]


def _run_row(result: Result, run: Path, last: float | None) -> dict[str, Any]:
    """One run of the sweep, in words; ``report`` is the path of its report, seen from the page."""
    return {
        "case": result.combination.case,
        "seed": result.combination.seed,
        "name": run.name,
        "report": f"{quote(run.name)}/report.html",
        "verdict": result.verdict,
        "accuracy": text.percent(last),
        "rounds": text.number(int(result.figures["rounds"])),
        "seconds": text.duration(result.figures["seconds"]),
    }
