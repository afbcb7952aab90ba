"""A sweep on the hosts of a Docker Swarm: what each host is given, and the results in the order of the sweep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from orchestrator.drivers.swarm import entry
from orchestrator.errors import HostError, OrchestratorError
from orchestrator.host.directory import RunDirectory, make_empty
from orchestrator.host.process.signals import interruptible
from orchestrator.planning.plan import Plan
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.drivers import kind_of, listed
from orchestrator.sweep.figures import Result
from orchestrator.sweep.reading import Combination, Sweep
from orchestrator.sweep.spreading import Job, spread
from orchestrator.sweep.sweeper import Sweeper


def refusal(sweep: Sweep) -> str | None:
    """Why the runs of a sweep cannot be spread over hosts; None if they can."""
    drivers = {each.scenario.driver for each in sweep.combinations}
    others = sorted(each for each in drivers if not kind_of(each).simulated)
    if not others:
        accelerated = any(
            scenario.device_of(member.name, member.tier) != PROCESSOR
            for scenario in (each.scenario for each in sweep.combinations)
            for member in scenario.members
        )
        return "its runs train on accelerators, which only this host gives: leave --on out" if accelerated else None
    return f"only runs of the driver {listed(simulated=True)} are spread over hosts; this sweep has {', '.join(others)}"


def carry_out_on_swarm(
    sweep: Sweep,
    sweeper: Sweeper,
    directory: Path,
    places: int | None,
    tell: Callable[[str], None],
    keep: Callable[[list[Result]], None],
) -> tuple[list[Result], bool]:
    """Carry out the combinations of a sweep in ``directory``: ``places`` at once on each host, by default one for each
    of its cores.

    ``keep`` is called with the results so far after each run. Returns the results, and whether a signal ended the
    sweep. HostError if this host manages no swarm, or if no host of it can be used.
    """
    from orchestrator.drivers.swarm.cluster import Cluster

    runs = Runs(sweep, sweeper, keep)
    with interruptible() as interruption:
        try:
            if not runs.look():
                return runs.results, False
            if found := entry.missing():
                raise found[0]
            with closing(Cluster.connect()) as cluster:
                if not (hosts := [each for each in cluster.members() if each.usable]):
                    raise HostError("no host of the swarm is ready", "see `hosts`")

                async def work(own: RunDirectory) -> None:
                    task, loop = asyncio.current_task(), asyncio.get_running_loop()
                    assert task is not None
                    with interruption.handled_by(loop, task.cancel, runs.abandon):
                        await spread(cluster, hosts, runs, own, tell, places=places)

                with _directory(directory, sweep.name) as own:
                    asyncio.run(work(own))
        except asyncio.CancelledError:
            return runs.results, True
        finally:
            runs.abandon()
    return runs.results, interruption.asked


@contextmanager
def _directory(folder: Path, name: str) -> Iterator[RunDirectory]:
    """The directory of all that the sweep makes on hosts, for `ps` and `down`: they see that its orchestrator lives."""
    directory = make_empty(folder.resolve(), name)
    try:
        with directory.held():
            yield directory
    finally:
        directory.remove()


class Runs:
    """See `orchestrator.sweep.spreading.RunQueue`."""

    def __init__(self, sweep: Sweep, sweeper: Sweeper, keep: Callable[[list[Result]], None]) -> None:
        self._sweeper, self._keep = sweeper, keep
        self._combinations = sweep.combinations
        self._left = iter(range(len(self._combinations)))
        self._results: dict[int, Result] = {}
        self._under_way: dict[int, tuple[RunDirectory, ExitStack]] = {}
        self._looked: Job | None = None

    @property
    def results(self) -> list[Result]:
        """The results so far, in the order of the sweep."""
        return [self._results[number] for number in sorted(self._results)]

    def look(self) -> bool:
        """Whether there is a run to carry out."""
        self._looked = self._next()
        return self._looked is not None

    def next(self) -> Job | None:
        looked, self._looked = self._looked, None
        return looked or self._next()

    def begins(self, job: Job, host: str) -> None:
        self._sweeper.say(self._combinations[job.number], f"starts on {host}")

    def stopped(self, job: Job, error: str) -> None:
        self._sweeper.say(self._combinations[job.number], f"stopped, and starts again elsewhere: {error}")

    def done(self, job: Job, host: str) -> None:
        combination = self._combinations[job.number]
        try:
            result = self._sweeper.came_back(combination, job.directory, f"done on {host}")
        except OrchestratorError as error:
            result = self._sweeper.failed(combination, error)
        self._release(job.number)
        self._add(job.number, result)

    def failed(self, job: Job, error: str) -> None:
        self._release(job.number)
        job.directory.remove()
        self._add(job.number, self._sweeper.failed(self._combinations[job.number], error))

    def abandon(self) -> None:
        """Remove the directories of the runs that got no result."""
        for number, (directory, _) in list(self._under_way.items()):
            self._release(number)
            directory.remove()

    def _next(self) -> Job | None:
        for number in self._left:
            combination = self._combinations[number]
            try:
                plan = self._sweeper.plan(combination)
                result = self._sweeper.known(combination, plan)
                if result is None:
                    return self._begin(number, combination, plan)
            except OrchestratorError as error:
                result = self._sweeper.failed(combination, error)
            self._add(number, result)
        return None

    def _begin(self, number: int, combination: Combination, plan: Plan) -> Job:
        directory = self._sweeper.begin(combination, plan)
        holding = ExitStack()
        self._under_way[number] = directory, holding
        holding.enter_context(directory.held())
        return Job(number, directory, Path(plan.data_directory), plan.plugins)

    def _release(self, number: int) -> None:
        _, holding = self._under_way.pop(number)
        holding.close()

    def _add(self, number: int, result: Result) -> None:
        self._results[number] = result
        self._keep(self.results)
