"""Which trainings become one step, and whole simulations with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from node.learning.data.datasets import Prepared, prepare
from node.learning.devices import Seeded
from node.learning.local_training import LocalTraining
from node.learning.models import ModelPool, build
from node.learning.together import Crew
from node.learning.training import Learner, TrainResult
from orchestrator.drivers.sim.batches import Batches
from orchestrator.drivers.sim.nodes import Nodes
from orchestrator.drivers.sim.workers import Workers
from tests.orchestrator.drivers.sim.harness import simulate
from tests.texts import containing

SCENARIO = """\
algorithm: {name: %s, rounds: 3, learning_rate: 0.05}
data: {dataset: digits, partition: {dirichlet: 0.5}, samples_per_client: 40}
model: mlp
hardware: {device: raspberry-pi-3}
%s
"""
LINK = "{latency: 1ms, jitter: 500us}"  # devices begin one after the other, and train longer than that
FLAT = f"topology: {{edges: 0, devices: 6}}\nlinks: {{device-cloud: {LINK}}}"
TREE = f"topology: {{edges: 2, devices_per_edge: 3}}\nlinks: {{device-edge: {LINK}}}"
PARAMS = LocalTraining(learning_rate=0.05)


class Done:
    """A step that is carried out each time that its result is asked for, as one that cannot cross to a worker."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._fn, self._args = fn, args
        self.asked = 0

    def result(self) -> Any:
        self.asked += 1
        return self._fn(*self._args)

    def cancel(self) -> bool:
        return True


class Noting:
    """A pool that notes how many clients each step has; 0 for what is no training."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.steps: list[Done] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Done:
        owner = getattr(fn, "__self__", None)
        self.sizes.append(len(owner.learners) if isinstance(owner, Crew) else 0)
        self.steps.append(Done(fn, args))
        return self.steps[-1]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare("digits", tmp_path_factory.getbasetemp() / "data")


@pytest.fixture
def clients(digits: Prepared) -> list[Learner]:
    pool = ModelPool(lambda: build("mlp", digits.shape, 10, 1))
    return [Learner(pool, digits, 7, f"device-{k}", np.arange(20 * k, 20 * k + 20)) for k in range(5)]


def test_trainings_gather_until_a_result_is_needed_or_they_are_enough(clients: list[Learner]) -> None:
    pool = Noting()
    batches = Batches(pool, 3)
    w = clients[0].initial()
    works = [batches.submit(each.train, w, PARAMS, 1) for each in clients]
    assert pool.sizes == [3]
    results: list[TrainResult] = [each.result() for each in works]
    assert pool.sizes == [3, 2]
    assert len({each.loss for each in results}) == 5
    expected = [each.train(w, PARAMS, 1).loss for each in clients]
    assert [each.loss for each in results] == pytest.approx(expected, abs=1e-6)
    assert [step.asked for step in pool.steps] == [1, 1]


def test_other_steps_and_other_parameters_do_not_join(clients: list[Learner]) -> None:
    pool = Noting()
    batches = Batches(pool, 3)
    w = clients[0].initial()
    first = batches.submit(clients[0].train, w, PARAMS, 1)
    second = batches.submit(clients[1].train, w, PARAMS.local(learning_rate=0.1), 1)
    assert batches.submit(clients[2].evaluate, w, "global").result().samples == 360
    assert batches.submit(len, "abc").result() == 3
    assert pool.sizes == [0, 0]
    second.result()
    first.result()
    assert pool.sizes == [0, 0, 1, 1]


def test_what_is_cancelled_before_it_starts_is_left_out(clients: list[Learner]) -> None:
    pool = Noting()
    batches = Batches(pool, 8)
    w = clients[0].initial()
    kept, gone = (batches.submit(each.train, w, PARAMS, 1) for each in clients[:2])
    gone.cancel()
    assert kept.result().loss == pytest.approx(clients[0].train(w, PARAMS, 1).loss, abs=1e-6)
    assert pool.sizes == [1]
    alone = batches.submit(clients[0].train, w, PARAMS, 1)
    alone.cancel()
    again = batches.submit(clients[1].train, w, PARAMS, 1)
    kept.cancel()  # it has begun: nothing changes
    again.result()
    assert pool.sizes == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "topology"), [("fedavg", FLAT), ("fedprox", FLAT), ("hierfavg", TREE)])
def test_a_simulation_in_batches_has_the_accuracies_of_one_by_one(
    algorithm: str, topology: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, at_once = SCENARIO % (algorithm, topology), "compute.clients_at_once=4"
    one_by_one = simulate(tmp_path, scenario)
    sizes: list[int] = []
    submit = Workers.submit

    def noting(workers: Workers, fn: Callable[..., Any], *args: Any) -> Any:
        owner = getattr(fn.fn if isinstance(fn, Seeded) else fn, "__self__", None)
        sizes.extend([len(owner.learners)] if isinstance(owner, Crew) else [])
        return submit(workers, fn, *args)

    monkeypatch.setattr(Workers, "submit", noting)
    runs = [simulate(tmp_path, scenario, "--workers", str(count), "--set", at_once) for count in (1, 2)]
    assert [run.code for run in (one_by_one, *runs)] == [0, 0, 0]
    losses = [[m.value for m in run.history().metrics("loss")] for run in (one_by_one, *runs)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert len(losses[0]) >= 18
    assert set(sizes) == {4, 2}  # of six clients
    assert runs[0].record() == runs[1].record()  # to the bit, whatever the number of workers
    assert runs[0].summary["seconds"] == one_by_one.summary["seconds"]


@pytest.mark.parametrize(
    ("checkpointing", "reason"),
    [("false", "of the model, its dropout draws"), ("true", "gradient_checkpointing is on")],
)
def test_a_model_that_does_not_allow_it_trains_one_by_one_and_a_note_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpointing: str, reason: str
) -> None:
    monkeypatch.setattr("orchestrator.drivers.sim.nodes.hindrance", lambda *_: "its dropout draws")
    setting = ("--set", f"algorithm.gradient_checkpointing={checkpointing}")
    found = simulate(tmp_path, SCENARIO % ("fedavg", FLAT), "--set", "compute.clients_at_once=4", *setting)
    assert found.code == 0
    notes = [event.data["text"] for event in found.history().events("note")]
    assert containing(f"not 4 at a time: {reason}") in notes


def test_no_more_train_at_once_than_fit_in_the_memory_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.drivers.sim.nodes.SLOT_BYTES", 9 * 59_240)  # the model has 59,240 bytes
    made: list[Nodes] = []
    make = Nodes.__init__

    def noting(nodes: Nodes, *args: Any) -> None:
        made.append(nodes)
        make(nodes, *args)

    monkeypatch.setattr(Nodes, "__init__", noting)
    found = simulate(tmp_path, SCENARIO % ("fedavg", FLAT), "--set", "compute.clients_at_once=4")
    assert found.code == 0
    assert made[0].notes == [containing("2 clients", "time, not 4: more")]
