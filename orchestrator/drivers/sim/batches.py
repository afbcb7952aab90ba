"""Local trainings of simulated clients that train as one batch (`node.learning.together`).

A training waits until its result is needed, at its virtual end, or until as many wait as may train at once. Then all
that fit together are one step for one worker. Which trainings these are follows from virtual times only. It depends
neither on the number of workers nor on the speed of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

from node.learning.devices import Seeded
from node.learning.together import Crew, Training, form
from node.learning.training import Learner, TrainResult
from orchestrator.drivers.sim.virtual_compute import Pool, Work


class BatchedTraining:
    """One client's training, of a batch that has started or of one that still gathers."""

    def __init__(
        self,
        batch: Batch,
        step: Callable[..., Any],
        learner: Learner,
        training: Training,
    ) -> None:
        self.step = step
        self.learner = learner
        self.training = training
        self._batch = batch

    def result(self) -> Any:
        return self._batch.result(self)

    def cancel(self) -> None:
        self._batch.leave(self)


class Batch:
    """Trainings that are one step of ``pool``. ``close`` is called before it starts: no training can join any more."""

    def __init__(self, pool: Pool, close: Callable[[], object]) -> None:
        self.members: list[BatchedTraining] = []
        self._pool = pool
        self._close = close
        self._work: Work | None = None
        self._results: list[TrainResult] | None = None

    def leave(self, member: BatchedTraining) -> None:
        """Forget a training if the batch has not started. Its result is not needed."""
        if self._work is None:
            self.members.remove(member)
            if not self.members:
                self._close()

    def begin(self) -> Work:
        if self._work is None:
            self._close()
            learners = [member.learner for member in self.members]
            trainings = [member.training for member in self.members]
            crew = Crew(learners)
            step: Callable[..., Any] = crew.train
            first = self.members[0].step
            if isinstance(first, Seeded):
                step = replace(first, fn=step)
            self._work = self._pool.submit(step, trainings)
        return self._work

    def result(self, member: BatchedTraining) -> Any:
        if self._results is None:
            work = self.begin()
            self._results = work.result()
        index = self.members.index(member)
        return self._results[index]


class Batches:
    """See `Pool`. Gathers the local trainings of up to ``most`` clients. Every other step goes to ``pool``
    immediately."""

    def __init__(self, pool: Pool, most: int) -> None:
        self._pool = pool
        self._most = most
        self._gathering: dict[Hashable, Batch] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Work:
        step = fn.fn if isinstance(fn, Seeded) else fn
        learner = getattr(step, "__self__", None)
        if not isinstance(learner, Learner):
            return self._pool.submit(fn, *args)
        if step.__name__ != Learner.train.__name__:
            return self._pool.submit(fn, *args)
        training = Training(*args)
        key = form(learner, training)
        if key is None:
            return self._pool.submit(fn, *args)
        batch = self._gathering.get(key)
        if batch is None:
            close = partial(self._gathering.pop, key)
            batch = Batch(self._pool, close)
            self._gathering[key] = batch
        member = BatchedTraining(batch, fn, learner, training)
        batch.members.append(member)
        if len(batch.members) == self._most:
            batch.begin()
        return member
