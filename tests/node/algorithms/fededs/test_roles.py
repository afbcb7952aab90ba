from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from node.algorithms.fededs import roles
from node.algorithms.fededs.encrypted import Distillation
from node.algorithms.fededs.parameters import FedEDS
from node.algorithms.fededs.roles import algorithm_4, local_epochs, scaling_factors
from node.algorithms.parameters import FedAvg, FedNova, FedProx
from node.assignment import Assignment, Gathering
from node.catalogue.partitions import Dirichlet
from node.errors import NodeError
from node.learning.data.datasets import Prepared
from node.learning.local_training import LocalTraining
from node.messaging.delivery.pair import Delay
from node.messaging.wire import Message
from node.parameters import read_parameters
from node.testing import Federation, same, star
from tests.orchestrator.drivers.sim.harness import simulate

OPTIONS: dict[str, Any] = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.0, "batch_size": 16}
SMALL = FedEDS(**OPTIONS, encryptor_width=2, encryptor_epochs=1, model_epochs=1)
OFF: dict[str, Any] = {"annealing": False, "exchange": False}
SKEWED = Dirichlet(alpha=0.3, variant="client", samples_per_client=60)
SCENARIO = """\
algorithm: {name: fededs, base: fednova, rounds: 3, encryptor_width: 2, encryptor_epochs: 2, batch_size: 16}
data: {dataset: digits, partition: {dirichlet: {alpha: 0.3, variant: client}}, samples_per_client: 40}
topology: {edges: 3, devices_per_edge: 0}
links: {edge-edge: {latency: 1ms, loss: 1%, rate: 100mbit}, edge-cloud: {latency: 50ms, jitter: 5ms, rate: 4mbit}}
driver: sim
"""
FEW = Gathering(quorum=0.5, deadline=30)


@dataclass
class Mesh(Federation):
    """Edges of which ``late`` ones begin after so many seconds."""

    late: Mapping[str, float] = field(default_factory=dict)

    def _assignment(self, node: str) -> Assignment:
        assignment = super()._assignment(node)
        peers = tuple(replace(peer, late=peer.name in self.late) for peer in assignment.peers)
        return replace(assignment, peers=peers)

    async def _run_node(self, node: str) -> None:
        await asyncio.sleep(self.late.get(node, 0))
        await super()._run_node(node)


@pytest.fixture
def slow_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that take half a second, and ten pictures in each: a set of 60 takes six seconds."""
    monkeypatch.setattr("node.algorithms.fededs.encrypted.PART_BYTES", 640)
    monkeypatch.setattr("node.testing.Delay", lambda seconds: Delay(0.5))


def mesh(digits: Prepared, folder: Path, params: LocalTraining = SMALL, edges: int = 3, **options: Any) -> Mesh:
    settings: dict[str, Any] = {"rounds": 2, "partition": SKEWED} | options
    return Mesh(digits, star(edges, "edge"), "fededs", params, folder, **settings)


def exchanged(run: Federation, edge: str) -> dict[str, Any]:
    (fields,) = [fields for name, _, fields in run.journals[edge].events if name == "exchanged"]
    return fields


def received(run: Federation, edge: str, peer: str, kind: str = "encrypted") -> int:
    """Messages of a kind that an edge had of a peer, since it began."""
    transport: Any = run.roles[edge]._transport
    return sum(
        row.messages for row in transport.traffic() if (row.peer, row.kind, row.direction) == (peer, kind, "received")
    )


# The equations


def test_equation_5_worked_example() -> None:
    """As in the paper 5, 3, 1; from 5 to 1 between rounds 1 and 4: 5 − ⌊4/3⌋ = 4, 5 − ⌊8/3⌋ = 3, 1."""
    assert [local_epochs(t, FedEDS()) for t in range(1, 6)] == [5, 3, 1, 1, 1]
    assert [local_epochs(t, FedEDS(turn_end=4)) for t in range(1, 6)] == [5, 4, 3, 1, 1]
    late = FedEDS(epochs_max=10, epochs=2, turn_start=2, turn_end=6)
    assert [local_epochs(t, late) for t in range(1, 8)] == [10, 10, 8, 6, 4, 2, 2]
    assert [local_epochs(t, FedEDS(epochs=2, annealing=False)) for t in (1, 2, 9)] == [2, 2, 2]


def test_equations_9_and_10_worked_example() -> None:
    """m = 3: λ_dis is 1/2, 1/(1 + e³) = 0.0474, then 1/(1 + e⁶) = 0.0025 < ε, hence 0: two rounds of distillation."""
    assert scaling_factors(1, FedEDS()) == (0.5, 0.5)
    assert scaling_factors(2, FedEDS()) == pytest.approx((0.9526, 0.0474), abs=1e-4)
    assert [scaling_factors(t, FedEDS()) for t in (3, 4, 400)] == [(1, 0)] * 3
    slower = [scaling_factors(t, FedEDS(m=1))[1] for t in range(1, 7)]
    assert slower == pytest.approx([1 / (1 + math.exp(t)) for t in range(5)] + [0])  # 1/(1 + e⁵) = 0.0067 < ε
    assert scaling_factors(50, FedEDS(m=0)) == (0.5, 0.5)


def test_the_edges_of_epsilon_and_m() -> None:
    """1 − 1 / (1 + e^{−3 (t − 1)}) is 2.3e-16 in round 13, and 0 in round 14. e^{-10⁶} is 0, without an error."""

    def used(**params: float) -> list[int]:
        return [t for t in range(1, 20) if scaling_factors(t, FedEDS(**params))[1] > 0]  # type: ignore[arg-type]

    assert used(epsilon=0.0) == list(range(1, 14))
    assert used(epsilon=0.5) == [1]
    assert used(epsilon=0.5, m=0.0) == list(range(1, 20))
    assert used(epsilon=0.0, m=1e6) == [1]
    for value in (math.inf, math.nan, -1.0):
        with pytest.raises(ValueError, match=r"mu: .* at least 0"):
            FedEDS(mu=value)


def test_algorithm_4_worked_example() -> None:
    """θ = 1, θ_1 = 0, θ_2 = 1/2, ‖a‖ = 2, 4, η = 1/2: Δ = −1, −1/4; θ' = 1 + 3 · 5/8 = 2.875, away from both."""
    w, one, two = (
        {"w": np.array([value], np.float32), "n": np.array(count)} for value, count in ((1, 0), (0, 3), (0.5, 2))
    )
    result = algorithm_4(w, [one, two], [2, 4], 0.5)
    assert (result["w"].tolist(), result["n"].tolist()) == ([2.875], 3)
    assert result["w"].dtype == np.float32


# Parameters


def test_profiles_give_defaults_and_explicit_parameters_win() -> None:
    paper, literal, fast = (read_parameters(FedEDS, {"profile": name}) for name in ("paper", "literal", "fast"))
    assert read_parameters(FedEDS, {}) == paper
    assert (paper.epochs_max, paper.epochs, paper.m, paper.encryptor_epochs, paper.encryptor_width) == (5, 1, 3, 20, 64)
    assert (paper.learning_rate, paper.momentum, paper.weight_decay, paper.mu) == (0.01, 0.9, 1e-4, 0.1)
    assert (literal.normalisation, literal.distillation, literal.encryptor_optimizer) == ("algorithm-4", "sum", "sgd")
    assert fast.encryptor_width < paper.encryptor_width
    assert read_parameters(FedEDS, {"profile": "fast", "encryptor_width": 16}).encryptor_width == 16
    assert read_parameters(FedEDS, {"profile": "literal", "distillation": "mean"}).distillation == "mean"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"exchange": 1}, "exchange: 1 is not true"),
        ({"base": "scaffold"}, "base: 'scaffold' is not fedavg or fedprox or fednova"),
        ({"epochs": 6}, "epochs_max: 5 is below epochs, 6"),
        ({"turn_start": 3}, r"turn_end: round 3.*turn_start, round 3"),
        ({"steps": 5}, "steps: 5 counts steps"),
        ({"restore": False, "exchange": False}, "restore: false goes with exchange"),
        ({"optimizer": "adam", "momentum": 0.0}, "optimizer: adam is not supported"),
    ],
)
def test_wrong_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        read_parameters(FedEDS, values)


# The protocol


@pytest.mark.parametrize(
    ("base", "params"),
    [("fedavg", FedAvg(**OPTIONS)), ("fedprox", FedProx(mu=0.1, **OPTIONS)), ("fednova", FedNova(**OPTIONS))],
)
def test_without_annealing_and_exchange_it_is_its_base(
    digits: Prepared, tmp_path: Path, base: str, params: LocalTraining
) -> None:
    off = mesh(digits, tmp_path / "off", FedEDS(base=base, **OFF, **OPTIONS)).run()
    other = Federation(digits, star(3, "edge"), base, params, tmp_path / "base", rounds=2, partition=SKEWED).run()
    assert same(off.state("cloud"), other.state("cloud"))
    for node in ("cloud", "edge-0"):
        assert off.journals[node].metrics == other.journals[node].metrics


def test_mu_0_is_base_fedavg_and_other_bases_have_no_mu(digits: Prepared, tmp_path: Path) -> None:
    """With the sets and with falling epochs."""

    def ended(**params: Any) -> Federation:
        folder = tmp_path / "-".join(f"{name}{value}" for name, value in params.items())
        return mesh(digits, folder, replace(SMALL, **params), rounds=2).run()

    plain = ended(base="fedavg")
    for other in (ended(base="fedprox", mu=0.0), ended(base="fedavg", mu=5.0)):
        assert same(plain.state("cloud"), other.state("cloud"))
        assert plain.journals["edge-0"].metrics == other.journals["edge-0"].metrics
    assert not same(plain.state("cloud"), ended(base="fedprox", mu=0.1).state("cloud"))


@pytest.mark.slow
@pytest.mark.parametrize("base", ["fedavg", "fedprox", "fednova"])
def test_every_edge_has_the_sets_of_all_others(digits: Prepared, tmp_path: Path, base: str) -> None:
    run = mesh(digits, tmp_path, replace(SMALL, base=base), rounds=3).run()
    for k in range(3):
        assert exchanged(run, f"edge-{k}") == {"sets": 2, "missing": []}
        assert list(run.journals[f"edge-{k}"].series("own")) == [1, 2, 3]
    assert list(run.journals["cloud"].series("global")) == [1, 2, 3]
    assert received(run, "cloud", "edge-0", "encrypted") == 0  # sets travel edge to edge
    assert received(run, "edge-0", "edge-1", "offer") == received(run, "edge-0", "edge-1") == 1


def test_sets_are_learned_from_in_the_first_two_rounds(
    digits: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the paper's m = 3. In round 1 five lessons, one for each local epoch, in round 2 three."""
    made: list[tuple[int, float]] = []

    def distillation(lessons: Any, lambda_dis: float, *rest: Any) -> Distillation:
        made.append((len(lessons), round(lambda_dis, 4)))
        return Distillation(lessons, lambda_dis, *rest)

    monkeypatch.setattr(roles, "Distillation", distillation)
    mesh(digits, tmp_path, rounds=4).run()
    assert sorted(made) == [(3, 0.0474)] * 3 + [(5, 0.5)] * 3


@pytest.mark.usefixtures("slow_links")
def test_a_dropped_link_costs_only_the_parts_that_were_missing(digits: Prepared, tmp_path: Path) -> None:
    """The link between two edges is cut when they have some of each other's six parts, and back some rounds later."""
    cut = {("edge-0", "edge-1"): (5.0, 20.0)}
    run = mesh(digits, tmp_path, replace(SMALL, m=0.0), cuts=cut, rounds=10).run()
    assert exchanged(run, "edge-2") == {"sets": 2, "missing": []}
    for one, other in (("edge-0", "edge-1"), ("edge-1", "edge-0")):
        assert exchanged(run, one) == {"sets": 1, "missing": [other]}
        role: Any = run.roles[one]
        assert role.sets[other].complete
        assert received(run, one, other) in (6, 7)  # one answer may have been cut off on its way


@pytest.mark.slow
@pytest.mark.usefixtures("slow_links")
@pytest.mark.parametrize("at", [0.1, 3.0])
def test_a_crash_of_an_edge_changes_nothing(digits: Prepared, tmp_path: Path, at: float) -> None:
    """While it makes its set it makes it again; in the exchange it has it from its checkpoint, and the others' anew."""
    calm = mesh(digits, tmp_path / "calm").run()
    crash = mesh(digits, tmp_path / "crash", crash={"edge-1": (at, at + 0.5)}).run()
    assert same(calm.state("cloud"), crash.state("cloud"))
    assert len(crash.journals["edge-1"].rounds("encrypted")) == 1
    assert exchanged(crash, "edge-0") == {"sets": 2, "missing": []}


@pytest.mark.slow
def test_round_1_starts_where_it_is_configured(digits: Prepared, tmp_path: Path) -> None:
    """From θ_0, or from the model that was trained to make the set. A crash between the two changes nothing."""
    params = replace(SMALL, model_epochs=20, annealing=False)
    anew = mesh(digits, tmp_path / "anew", params, rounds=1).run()
    params = replace(params, restore=False)
    on = mesh(digits, tmp_path / "on", params, rounds=1).run()
    for edge in ("edge-0", "edge-1", "edge-2"):
        assert on.journals[edge].series("train", "loss")[1] < 0.7 * anew.journals[edge].series("train", "loss")[1]
    crash = mesh(digits, tmp_path / "crash", params, rounds=1, crash={"edge-1": (0.5, 1.0)}).run()
    assert same(on.state("cloud"), crash.state("cloud"))


@pytest.mark.slow
def test_a_late_edge_is_served_and_makes_no_set(digits: Prepared, tmp_path: Path) -> None:
    params = replace(SMALL, m=0.0)
    run = mesh(digits, tmp_path, params, rounds=30, late={"edge-2": 6.0}, gathering=FEW).run()
    late = run.journals["edge-2"]
    assert not late.rounds("encrypted")
    assert exchanged(run, "edge-2") == {"sets": 2, "missing": []}
    assert min(round for round in late.series("own") if round is not None) > 1
    assert exchanged(run, "edge-0") == {"sets": 1, "missing": ["edge-2"]}


@pytest.mark.slow
def test_an_edge_that_never_delivers_costs_only_the_deadline(digits: Prepared, tmp_path: Path) -> None:
    ends: list[float] = []

    class Timed(Mesh):
        async def _run_node(self, node: str) -> None:
            await super()._run_node(node)
            if node == "cloud":
                ends.append(asyncio.get_running_loop().time())

    for k, slow in enumerate(({}, {"edge-2": 1e4})):
        run = Timed(
            digits,
            star(4, "edge"),
            "fededs",
            SMALL,
            tmp_path / str(k),
            rounds=2,
            partition=SKEWED,
            gathering=FEW,
            slow=slow,
        ).run()
        assert list(run.journals["cloud"].series("global")) == [1, 2]
        assert not run.journals["cloud"].rounds("round_abandoned")
    assert exchanged(run, "edge-0") == {"sets": 2, "missing": ["edge-2"]}
    assert ends[1] - ends[0] < 3 * FEW.deadline + 5  # of the exchange, and of each round


@pytest.mark.slow
def test_the_same_record_whatever_the_number_of_workers(tmp_path: Path) -> None:
    one, two = (simulate(tmp_path, SCENARIO, "--workers", str(workers)) for workers in (1, 2))
    assert one.code == two.code == 0, one.errors
    assert one.record() == two.record()
    assert one.summary["rounds"] == 3


def test_without_neighbours_there_is_no_one_to_share_with(digits: Prepared, tmp_path: Path) -> None:
    run = Federation(digits, star(1, "edge"), "fededs", SMALL, tmp_path)
    with pytest.raises(ExceptionGroup) as error:
        run.run()
    assert error.group_contains(NodeError, match="edge-0: fededs shares sets with other")


def test_the_literal_profile_steps_away_from_what_clients_learned(digits: Prepared, tmp_path: Path) -> None:
    options = OPTIONS | {"base": "fednova", **OFF}
    paper = mesh(digits, tmp_path / "paper", FedEDS(**options), rounds=3).run()
    literal = mesh(digits, tmp_path / "literal", FedEDS(**options, normalisation="algorithm-4"), rounds=3).run()
    losses = [run.journals["cloud"].series("global", "loss")[1] for run in (paper, literal)]
    assert losses[0] < math.log(10) < losses[1]


def test_fields_of_an_offer_that_are_not_known_are_ignored() -> None:
    """A neighbour of another version may offer more than this edge reads."""
    edge: Any = SimpleNamespace(sets={})
    fields = {"parts": 3, "low": -1.0, "high": 1.0, "received": {}, "colour": "blue"}
    offer = Message("offer", "edge-1", 0, fields, {"layer": np.ones((2, 2), np.float32)})
    roles.Edge.take_offer(edge, offer)
    assert (edge.sets["edge-1"].parts, edge.sets["edge-1"].received) == (3, {})
