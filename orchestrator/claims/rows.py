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
from orchestrator.sweep.figures import REACHED, Figures, Result, restrict
from orchestrator.sweep.reading import Sweep, load
from orchestrator.sweep.running import run_task
from orchestrator.sweep.sweeper import Sweeper
from orchestrator.sweep.tables import failures
from orchestrator.verbs.doctor import versions

_VARIED = re.compile(r", (?=[\w.-]+=)")


@dataclass(frozen=True)
class Row:
    """A claim with its figures, their evaluation, and how they were made."""

    paper: Paper
    name: str
    figures: Mapping[str, Measured]
    evaluation: ClaimEvaluation
    made: Recorded

    @property
    def claim(self) -> Claim:
        return self.paper.read.claims[self.name]

    @property
    def as_recorded(self) -> bool:
        return self.evaluation.state == recorded(self.claim).state

    @property
    def command(self) -> str:
        """The command that checks the claim; empty if there is none."""
        return self.claim.command or (f"edgebed reproduce {self.name}" if self.claim.sweep else "")

    @property
    def size(self) -> str:
        return self.claim.size or self.paper.read.size.ours

    def to_json(self) -> dict[str, Any]:
        claim = self.claim
        found = self.evaluation
        kept = claim.model_dump(include={"place", "says", "full_size", "unit", "floor", "ceiling", "note", "cost"})
        figures = {
            name: {"paper": each.paper, **({} if name not in self.figures else asdict(self.figures[name]))}
            for name, each in claim.figures.items()
        }
        made = self.made.model_dump(exclude={"seeds"}) | {"command": self.command, "size": self.size}
        row = {"name": self.name, "paper": self.paper.read.paper, "recorded_state": recorded(claim).state}
        return row | kept | {"figures": figures} | asdict(found) | made


def recorded_rows(papers: list[Paper]) -> list[Row]:
    """The rows of all claims with their recorded figures."""
    return [
        Row(paper, name, claim.known, recorded(claim), claim.recorded)
        for paper in papers
        for name, claim in paper.read.claims.items()
    ]


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
        check_workers(workers, combination.scenario.driver)
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
    figures = claim.known | {key: comparable(claim, {key: case}, results)[key] for key, case in cases.items()}

    def figures_of(names: Collection[str]) -> Mapping[str, Measured]:
        return figures | comparable(claim, {key: cases[key] for key in names if key in cases}, results)

    evaluation = evaluate(claim, figures_of)
    wall = math.fsum(each.figures.get("wall_seconds", 0.0) for each in results)
    made = Recorded(minutes=round(wall / 60, 2) or None, driver=driver, version=versions()["edgebed"])
    return Row(paper, name, figures, evaluation, made)


def claimed(paper: Paper, name: str, driver: str) -> tuple[Sweep, dict[str, str]]:
    """The sweep of a claim with only the cases that it needs, and the case of each figure. Of a list of data sets, it
    has the first one. ScenarioError if the sweep cannot be read or lacks a case."""
    claim = paper.read.claims[name]
    place = ("claims", name)
    file = Path(os.path.normpath(paper.file.parent / str(claim.sweep)))
    overrides = [f"driver={driver}"]
    sweep = load(file, overrides)
    if not claim.any_data and len(data := {tuple(each.scenario.data.dataset) for each in sweep.combinations}) == 1:
        sweep = load(file, [*overrides, f"data.dataset={data.pop()[0]}"])
    cases: dict[str, str] = {}
    for key, figure in claim.figures.items():
        if figure.case is not None:
            of = [each for each in sweep.cases if _is_named(each, figure.case)]
            if len(of) != 1:
                several = f"means several cases; add varied values: {'; '.join(of)}"
                if of:
                    message = several
                else:
                    message = unknown("case of the sweep", figure.case, sweep.cases)
                raise ScenarioError([paper.problem((*place, "figures", key, "case"), message)])
            cases[key] = of[0]
    chosen = tuple(each for each in sweep.combinations if each.case in cases.values())
    return replace(sweep, combinations=chosen), cases


def _is_named(case: str, name: str) -> bool:
    """Whether a name means this case. It may leave out varied values."""
    (own, *varied), (given, *chosen) = _VARIED.split(case), _VARIED.split(name)
    return own == given and set(chosen) <= set(varied)


def comparable(claim: Claim, cases: Mapping[str, str], results: Sequence[Result]) -> dict[str, Measured]:
    """Figures by name, each of its case. Times to a target are cut at the same place. RunError if no run reached it."""
    own = [each for each in results if each.combination.case in cases.values()]
    runs_of: dict[str, dict[int, Figures]] = {case: {} for case in cases.values()}
    for each, found in zip(own, restrict([each.figures for each in own]), strict=True):
        runs_of[each.combination.case][each.combination.seed] = found
    figures = {key: _measured(claim, key, runs_of[case]) for key, case in cases.items()}
    timed = [key for key in cases if (claim.figures[key].metric or claim.metric).startswith("to_target.")]
    if len(timed) > 1 and not any(each.figures.get(REACHED, 1) for each in own):
        raise RunError(f"no run of {text.some(timed)} reached the target, so they cannot be compared")
    return figures


def _measured(claim: Claim, key: str, runs: Mapping[int, Figures]) -> Measured:
    """A figure by seed from the runs of its case, in the unit of the claim."""
    metric = claim.figures[key].metric or claim.metric
    factor = UNITS.get(claim.unit, 1.0)
    known = {name for each in runs.values() for name in each}
    if metric not in known:
        raise RunError(f"{key}: {unknown('figure of the runs of this case', metric, sorted(known))}")
    if metric.startswith("to_target."):
        censored = sum(not each.get(REACHED, 1) for each in runs.values())
    else:
        censored = 0
    return measured({seed: each[metric] * factor for seed, each in runs.items() if metric in each}, censored)
