"""Simulated nodes: each runs a role as `node.process.main` does, but without a process."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from node.assignment import Assignment, PluginSource
from node.learning.counted_operations import cost_of
from node.learning.data.datasets import Prepared, open_prepared
from node.learning.devices import inputs_of, make_deterministic
from node.learning.models import ModelPool, model_pool_of
from node.learning.step_seconds import StepCost
from node.learning.together import hindrance
from node.learning.training import Learner
from node.messaging.delivery.association import Traffic
from node.messaging.memory import MemoryTransport
from node.process.main import EXIT_DONE, EXIT_FAILED, described, load_role
from node.process.orders import UnderOrders
from node.role import Role
from node.runtime.checkpoint import Checkpoint, checkpoint_path, load
from orchestrator.drivers.sim.batches import Batches
from orchestrator.drivers.sim.crowd import Crowd
from orchestrator.drivers.sim.part import CloudReporter, summed
from orchestrator.drivers.sim.virtual_compute import ModelledCompute, Pool
from orchestrator.drivers.sim.virtual_control import MemoryControl, MemoryReporter
from orchestrator.drivers.sim.virtual_fabric import ModelFabric
from orchestrator.drivers.sim.workers import SLOT_BYTES, Workers
from orchestrator.planning.plan import Plan
from orchestrator.population.population import Population, client_number
from orchestrator.population.shards import ClientShards
from orchestrator.scenario.sections.topology import POPULATION

Rows = list[dict[str, Any]]
TrafficRows = Callable[[], Rows]


class Nodes:
    """Makes the nodes of a plan. They share the data, the workers and a pool of models for each kind. CheckpointError
    if that of the population is damaged."""

    def __init__(
        self,
        plan: Plan,
        assignments: Mapping[str, Assignment],
        fabric: ModelFabric,
        control: MemoryControl,
        workers: int,
    ) -> None:
        self._plan = plan
        self._assignments = assignments
        self._network = fabric.network
        self._control = control
        self._data = open_prepared(Path(plan.data_directory))
        algorithm = plan.scheme
        self._params = algorithm.params(**plan.params)
        self._model_pools: dict[str, ModelPool] = {}
        self._costs: dict[str, StepCost] = {}
        self._learners: dict[str, Learner] = {}
        for assignment in assignments.values():
            key = assignment.model_kind
            if key not in self._model_pools:
                model_pool = model_pool_of(assignment, self._data, plan.catalogue.models)
                self._model_pools[key] = model_pool
                inputs = inputs_of(self._data.zeros(1))
                batch_size = self._params.batch_size
                cost = cost_of(model_pool.sample, inputs, batch_size)
                self._costs[key] = cost
        self.accelerators = plan.accelerators
        if self.accelerators:
            make_deterministic()
        self.notes: list[str] = []
        most = self._at_once(plan)
        self._shards: ClientShards | None = None
        kept = None
        if plan.population is not None:
            self._shards = _client_shards(plan.population, self._data)
            kept = _restored(assignments[POPULATION])
        self.workers = Workers(workers, self.learner, plan.plugins)
        self._pool: Pool = self.workers
        if most > 1:
            self._pool = Batches(self.workers, most)
        self._crowd: Crowd | None = None
        if plan.population is not None:
            self._crowd = self._make_crowd(plan.population, fabric, kept)

    def _obstacle(self) -> str | None:
        """Why clients cannot train as one batch; None if they can."""
        if self._params.gradient_checkpointing:
            return "gradient_checkpointing is on"
        for pool in self._model_pools.values():
            reason = hindrance(pool.sample, self._data)
            if reason:
                return f"of the model, {reason}"
        return None

    def _at_once(self, plan: Plan) -> int:
        """How many clients train as one batch: the configured number, fewer if their models do not fit in the memory
        shared with workers, and one if a model does not allow it. A note gives the reason."""
        requested = plan.clients_at_once
        if requested == 1:
            return 1
        obstacle = self._obstacle()
        if obstacle is not None:
            self.notes.append(f"clients train one by one, not {requested} at a time: {obstacle}")
            return 1
        # Of each client its weights cross, and perhaps those near which it is to stay.
        copies = 8 if plan.precision else 4
        bytes_of_client = copies * max(1, plan.model_bytes)
        fitting = max(1, SLOT_BYTES // bytes_of_client)
        if fitting < requested:
            why = "more models are too large for a worker"
            self.notes.append(f"{fitting} clients train at a time, not {requested}: {why}")
        return min(requested, fitting)

    def learner(self, name: str) -> Learner:
        """The learner of a node, the same for all its incarnations. A client of a population gets another each time."""
        if self._shards is not None and name not in self._assignments:
            return self._learner_of_client(name)
        if name not in self._learners:
            shards = self._plan.shards
            assignment = self._assignments[name]
            learner = Learner(
                self._model_pools[assignment.model_kind],
                self._data,
                assignment.seed,
                name,
                shards.train.get(name),
                shards.own_test.get(name),
                assignment.data.global_test,
                shards.personal.get(name),
                assignment.data.class_metrics,
                self._plan.catalogue.models,
            )
            self._learners[name] = learner
        return self._learners[name]

    def after_move(self, device: str, edge: str) -> None:
        """Give later incarnations of all nodes their assignments after a move."""
        moved = {}
        for name, assignment in self._assignments.items():
            moved[name] = assignment.after_move(device, edge)
        self._assignments = moved

    def make(self, name: str) -> SimulatedNode:
        """Make an incarnation of a node that has not started."""
        assignment = self._assignments[name].in_place
        cost = self._costs[assignment.model_kind]
        speed = assignment.hardware.speed
        compute = ModelledCompute(self._pool, cost, speed)
        if self._crowd is None:
            return self._make_node(assignment, compute)
        if name == POPULATION:
            return self._stand_in(assignment, compute, self._crowd)
        return self._make_cloud(assignment, compute, self._crowd)

    def _make_node(self, assignment: Assignment, compute: ModelledCompute) -> SimulatedNode:
        node = assignment.node
        reporter = self._control.open(node)
        peers = [peer.name for peer in assignment.peers]
        timeouts = assignment.timeouts
        transport = self._network.transport(node, peers, timeouts=timeouts)
        role = self._role(assignment, transport, compute, reporter)

        def traffic() -> Rows:
            return _rows(transport.traffic())

        return SimulatedNode(role, compute, reporter, traffic, self._plan.plugins)

    def _make_cloud(self, assignment: Assignment, compute: ModelledCompute, crowd: Crowd) -> SimulatedNode:
        """Make the cloud of a population: its peers are the clients that take part."""
        reporter = self._control.open(assignment.node, CloudReporter)
        alone = replace(assignment, peers=())
        transport = crowd.transport(alone)
        role = self._role(alone, transport, compute, reporter)
        crowd.serve(role, transport)

        def traffic() -> Rows:
            total = summed(transport.traffic(), POPULATION)
            return _rows(total)

        return SimulatedNode(role, compute, reporter, traffic, self._plan.plugins)

    def _stand_in(self, assignment: Assignment, compute: ModelledCompute, crowd: Crowd) -> SimulatedNode:
        """Make the node that stands for a population."""
        reporter = self._control.open(assignment.node)
        crowd.reporter = reporter

        def traffic() -> Rows:
            return _rows(crowd.traffic())

        return SimulatedNode(crowd, compute, reporter, traffic, self._plan.plugins)

    def _role(
        self,
        assignment: Assignment,
        transport: MemoryTransport,
        compute: ModelledCompute,
        reporter: MemoryReporter,
    ) -> Role:
        role_of = load_role(assignment, self._plan.catalogue.algorithms)
        return role_of(
            assignment,
            transport,
            compute,
            reporter,
            params=self._params,
            learner=self.learner(assignment.node),
            restored=_restored(assignment),
        )

    def _make_crowd(self, population: Population, fabric: ModelFabric, kept: Checkpoint | None) -> Crowd:
        template = self._assignments[POPULATION]
        (cloud,) = template.related("parent")
        return Crowd(
            population,
            template,
            cloud,
            fabric,
            self.learner,
            self._pool,
            self._costs[template.model_kind],
            self._params,
            self._plan.catalogue.algorithms,
            kept,
        )

    def _learner_of_client(self, name: str) -> Learner:
        assert self._shards is not None
        assert self._plan.population is not None
        client = client_number(name)
        template = self._assignments[POPULATION]
        samples = int(self._plan.population.sample_counts[client])
        return Learner(
            self._model_pools[template.model_kind],
            self._data,
            template.seed,
            name,
            self._shards.of(client, samples),
            None,
            False,
            known=self._plan.catalogue.models,
        )


class SimulatedNode:
    """One incarnation of a node, from its registration to its end."""

    def __init__(
        self,
        role: Role | Crowd,
        compute: ModelledCompute,
        reporter: MemoryReporter,
        traffic: TrafficRows,
        plugins: Sequence[PluginSource],
    ) -> None:
        self.compute = compute
        self._plugins = plugins
        self._role = role
        self._reporter = reporter
        self._traffic = traffic
        self._orders = UnderOrders(role, compute)

    async def live(self, log: Path) -> int:
        """Register, wait for "start", perform the role and return the exit code. Errors are written to ``log``."""
        obeying = asyncio.create_task(self._obey())
        try:
            self._reporter.say("register")
            await self._orders.perform()
            if not self._role.leaving:
                self._reporter.say("done", reason=self._role.ended_by)
            return EXIT_DONE
        except Exception as error:
            note_failure(log, error)
            reason = described(error, self._plugins)
            self._reporter.say("failed", error=reason, lasting=True)
            return EXIT_FAILED
        finally:
            traffic = self._traffic()
            self._reporter.say("traffic", peers=traffic)
            obeying.cancel()

    async def _obey(self) -> None:
        while True:
            order = await self._reporter.inbox.get()
            self._orders.obey(order)


def note_failure(log: Path, error: Exception) -> None:
    """Append the traceback of an error to a node's log."""
    lines = traceback.format_exception(error)
    # A full disk must not end the run.
    with contextlib.suppress(OSError), log.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(lines)


def _rows(traffic: Sequence[Traffic]) -> Rows:
    return [vars(row) for row in traffic]


def _restored(assignment: Assignment) -> Checkpoint | None:
    """A node's checkpoint. CheckpointError if it is damaged."""
    path = checkpoint_path(assignment.checkpoint_directory, assignment.node)
    return load(path, assignment.stop.rounds)


def _client_shards(population: Population, data: Prepared) -> ClientShards:
    """The data of all clients, ready before processes are forked that will share it."""
    labels = np.array(data.train_labels)
    shards = ClientShards(population.seed, labels, population.alpha)
    samples_of_first = int(population.sample_counts[0])
    shards.of(0, samples_of_first)
    return shards
