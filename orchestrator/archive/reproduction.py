"""Repeats the runs of an archive, and compares the results with the expected ones."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Literal

from rich.console import Console

from node.assignment import PluginSource
from node.errors import PluginError
from node.plugins import find
from orchestrator import text
from orchestrator.archive.expected import (
    FILE,
    Expected,
    RunDifference,
    differences,
    expected_run,
    inexact,
    read_expected,
)
from orchestrator.archive.opening import unpack
from orchestrator.archive.writing import SCENARIO_FOLDER
from orchestrator.errors import ArchiveError, OrchestratorError, RunError
from orchestrator.host.places import check_folder
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.layout import write, write_entries, write_table
from orchestrator.planning.copies.trace_files import kept_files
from orchestrator.record.directory import RunDirectory, known_runs
from orchestrator.record.rows import COMPLETE
from orchestrator.results.history import History
from orchestrator.run.display.single_line import Glimpse
from orchestrator.run.launch import kept_origin, launch, prepared_plan
from orchestrator.run.options import RunOptions, check_workers
from orchestrator.scenario.population.client_files import with_client_files
from orchestrator.scenario.reading import overridden, placed
from orchestrator.verbs.python_interface import RUNS, carried_out

ReproductionState = Literal["confirmed", "not confirmed", "not possible here"]
EXIT_CODE_OF_STATE: Mapping[ReproductionState, int] = {
    "confirmed": 0,
    "not confirmed": 1,
    "not possible here": 4,
}
NOT_COMPARED = ("plan.notes",)  # sentences for people
MOST_VALUES = 10  # different values of a plan that are listed


@dataclass
class Reproduction:
    """The result of `reproduce`. ``differences``: between the repeated ``runs`` and the archive. ``impossible``: the
    runs that could not be repeated, and why. ``code``: the code of the archive that needs trust. ``inexact``: the runs
    that were compared within tolerances, not to the last bit, and why."""

    runs: list[Path] = field(default_factory=list)
    inexact: list[str] = field(default_factory=list)
    differences: list[RunDifference] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)

    @property
    def state(self) -> ReproductionState:
        """ "confirmed", "not confirmed" if anything differs, or "not possible here"."""
        if self.differences:
            return "not confirmed"
        if self.impossible:
            return "not possible here"
        return "confirmed"

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON."""
        runs = [str(run) for run in self.runs]
        return {"state": self.state, **asdict(self), "runs": runs}


def reproduce(
    file: str | os.PathLike[str],
    *,
    runs: str | os.PathLike[str] = RUNS,
    trust: bool = False,
    workers: int | None = None,
) -> Reproduction:
    """Repeat all runs of an archive that `archive` wrote, and compare their figures with those in the archive.

    The new runs of NAME.zip are in the folder NAME-reproduction below ``runs``. Simulations on the same kind of
    processor, with the same packages, must have the same figures to the last bit. The figures of other runs must be
    within the tolerances of the archive.
    ``trust``: also run plug-ins, programs and images of the archive. Otherwise runs that need them are not repeated.
    ``workers`` as for `up`.

    ArchiveError if the archive is damaged or unsafe to unpack. Nothing is written then.
    """

    def tell(line: str) -> None:
        pass

    def repeated() -> Reproduction:
        return repeat(Path(file), Path(runs), trust=trust, workers=workers, tell=tell)

    return carried_out(repeated)


def repeat(
    file: Path,
    runs: Path,
    *,
    trust: bool,
    workers: int | None,
    tell: Callable[[str], None],
) -> Reproduction:
    """`reproduce`, which prints a line about each run with ``tell``."""
    check_folder(runs, "choose another folder for runs")
    result = Reproduction()
    target = runs / f"{file.stem}-reproduction"
    with tempfile.TemporaryDirectory(prefix="edgebed-") as temporary:
        folder = Path(temporary)
        for name in unpack(file, folder):
            difference = RunDifference("", name, "the archived file", "a changed file")
            result.differences.append(difference)
        expected = read_expected(folder / FILE)
        archived = known_runs(folder / "runs")
        ids = {run.run for run in archived}
        if not archived or ids != expected.runs.keys():
            raise ArchiveError(f"{FILE} does not list the runs that the archive contains")
        programs = folder / SCENARIO_FOLDER
        base = programs if programs.is_dir() else Path.cwd()
        for number, run in enumerate(archived, 1):
            of_run = expected.runs[run.run]
            name = text.visible(f"[{number}/{len(archived)}] {of_run.case}, seed {of_run.seed}")
            try:
                scenario = scenario_of(run, base)
                code = code_in(scenario)
                _extend(result.code, code)
                if code and not trust:
                    result.impossible.append(f"{name}: it runs code of the archive, which needs --trust")
                    continue
                plugins = _plugins(scenario)
                repeated, differing = _run_again(run, plugins, base, target, name, workers)
                result.runs.append(repeated.path)
                differing += _compare(run, repeated, expected, name, result)
            except (OrchestratorError, PluginError, OSError) as error:
                result.impossible.append(f"{name}: {error}")
                tell(f"{name}: not possible here: {error}")
                continue
            result.differences += differing
            verdict = "differs" if differing else "confirmed"
            tell(f"{name}: {verdict}")
    return result


def _extend(lines: list[str], others: Sequence[str]) -> None:
    """Add the other lines that are not yet among the lines."""
    lines += [line for line in others if line not in lines]


def scenario_of(run: RunDirectory, base: Path) -> Mapping[str, Any]:
    """The scenario of an archived run as it is written, with its overrides and the settings of its clients' files,
    which may name images. Paths start at ``base``. Imports and runs nothing."""
    with History.open(run.path) as history:
        overrides = list(map(str, history.meta["overrides"]))
        files = kept_files(history.plan, run.path)
        scenario = run.scenario.read_text(encoding="utf-8", errors="replace")
        written = overridden(scenario, run.run, overrides)
        return with_client_files(written, base, files).data


def code_in(scenario: Mapping[str, Any]) -> list[str]:
    """The code that a run of this scenario would execute: plug-ins, programs, images of containers."""
    code = [f"plug-in {plugin}" for plugin in _plugins(scenario)]
    programs = scenario.get("programs") or {}
    if isinstance(programs, Mapping):
        for name, program in programs.items():
            code.append(f"program {name}: {_command(program)}")
    else:
        code.append(f"program : {_command(programs)}")
    code += _images(scenario)
    return code


def _plugins(scenario: Mapping[str, Any]) -> list[str]:
    plugins = scenario.get("plugins") or []
    if not isinstance(plugins, list):
        plugins = [plugins]
    return [str(plugin) for plugin in plugins]


def _command(program: Any) -> Any:
    if isinstance(program, Mapping):
        return program.get("command")
    return program


def _images(data: Any) -> Iterator[str]:
    """Every image that a scenario names, under any key."""
    if not isinstance(data, Mapping):
        return
    for key, value in data.items():
        if key == "image":
            yield f"image {value}"
        yield from _images(value)


def _run_again(
    archived: RunDirectory,
    plugins: Sequence[str],
    base: Path,
    target: Path,
    name: str,
    workers: int | None,
) -> tuple[RunDirectory, list[RunDifference]]:
    """Repeat an archived run below ``target``. Returns the new run, and how its plan differs.

    Paths of its scenario start at ``base``. OrchestratorError or PluginError if the run cannot be repeated here.
    """
    with History.open(archived.path) as history:
        before = dict(_values(history.plan, "plan"))
        data = str(history.plan["data"]["sha256"])
        meta: dict[str, Any] = {}
        for key in ("sweep", "case"):
            if key in history.meta:
                meta[key] = history.meta[key]
    sources = [_plugin(plugin, archived) for plugin in plugins]
    origin = kept_origin(archived, base, sources)
    check_workers(workers, origin.scenario.driver_kind)
    with placed(origin.file, origin.overrides, origin.text):
        plan = prepared_plan(origin.scenario, origin.file)
    if data != plan.data.sha256:
        raise RunError(
            f"this host has another data set {plan.data.dataset}: its hash is {plan.data.sha256}, not {data}"
        )
    after = dict(_values(plan.recorded, "plan"))
    view = Glimpse(name)
    origin = replace(origin, meta=meta)
    options = RunOptions(workers)
    outcome, repeated = launch(plan, origin, target, lambda _: view, options)
    if outcome.exit_code == INTERRUPTED:
        raise KeyboardInterrupt
    return repeated, _plan_differences(name, before, after)


def _plan_differences(
    name: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> list[RunDifference]:
    """The first values by which the plans of a run and of its repetition differ."""
    different = []
    for key in {**before, **after}:
        if key.startswith(NOT_COMPARED):
            continue
        if before.get(key) != after.get(key):
            different.append(key)
    listed = []
    for key in different[:MOST_VALUES]:
        archived = str(before.get(key, "–"))
        repeated = str(after.get(key, "–"))
        listed.append(RunDifference(name, key, archived, repeated))
    return listed


def _compare(
    archived: RunDirectory,
    repeated: RunDirectory,
    expected: Expected,
    name: str,
    result: Reproduction,
) -> Iterator[RunDifference]:
    """The differences between the figures of a repeated run and the expected ones."""
    with (
        History.open(archived.path) as original,
        History.open(repeated.path) as history,
    ):
        outcome = history.outcome
        if outcome is None or outcome.ended not in COMPLETE:
            reason = outcome and (outcome.error or outcome.ended)
            yield RunDifference(name, "end", "a complete run", reason or "killed")
            return
        reasons = inexact(original, history)
        if reasons:
            result.inexact.append(f"{name}: {'; '.join(reasons)}")
        of_repetition = expected_run(history, expected.target, {})
        of_archive = expected.runs[archived.run]
        yield from differences(name, of_archive, of_repetition, exact=not reasons)


def _values(
    data: Any,
    path: str,
) -> Iterator[tuple[str, Any]]:
    """The values in nested mappings and lists, by their paths."""
    is_nested = isinstance(data, Mapping | list)
    if not is_nested or not data:
        yield path, data
        return
    entries: Iterable[tuple[Any, Any]]
    if isinstance(data, Mapping):
        entries = data.items()
    else:
        entries = enumerate(data)
    for key, value in entries:
        yield from _values(value, f"{path}.{key}")


def _plugin(name: str, run: RunDirectory) -> PluginSource:
    """The source of a plug-in: the copy of a file in the archive, or the installed module."""
    if name.endswith(".py"):
        source = find(PurePath(name).name, run.plugins)
        return replace(source, name=name)
    return find(name, Path())


def print_reproduction(result: Reproduction, console: Console) -> None:
    """Print the differences, what was not possible and why, the code that needs trust, and the state."""
    if result.differences:
        rows = []
        for difference in result.differences:
            cells = (
                difference.run,
                difference.figure,
                difference.expected,
                difference.actual,
            )
            visible = map(text.visible, cells)
            rows.append(tuple(visible))
        write_table(console, ("run", "figure", "expected", "actual"), rows)
        write(console, "")
    entries = []
    for reason in result.impossible:
        entries.append(("not possible", text.visible(reason)))
    for line in result.code:
        entries.append(("code", text.visible(line)))
    for reason in result.inexact:
        entries.append(("tolerances", text.visible(reason)))
    if result.runs:
        within = len(result.inexact)
        exact = len(result.runs) - within
        compared = f"{exact} to the last bit, {within} within tolerances"
        entries.append(("compared", f"{compared}, in {result.runs[0].parent}"))
    entries.append(("result", result.state))
    write_entries(console, entries)
