"""The suite of a study: the sweep that tries all thirteen faults on its scenario, and what came of its runs.

Every fault is a case of the sweep, so its runs are kept, continued, and executed in parallel as those of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netem.units import format_duration
from orchestrator.errors import Problem, ScenarioError
from orchestrator.limits.axes import device_names, first_leader
from orchestrator.limits.fault_effects import Effects, effects
from orchestrator.limits.faults import FAULTS, IDLE, LEAD, MAY_BEGIN, NAMES, FaultsSection, SuiteFault
from orchestrator.limits.reading import StudyFile
from orchestrator.limits.runs import ignore
from orchestrator.results.checks.registry import checks, overall
from orchestrator.results.history import History
from orchestrator.scenario import reading
from orchestrator.scenario.language import document
from orchestrator.scenario.language.document import Document
from orchestrator.scenario.language.strict import nearest, unknown, validated
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.language.words import dotted, name_from
from orchestrator.scenario.schema import Scenario
from orchestrator.sweep.jobs import execute_in_parallel
from orchestrator.sweep.reading import Combination, Sweep, assignment, override_places, problems_in_case, rounds_of
from orchestrator.sweep.sweeper import Sweeper


@dataclass(frozen=True)
class Task:
    """A run of a suite: its case, its fault, and the nodes that the fault is about."""

    case: str
    fault: str
    client: str
    server: str


Planned = tuple[Combination, Task]


@dataclass(frozen=True)
class Suite:
    """A suite after reading: its runs as those of a ``sweep``, with a task for each."""

    sweep: Sweep
    tasks: tuple[Task, ...]


def load_suite(file: Path, overrides: Sequence[str] = ()) -> Suite:
    """Read the suite of a study, or of a scenario with all defaults. ``overrides`` apply to all runs. ScenarioError
    lists every problem with file, line and path."""
    written = reading.scenario_text(file)
    source = document.read(written, str(file))
    data = {"name": name_from(file.stem, "limits"), **source.data}
    scenario_text = written
    if "scenario" in source.data:
        place = source.place(("scenario",))
        scenario_text = reading.scenario_text(file.parent / str(data["scenario"]), place, "scenario")
    else:
        data = {"name": data["name"], "scenario": file.name}
    read = validated(StudyFile, source, data)
    scenario = file.parent / read.scenario
    reader = _Reader(read, source, scenario, scenario_text, overrides)
    combinations, tasks = reader.runs()
    sweep = Sweep(
        name=f"{read.name}-faults",
        file=file,
        scenario=scenario,
        target=None,
        combinations=tuple(combinations),
        text=scenario_text,
        source=written,
    )
    return Suite(sweep, tuple(tasks))


class _Reader:
    """Reads the runs of a suite: every fault in every case with every seed, and the problems of all of them."""

    def __init__(
        self,
        read: StudyFile,
        source: Document,
        scenario: Path,
        text: str,
        common: Sequence[str],
    ) -> None:
        self._read = read
        self._section = read.faults or FaultsSection()
        self._source = source
        self._name = str(scenario)
        self._text = text
        self._common = common
        self._rounds = rounds_of(text, self._name)
        self._problems: list[Problem] = []

    def runs(self) -> tuple[list[Combination], list[Task]]:
        """All runs and their tasks. ScenarioError if there is a problem."""
        combinations: list[Combination] = []
        tasks: list[Task] = []
        self._problems += _unknown_faults(self._section, self._source)
        for case, changes in (self._read.cases or {"default": {}}).items():
            for combination, task in self._runs_of_case(case, changes):
                combinations.append(combination)
                tasks.append(task)
        if self._problems:
            raise ScenarioError(list(dict.fromkeys(self._problems)))
        return combinations, tasks

    def _runs_of_case(self, case: str, changes: Mapping[str, Any]) -> Iterator[Planned]:
        common = self._section.changes
        places = override_places(self._source, ("faults", "changes"), common, self._rounds)
        places |= override_places(self._source, ("cases", case), changes, self._rounds)
        scenario = self._parsed(case, places, (*places, *self._common))
        if scenario is None:
            return
        mistakes = list(_unknown_nodes(self._section, self._source, scenario))
        if mistakes:
            self._problems += mistakes
            return
        client = self._section.client or device_names(scenario)[-1]
        server = self._section.server
        if server is None:
            server = scenario.topology.parents[client] or first_leader(scenario)
        for fault in FAULTS:
            if fault.name == IDLE and IDLE not in self._section.also:
                continue
            task = Task(case, fault.name, client, server)
            yield from self._runs_of_fault(task, fault, scenario, places)

    def _runs_of_fault(
        self,
        task: Task,
        fault: SuiteFault,
        scenario: Scenario,
        places: Mapping[str, str],
    ) -> Iterator[Planned]:
        also = self._section.also.get(fault.name, {})
        own = override_places(self._source, ("faults", "also", fault.name), also, self._rounds)
        changes = _changes(fault, self._section, scenario, task)
        added = [assignment(path, value) for path, value in changes.items()]
        overrides = (*places, *own, *self._common, *added)
        name = fault.name if len(self._read.cases) < 2 else f"{task.case}: {fault.name}"
        checked = self._parsed(name, {**places, **own}, overrides)
        if checked is None:
            return
        for seed in range(1, self._read.repeat + 1):
            seeded = checked.model_copy(update={"seed": seed})
            with_seed = (*overrides, assignment("seed", seed))
            yield Combination(name, seed, with_seed, seeded), task

    def _parsed(
        self,
        case: str,
        places: Mapping[str, str],
        overrides: Sequence[str],
    ) -> Scenario | None:
        """The scenario with these overrides; None if there are problems in it."""
        try:
            return reading.parse(self._text, self._name, overrides)
        except ScenarioError as error:
            self._problems += problems_in_case(error, case, places)
            return None


def _unknown_faults(section: FaultsSection, source: Document) -> Iterator[Problem]:
    for fault in section.also:
        if fault not in NAMES:
            path: KeyPath = ("faults", "also", fault)
            message = f"there is no fault '{fault}' in this suite{nearest(fault, NAMES)}"
            yield Problem(source.place(path), dotted(path), message)


def _unknown_nodes(section: FaultsSection, source: Document, scenario: Scenario) -> Iterator[Problem]:
    names = [member.name for member in scenario.members]
    for key in ("client", "server"):
        node = getattr(section, key)
        if node is not None and node not in names:
            path: KeyPath = ("faults", key)
            yield Problem(source.place(path), dotted(path), unknown("node of this scenario", node, names))


def _changes(
    fault: SuiteFault,
    section: FaultsSection,
    scenario: Scenario,
    task: Task,
) -> dict[str, Any]:
    """The changes of the scenario for a fault: the fault itself, and when its run ends."""
    lasts = fault.fault is not None and fault.seconds is None
    watch = section.watch_lasting if lasts else section.watch
    after = LEAD + (fault.seconds or 0.0) + watch
    changes: dict[str, Any] = {"stop.after": format_duration(after)}
    if fault.fault is None:
        return changes
    rule = {"action": "crash", **fault.fault}
    hits_server = rule["node"] == "server"
    rule["node"] = task.server if hits_server else task.client
    if hits_server and rule["action"] == "crash" and section.program is not None:
        rule["program"] = section.program
    default = {"event": MAY_BEGIN} if scenario.programs else {"round": 2}
    rule |= section.starts or default
    if fault.seconds is not None:
        rule["for"] = format_duration(fault.seconds)
    changes["faults"] = [rule]
    return changes


def carry_out(sweeper: Sweeper, words: Sequence[str], parallel: int | None) -> None:
    """Make the runs of a suite that are not there yet, ``parallel`` at the same time. ``words``: the arguments of
    edgebed that all tasks have. A failed run does not end the suite; an interrupted one does."""
    to_do = sweeper.to_do()
    if parallel is not None:
        complete = execute_in_parallel(parallel, to_do, words, sweeper.tell, ignore)
        sweeper.interrupted = not complete
        sweeper.known.forget()
        return
    for number in to_do:
        sweeper.run(number)
        if sweeper.interrupted:
            return


@dataclass(frozen=True)
class SuiteRun:
    """A run of a suite that has ended: its task, its seed, its effects, and the verdict of its checks."""

    task: Task
    seed: int
    run: Path
    verdict: str
    effects: Effects


def runs_of(suite: Suite, sweeper: Sweeper) -> list[SuiteRun]:
    """The runs of a suite that ended by themselves, in its order."""
    runs = []
    for number, combination in enumerate(suite.sweep.combinations):
        result = sweeper.find(number)
        if result is None or result.run is None:
            continue
        task = suite.tasks[number]
        with History.open(result.run) as history:
            effects_of_run = effects(history, task.client, task.server)
            verdict = overall(checks(history))
        runs.append(SuiteRun(task, combination.seed, result.run, verdict, effects_of_run))
    return runs
