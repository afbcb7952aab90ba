"""One task of a sweep: its plan, its complete run, or a fresh one, and the result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orchestrator import text
from orchestrator.errors import OrchestratorError, RunError
from orchestrator.exports.destinations import Destination
from orchestrator.host.process.signals import INTERRUPTED, interrupted
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import COMPLETE
from orchestrator.report.judgement import Conclusion
from orchestrator.results.checks.registry import checks, overall
from orchestrator.results.history import History
from orchestrator.run.display.single_line import Glimpse
from orchestrator.run.launch import OpenView, launch, prepared_plan, resume
from orchestrator.run.links.earlier_measurements import EarlierMeasurements
from orchestrator.run.options import Origin, RunOptions
from orchestrator.run.trackers import tracked
from orchestrator.scenario.reading import placed
from orchestrator.sweep.known_runs import KnownRuns, state_in_words
from orchestrator.sweep.quantities import Figures, Result, figures
from orchestrator.sweep.reading import Combination, Sweep

PAUSE = 1.0  # s between two looks at a task that another process executes


class Sweeper:
    """Executes the tasks of a sweep in ``directory``, see `orchestrator.sweep.running`.

    A task that has a complete run with an equal plan in ``directory`` is not repeated, unless ``again``. ``workers`` as
    for `launch`; ``tell`` prints a line. ``track``: destinations that follow the runs. They also get the runs that are
    not repeated, if they lack them.
    """

    def __init__(
        self,
        sweep: Sweep,
        directory: Path,
        workers: int | None,
        tell: Callable[[str], None],
        track: Sequence[Destination] = (),
        *,
        again: bool = False,
    ) -> None:
        self.sweep = sweep
        self.directory = directory
        self.workers = workers
        self.tell = tell
        self._track = track
        self.again = again
        self.known = KnownRuns(directory)
        self._measured = EarlierMeasurements()
        self.interrupted = False

    def run(self, number: int) -> Result:
        """Execute a task, unless its run is complete. A real run that was killed or interrupted continues after its
        last checkpoint. A simulation starts again, so that its figures are the same to the last digit."""
        combination = self.sweep.combinations[number]
        try:
            plan = self._plan(combination)
            with self._locked(combination, number):
                known = None
                if not self.again:
                    known = self._known(combination, plan)
                return known or self._execute(combination, plan)
        except OrchestratorError as error:
            return self._failed(combination, error)

    def find(self, number: int) -> Result | None:
        """Find the result of a task; None if its run is missing or not complete."""
        combination = self.sweep.combinations[number]
        try:
            plan = self._plan(combination)
            known = self._known(combination, plan)
            if known is not None:
                return known
        except OrchestratorError as error:
            return self._failed(combination, error)
        run = self.known.best(plan.recorded)
        if run is not None and run.ended == "failed":
            return self._failed(combination, run.error or "failed", run.path)
        self._print(combination, f"missing: {state_in_words(run)}; `--task {number}` executes it")
        return None

    def to_do(self) -> list[int]:
        """The tasks without a complete run, or all of them if they are repeated."""
        numbers = []
        for number, combination in enumerate(self.sweep.combinations):
            if self.again or not self._is_complete(combination):
                numbers.append(number)
        return numbers

    def _is_complete(self, combination: Combination) -> bool:
        with contextlib.suppress(OrchestratorError):
            plan = self._plan(combination)
            run = self.known.best(plan.recorded)
            return run is not None and run.complete
        return False

    def _plan(self, combination: Combination) -> Plan:
        """The plan of a combination. OrchestratorError if there is none."""
        with placed(self.sweep.scenario, combination.overrides, self.sweep.text):
            return prepared_plan(combination.scenario, self.sweep.scenario)

    def _known(self, combination: Combination, plan: Plan) -> Result | None:
        """The result of the complete run of a plan; None if there is none."""
        run = self.known.best(plan.recorded)
        if run is None or not run.complete:
            return None
        with tracked(RunDirectory(run.path), self._track):
            pass
        return self._judged(combination, run.path, "run before")

    @contextlib.contextmanager
    def _locked(self, combination: Combination, number: int) -> Iterator[None]:
        """Wait until no other process executes a task, and lock it. A scheduler may restart a task on another host
        while the first host still executes it."""
        folder = self.directory / ".tasks" / f"task-{number}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make {folder}: {error.strerror}; choose --runs") from None
        holders = set[int]()

        def wait(holder: int) -> None:
            if holder not in holders:
                self._print(combination, f"waits for process {holder}, which executes it")
            holders.add(holder)
            time.sleep(PAUSE)

        with RunDirectory(folder).held(wait):
            yield

    def _failed(
        self,
        combination: Combination,
        error: OrchestratorError | str,
        run: Path | None = None,
    ) -> Result:
        """The result of a combination without a complete run."""
        sentence = str(error)
        if not self.interrupted:
            sentence = f"failed: {sentence}"
        if run is not None:
            sentence += f"; see {run}"
        self._print(combination, sentence)
        return Result(combination, run, None, str(error), {})

    def _execute(self, combination: Combination, plan: Plan) -> Result:
        executed = self._continued(combination, plan)
        if executed is None:
            executed = self._fresh(combination, plan)
        outcome, run = executed
        self.interrupted = outcome.exit_code == INTERRUPTED or interrupted()
        ended = outcome.summary["ended"]
        if ended in COMPLETE:
            return self._judged(combination, run, "done")
        error = outcome.summary["error"] or ended
        return self._failed(combination, error, run)

    def _continued(self, combination: Combination, plan: Plan) -> tuple[Conclusion, Path] | None:
        if self.again or plan.driver_kind.simulated:
            return None
        run = self.known.best(plan.recorded)
        if run is None or run.ended not in (None, "interrupted"):
            return None
        directory = RunDirectory(run.path)
        directory.refuse_held()
        try:
            outcome = resume(directory, self._view(combination))
        except RunError:  # it has no checkpoint
            return None
        with tracked(directory, self._track):
            return outcome, run.path

    def _fresh(self, combination: Combination, plan: Plan) -> tuple[Conclusion, Path]:
        sweep = self.sweep
        options = RunOptions(self.workers, track=self._track, measured=self._measured)
        meta = {"sweep": sweep.name, "case": combination.case}
        origin = Origin(
            combination.scenario,
            file=sweep.scenario,
            overrides=combination.overrides,
            text=sweep.text,
            meta=meta,
        )
        view = self._view(combination)
        outcome, directory = launch(plan, origin, self.directory, view, options)
        return outcome, directory.path

    def _view(self, combination: Combination) -> OpenView:
        return lambda _: Glimpse(self._name(combination))

    def _judged(self, combination: Combination, run: Path, how: str) -> Result:
        with History.open(run) as history:
            of_run = figures(history, self.sweep.target)
            verdict = overall(checks(history))
        sentence = f"{how}, {_in_words(of_run)}"
        if verdict != "pass":
            sentence += f", checks: {verdict}"
        self._print(combination, sentence)
        return Result(combination, run, verdict, None, of_run)

    def _print(self, combination: Combination, what: str) -> None:
        self.tell(f"{self._name(combination)}: {what}")

    def _name(self, combination: Combination) -> str:
        number = self.sweep.combinations.index(combination)
        return name_of(self.sweep, number)


def name_of(sweep: Sweep, number: int) -> str:
    """The name of a task for readers."""
    combination = sweep.combinations[number]
    return f"[{number + 1}/{len(sweep.combinations)}] {combination.case}, seed {combination.seed}"


def _in_words(figures: Figures) -> str:
    rounds = text.count(int(figures["rounds"]), "round")
    duration = text.duration(figures["seconds"])
    return f"{text.percent(_accuracy(figures))} after {rounds} in {duration}"


def _accuracy(figures: Figures) -> float | None:
    for name in ("final.global", "final.clients", "final.edges"):
        if name in figures:
            return figures[name]
    return None
