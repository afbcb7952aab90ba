from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from node.learning.data.datasets import Prepared, prepare
from node.learning.errors import ModelError
from node.learning.local_training import LocalTraining
from node.learning.models import ModelPool, build
from node.learning.training import Learner
from node.runtime.clock import run_virtual
from orchestrator.drivers.sim import workers as workers_module
from orchestrator.drivers.sim.workers import SLOTS, Workers
from orchestrator.errors import RunError


@pytest.fixture(scope="module")
def learners(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Learner]:
    data: Prepared = prepare("digits", tmp_path_factory.mktemp("data"))
    model_pool = ModelPool(lambda: build("mlp", data.shape, data.classes, seed=1))
    return {
        f"device-{k}": Learner(model_pool, data, 7, f"device-{k}", np.arange(40 * k, 40 * k + 40)) for k in range(4)
    }


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As nodes have it; sums over two threads differ in the last digit."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


def run(learners: dict[str, Learner], work: Callable[[Workers], Awaitable[None]], count: int = 2) -> list[int]:
    """Process ids of the workers, which are gone."""

    async def main() -> list[int]:
        workers = Workers(count, learners.__getitem__)
        try:
            await work(workers)
        finally:
            workers.close()
        return [each.pid for each in workers._workers]

    return run_virtual(main())


def test_steps_give_what_they_give_here(learners: dict[str, Learner]) -> None:
    w = learners["device-0"].initial()
    params = LocalTraining(learning_rate=0.1)

    async def work(workers: Workers) -> None:
        steps = [workers.submit(learner.train, w, params, 3) for learner in learners.values() for _ in range(2 * SLOTS)]
        results = [step.result() for step in steps]
        expected = [learner.train(w, params, 3) for learner in learners.values()]
        for place, result in enumerate(results):
            there = expected[place // (2 * SLOTS)]
            assert (result.samples, result.steps, result.loss) == (40, there.steps, there.loss)
            for name, values in there.weights.items():
                np.testing.assert_array_equal(result.weights[name], values)

    for pid in run(learners, work):
        assert not Path(f"/proc/{pid}").exists()


def test_what_cannot_cross_is_done_here(learners: dict[str, Learner]) -> None:
    async def work(workers: Workers) -> None:
        assert workers.submit(os.getpid).result() == os.getpid()
        assert workers.submit(lambda: "nameless").result() == "nameless"

    run(learners, work)


def test_a_step_that_fails_does_so_where_it_is_requested(learners: dict[str, Learner]) -> None:
    async def work(workers: Workers) -> None:
        step = workers.submit(learners["device-1"].train, {"foreign": np.zeros(1)}, LocalTraining(), 1)
        with pytest.raises(ModelError, match=r"device-1: weights are not.*model"):
            step.result()

    run(learners, work)


def test_a_step_that_fails_in_workers_only_is_repeated_with_a_warning(
    learners: dict[str, Learner], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.getpid()

    def evaluate(learner: Learner) -> int:
        if os.getpid() != here:
            raise RuntimeError("no GPU in a forked process")
        return 5

    monkeypatch.setattr(Learner, "evaluate", evaluate)

    async def work(workers: Workers) -> None:
        assert workers.submit(learners["device-0"].evaluate).result() == 5

    run(learners, work)
    assert "main process, which is slow: RuntimeError" in caplog.text


def test_results_that_are_not_requested_block_nothing(learners: dict[str, Learner]) -> None:
    w, params = learners["device-0"].initial(), LocalTraining()

    async def work(workers: Workers) -> None:
        steps = [workers.submit(learners["device-0"].train, w, params, 1) for _ in range(4 * SLOTS)]
        for step in steps[:-1]:
            step.cancel()
        assert steps[-1].result().steps == 2

    run(learners, work, count=1)


def test_the_loop_takes_results_in_as_it_continues(learners: dict[str, Learner]) -> None:
    async def work(workers: Workers) -> None:
        step = workers.submit(learners["device-0"].evaluate, learners["device-0"].initial(), "global", 50)
        while not step.done:  # noqa: ASYNC110 - virtual time, in which the loop looks around
            await asyncio.sleep(1)
        assert step.result().samples == 50

    run(learners, work)


def test_a_worker_that_is_killed_is_an_error(learners: dict[str, Learner]) -> None:
    async def work(workers: Workers) -> None:
        os.kill(workers._workers[0].pid, signal.SIGSTOP)  # what it has been given is not done
        step = workers.submit(learners["device-0"].train, learners["device-0"].initial(), LocalTraining(), 1)
        os.kill(workers._workers[0].pid, signal.SIGKILL)
        with pytest.raises(RunError, match="worker process of the simulation"):
            step.result()

    run(learners, work, count=1)


def test_after_an_idle_worker_was_killed_no_step_waits(learners: dict[str, Learner]) -> None:
    learner = learners["device-0"]

    async def work(workers: Workers) -> None:
        os.kill(workers._workers[0].pid, signal.SIGKILL)
        while not workers.submit(learner.evaluate, learner.initial(), "global", 50).orphaned:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        with pytest.raises(RunError, match="worker process of the simulation"):
            workers.submit(learner.evaluate, learner.initial(), "global", 50).result()

    run(learners, work)


def test_a_signal_ends_the_wait_for_a_worker(learners: dict[str, Learner], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "interrupted", lambda: True)
    learner = learners["device-0"]

    async def work(workers: Workers) -> None:
        os.kill(workers._workers[0].pid, signal.SIGSTOP)
        step = workers.submit(learner.evaluate, learner.initial(), "global", 50)
        with pytest.raises(InterruptedError):
            step.result()
        os.kill(workers._workers[0].pid, signal.SIGCONT)
        while not step.done:
            with contextlib.suppress(InterruptedError):
                assert step.result().samples == 50

    run(learners, work, count=1)
