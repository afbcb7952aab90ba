"""The row of a claim: recorded, or after running its sweep."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator import text
from orchestrator.claims.evaluation import ClaimEvaluation, evaluate, recorded
from orchestrator.claims.reading import UNITS, Claim, Measured, Paper, Recorded, measured
from orchestrator.errors import RunError, ScenarioError
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.run.options import check_workers
from orchestrator.scenario.language.strict import unknown
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.sweep.quantities import REACHED, Figures, Result, restrict
from orchestrator.sweep.reading import Sweep, load
from orchestrator.sweep.running import run_task
from orchestrator.sweep.sweeper import Sweeper
from orchestrator.sweep.tables import failures
from orchestrator.verbs.versions import versions

_VARIED = re.compile(r", (?=[\w.-]+=)")
_KEPT = {"place", "says", "full_size", "unit", "floor", "ceiling", "note", "cost"}  # keys of a claim


@dataclass(frozen=True)
class Row:
    """A claim with its figures, their evaluation, and how they were made."""

    paper: Paper
    name: str
    figures: Mapping[str, Measured]
    evaluation: ClaimEvaluation
    provenance: Recorded

    @property
    def claim(self) -> Claim:
        return self.paper.read.claims[self.name]

    @property
    def as_recorded(self) -> bool:
        return self.evaluation.state == recorded(self.claim).state

    @property
    def command(self) -> str:
        """The command that checks the claim; empty if there is none."""
        if self.claim.command:
            return self.claim.command
        if self.claim.sweep:
            return f"edgebed reproduce {self.name}"
        return ""

    @property
    def size(self) -> str:
        return self.claim.size or self.paper.read.size.ours

    def to_json(self) -> dict[str, Any]:
        claim = self.claim
        kept = claim.model_dump(include=_KEPT)
        figures: dict[str, dict[str, Any]] = {}
        for name, figure in claim.figures.items():
            figures[name] = {"paper": figure.paper}
            if name in self.figures:
                figures[name] |= asdict(self.figures[name])
        return {
            "name": self.name,
            "paper": self.paper.read.paper,
            "recorded_state": recorded(claim).state,
            **kept,
            "figures": figures,
            **asdict(self.evaluation),
            **self.provenance.model_dump(exclude={"seeds"}),
            "command": self.command,
            "size": self.size,
        }


def recorded_rows(papers: list[Paper]) -> list[Row]:
    """The rows of all claims with their recorded figures."""
    rows = []
    for paper in papers:
        for name, claim in paper.read.claims.items():
            evaluation = recorded(claim)
            row = Row(paper, name, claim.known, evaluation, claim.recorded)
            rows.append(row)
    return rows


def reproduce(
    paper: Paper,
    name: str,
    runs: Path,
    *,
    driver: str | None,
    workers: int | None,
    tell: Callable[[str], None],
) -> Row:
    """Run the cases of a claim's sweep in the sweep's folder in ``runs``, and compare their figures with the claim.
    Complete runs are not repeated. Tables of the sweep are left as they are.

    RunError if no sweep checks the claim, or if a run failed.
    """
    claim = paper.read.claims[name]
    if claim.sweep is None:
        why = f"run `{claim.command}`" if claim.command else f"{claim.note}; cost: {claim.cost or 'unknown'}"
        raise RunError(f"no sweep checks {name}: {why}")
    driver = driver or claim.recorded.driver
    sweep, cases = claimed(paper, name, driver)
    for combination in sweep.combinations:
        check_workers(workers, combination.scenario.driver_kind)
    results = []
    sweeper = Sweeper(sweep, runs / sweep.name, workers, tell)
    for number in range(len(sweep.combinations)):
        result, code = run_task(sweeper, number)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        results.append(result)
    failed = failures(results)
    if failed:
        raise RunError(f"{name}: {len(failed)} of {len(results)} runs failed: {failed[0]}")
    figures = claim.known
    for key, case in cases.items():
        figures |= comparable(claim, {key: case}, results)

    def figures_of(names: Collection[str]) -> Mapping[str, Measured]:
        cases_of_names = {}
        for key in names:
            if key in cases:
                cases_of_names[key] = cases[key]
        return figures | comparable(claim, cases_of_names, results)

    evaluation = evaluate(claim, figures_of)
    walls = [result.figures.get("wall_seconds", 0.0) for result in results]
    minutes = math.fsum(walls) / 60
    provenance = Recorded(
        minutes=round(minutes, 2) or None,
        driver=driver,
        version=versions()["edgebed"],
    )
    return Row(paper, name, figures, evaluation, provenance)


def claimed(
    paper: Paper,
    name: str,
    driver: str,
) -> tuple[Sweep, dict[str, str]]:
    """The sweep of a claim with only the cases that it needs, and the case of each figure. Of a list of data sets, it
    has the first one. ScenarioError if the sweep cannot be read or lacks a case."""
    claim = paper.read.claims[name]
    path = paper.file.parent / str(claim.sweep)
    file = Path(os.path.normpath(path))
    overrides = [f"driver={driver}"]
    sweep = load(file, overrides)
    if not claim.any_data:
        data_sets = set()
        for combination in sweep.combinations:
            data_sets.add(tuple(combination.scenario.data.dataset))
        if len(data_sets) == 1:
            first = data_sets.pop()[0]
            sweep = load(file, [*overrides, f"data.dataset={first}"])
    cases: dict[str, str] = {}
    for key, figure in claim.figures.items():
        if figure.case is not None:
            place = ("claims", name, "figures", key, "case")
            cases[key] = _case_of(paper, place, sweep, figure.case)
    chosen = []
    for combination in sweep.combinations:
        if combination.case in cases.values():
            chosen.append(combination)
    return replace(sweep, combinations=tuple(chosen)), cases


def _case_of(
    paper: Paper,
    place: KeyPath,
    sweep: Sweep,
    name: str,
) -> str:
    """The case of a sweep that a name at ``place`` means. ScenarioError unless there is exactly one."""
    named = []
    for case in sweep.cases:
        if _is_named(case, name):
            named.append(case)
    if len(named) == 1:
        return named[0]
    if named:
        message = f"means several cases; add varied values: {'; '.join(named)}"
    else:
        message = unknown("case of the sweep", name, sweep.cases)
    raise ScenarioError([paper.problem(place, message)])


def _is_named(case: str, name: str) -> bool:
    """Whether a name means this case. It may leave out varied values."""
    case_parts = _VARIED.split(case)
    name_parts = _VARIED.split(name)
    if case_parts[0] != name_parts[0]:
        return False
    case_values = set(case_parts[1:])
    name_values = set(name_parts[1:])
    return name_values <= case_values


def comparable(
    claim: Claim,
    cases: Mapping[str, str],
    results: Sequence[Result],
) -> dict[str, Measured]:
    """Figures by name, each of its case. Times to a target are cut at the same place. RunError if no run reached it."""
    own = []
    for result in results:
        if result.combination.case in cases.values():
            own.append(result)
    restricted = restrict([result.figures for result in own])
    runs_of: dict[str, dict[int, Figures]] = {}
    for result, run in zip(own, restricted, strict=True):
        combination = result.combination
        runs_of_case = runs_of.setdefault(combination.case, {})
        runs_of_case[combination.seed] = run
    figures = {}
    timed = []
    for key, case in cases.items():
        runs = runs_of.get(case, {})
        figures[key] = _measured(claim, key, runs)
        if _metric(claim, key).startswith("to_target."):
            timed.append(key)
    some_reached = any(result.figures.get(REACHED, 1) for result in own)
    if len(timed) > 1 and not some_reached:
        raise RunError(f"no run of {text.some(timed)} reached the target, so they cannot be compared")
    return figures


def _metric(claim: Claim, key: str) -> str:
    return claim.figures[key].metric or claim.metric


def _measured(claim: Claim, key: str, runs: Mapping[int, Figures]) -> Measured:
    """A figure by seed from the runs of its case, in the unit of the claim."""
    metric = _metric(claim, key)
    factor = UNITS.get(claim.unit, 1.0)
    counts_until_target = metric.startswith("to_target.")
    values = {}
    names: set[str] = set()
    censored = 0
    for seed, run in runs.items():
        names.update(run)
        if metric in run:
            values[seed] = run[metric] * factor
        if counts_until_target and not run.get(REACHED, 1):
            censored += 1
    if not values:
        raise RunError(f"{key}: {unknown('figure of the runs of this case', metric, sorted(names))}")
    return measured(values, censored)
