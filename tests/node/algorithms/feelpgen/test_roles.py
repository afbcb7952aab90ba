from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from node.algorithms.feelpgen.generator import (
    CLASSIFIER,
    Reinforcement,
    dimensions,
    extract,
    new_generator,
    sample_features,
)
from node.algorithms.feelpgen.parameters import FEELPGen, FEELPGenMinus, FEELPGenPlus
from node.algorithms.feelpgen.private_projection import common_basis, project
from node.algorithms.feelpgen.roles import (
    Edge,
    KnownEdge,
    aggregate,
    divergence,
    guarantee,
    normalised,
    published,
    rank,
    subtracted,
    weights,
)
from node.algorithms.registry import ALGORITHMS
from node.assignment import Assignment, Gathering, derive_seed
from node.catalogue.partitions import IID, Dirichlet
from node.learning.aggregation import weighted_mean
from node.learning.data.datasets import Prepared
from node.learning.models import ModelPool, build
from node.learning.training import Learner
from node.messaging.delivery.association import Traffic
from node.parameters import read_parameters
from node.testing import Federation, Journal, hierarchy, same

QUICK: dict[str, Any] = {
    "learning_rate": 0.1,
    "batch_size": 16,
    "steps": 4,
    "inner_rounds": 2,
    "generator_steps": 3,
    "generated_batch": 8,
    "generator_hidden": 16,
    "features": 20,
}
MINUS = {name: value for name, value in QUICK.items() if name != "features"}
PATIENT = Gathering(quorum=0.5, deadline=300)


@dataclass
class Diary(Journal):
    """A journal that knows when."""

    times: list[float] = field(default_factory=list)

    def event(self, name: str, *, round: int | None = None, **fields: Any) -> None:
        super().event(name, round=round, **fields)
        self.times.append(asyncio.get_running_loop().time())

    def series(self, scope: str, value: str = "accuracy") -> dict[int, float]:
        return {round: of[value] for round, of in self.metrics if of["scope"] == scope and value in of}

    def ends(self) -> list[float]:
        """When the node's rounds ended."""
        entries = zip(self.events, self.times, strict=True)
        return [time for (name, _, fields), time in entries if name == "round" and fields["phase"] == "end"]

    def meetings(self) -> dict[int, dict[str, Any]]:
        return {round: fields for name, round, fields in self.events if name == "peers" and round is not None}


@dataclass
class Silos(Federation):
    """Edges of which ``late`` ones start at their second, and ``leave`` at another."""

    gathering: Gathering = PATIENT
    late: Mapping[str, float] = field(default_factory=dict)
    leave: Mapping[str, float] = field(default_factory=dict)
    journals: dict[str, Journal] = field(default_factory=lambda: defaultdict(Diary))
    traffic: dict[str, list[Traffic]] = field(default_factory=dict)

    async def _run_node(self, node: str) -> None:
        await asyncio.sleep(self.late.get(node, 0.0))
        if node in self.leave:
            wait = self.leave[node] - self.late.get(node, 0.0)
            asyncio.get_running_loop().call_later(wait, lambda: self.roles[node].stop(leaving=True))
        await super()._run_node(node)
        self.traffic[node] = self.roles[node]._transport.traffic()

    def _assignment(self, node: str) -> Assignment:
        assignment = super()._assignment(node)
        peers = tuple(replace(each, late=each.name in self.late) for each in assignment.peers)
        return replace(assignment, peers=peers)

    def diary(self, node: str) -> Diary:
        diary = self.journals[node]
        assert isinstance(diary, Diary)
        return diary

    def sent(self, node: str, kind: str) -> tuple[int, int]:
        """Messages and bytes."""
        rows = [row for row in self.traffic[node] if (row.kind, row.direction) == (kind, "sent")]
        return sum(row.messages for row in rows), sum(row.bytes for row in rows)


def silos(data: Prepared, folder: Path, groups: list[int], params: FEELPGenMinus, **values: Any) -> Silos:
    names: dict[type, str] = {FEELPGenMinus: "feelpgen-minus", FEELPGen: "feelpgen", FEELPGenPlus: "feelpgen-plus"}
    return Silos(data, hierarchy(groups, cloud=False), names[type(params)], params, folder, **values).run()


def quick(**values: Any) -> FEELPGen:
    return FEELPGen(**QUICK | values)


# The equations


def test_divergence_worked_example() -> None:
    """Softmaxes (1/2, 1/2) and (3/4, 1/4) in the first row, equal ones in the second; mean over both rows."""
    one, other = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[log(3), 0.0], [5.0, 5.0]])
    there = 0.5 * log(0.5 / 0.75) + 0.5 * log(0.5 / 0.25)
    back = 0.75 * log(0.75 / 0.5) + 0.25 * log(0.25 / 0.5)
    assert divergence(one, other) == pytest.approx(there / 2, abs=1e-6)
    assert divergence(other, one) == pytest.approx(back / 2, abs=1e-6)
    assert divergence(one, one) == 0


def test_weights_worked_example() -> None:
    """KL 0 and ln 3 make likenesses 1 and 1/3, that is s = 3/4 and 1/4; ages 0 and 1 make 1 and 2^-0.8 = 0.574349."""
    found = weights([0.0, log(3)], [0, 1], FEELPGen())
    assert found == pytest.approx([0.5 * 0.75 + 0.1 * 0.5 * 1, 0.5 * 0.25 + 0.1 * 0.5 * 0.574349], abs=1e-6)
    assert weights([], [], FEELPGen()) == []
    assert weights([900.0, 900.0], [0, 0], FEELPGen(gamma=1.0)) == [0.5, 0.5]  # where exp(-KL) is 0


def test_literal_weights_grow_with_the_distance() -> None:
    """Equation 17 as printed: 0.5 KL + 0.1 * 0.5 * 1."""
    found = weights([0.2, 2.0], [0, 0], FEELPGen(likeness="literal"))
    assert found == pytest.approx([0.15, 1.05])


def test_identical_silos_are_equally_alike() -> None:
    z = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    queue = {peer: KnownEdge(z, 3, at=5) for peer in ("edge-3", "edge-1", "edge-2")}
    ranked = rank(z, queue, 5, FEELPGen())
    assert [row.peer for row in ranked] == ["edge-1", "edge-2", "edge-3"]
    assert {row.weight for row in ranked} == {0.5 / 3 + 0.05}


def test_gamma_0_ranks_by_age_alone() -> None:
    z = np.random.default_rng(1).normal(size=(4, 20, 4)).astype(np.float32)
    queue = {"near": KnownEdge(z[0], 1, at=2), "far": KnownEdge(z[1], 9, at=9), "middle": KnownEdge(z[2], 4, at=6)}
    ranked = rank(z[0], queue, 10, FEELPGen(gamma=0.0))
    assert [(row.peer, row.age) for row in ranked] == [("far", 1), ("middle", 4), ("near", 8)]
    assert rank(z[0], queue, 10, FEELPGen(gamma=1.0))[0].peer == "near"


def test_a_stale_peer_loses_weight() -> None:
    fresh, *older = (weights([0.1, 0.1], [age, 0], FEELPGen())[0] for age in (0, 1, 5, 20))
    assert fresh > older[0] > older[1] > older[2]


def test_aggregate_worked_example() -> None:
    """w = 0 goes half of the way to the mean of 4 and 8 that is weighed 3 : 1, which is 5."""
    w, others = {"w": np.zeros(1, np.float32)}, [{"w": np.full(1, v, np.float32)} for v in (4, 8)]
    assert aggregate(w, others, [0.3, 0.1], FEELPGen())["w"] == pytest.approx(2.5)
    assert aggregate(w, others, [0.0, 0.0], FEELPGen())["w"] == pytest.approx(3.0)
    assert aggregate(w, others, [0.3, 0.1], FEELPGen(eta_agg=0.0)) is w
    assert aggregate(w, [], [], FEELPGen()) is w
    assert sum(normalised([0.2, 0.7, 0.4])) == pytest.approx(1)


def test_equations_as_printed_take_models_away() -> None:
    """Equation 4 with η = 0.01: 1 - 0.01 * 5."""
    w, others = {"w": np.ones(1, np.float32)}, [{"w": np.full(1, v, np.float32)} for v in (4, 8)]
    literal = read_parameters(FEELPGen, {"profile": "literal"})
    assert aggregate(w, others, [0.3, 0.1], literal)["w"] == pytest.approx(0.95)
    counters = {"n": np.array(3)}
    assert subtracted(counters, {"n": np.array(7)}, 0.01)["n"] == 7


def test_the_generators_rate_decays_from_round_to_round() -> None:
    """1e-4 * 0.98^(r - 1)."""
    rates = [FEELPGen().generator_rate(r) for r in (1, 2, 11)]
    assert rates == pytest.approx([1e-4, 0.98e-4, 1e-4 * 0.98**10])


def test_profiles_set_defaults_and_what_is_given_wins() -> None:
    fedgen, paper, literal, fast = (
        read_parameters(FEELPGenPlus, {"profile": name}) for name in ("fedgen", "paper", "literal", "fast")
    )
    assert fedgen == FEELPGenPlus()
    assert all((p.generated_factor, p.agreement_factor, p.factor_decay) == (10, 10, 0.98) for p in (fedgen, fast))
    assert all((p.generated_factor, p.agreement_factor, p.factor_decay) == (1, 0, 1) for p in (paper, literal))
    assert (paper.steps, paper.inner_rounds, paper.refreshed, paper.aggregated) == (20, 5, 4, 5)
    assert (literal.aggregation, literal.likeness, literal.released) == ("literal", "literal", "basis")
    assert fast.steps is not None
    assert fast.steps * fast.inner_rounds < 100
    assert read_parameters(FEELPGen, {"profile": "fast", "steps": 7}).steps == 7
    with pytest.raises(ValueError, match="'quick' is not fedgen or paper or literal or fast"):
        read_parameters(FEELPGen, {"profile": "quick"})


def test_topologies() -> None:
    algorithm = ALGORITHMS["feelpgen"]
    assert algorithm.problem(cloud=False, edges=10, devices=200) is None
    assert "set it to false" in str(algorithm.problem(cloud=True, edges=10, devices=200))
    assert "needs devices" in str(algorithm.problem(cloud=False, edges=10, devices=0))


# Inside a silo


def learners_of(run: Federation) -> dict[str, Learner]:
    shards = np.load(run.folder / "shards.npz")
    model = build(run.model, run.data.shape, 10, derive_seed(7, "model"))
    names = [*run.samples, "edge-0"]
    return {
        name: Learner(ModelPool(lambda: model), run.data, 7, name, shards.get(f"{name}/train"), global_test=False)
        for name in names
    }


def test_two_inner_rounds_are_algorithm_1(digits: Prepared, tmp_path: Path) -> None:
    """The lines of Algorithm 1, written out; an edge without others keeps what they give."""
    p = quick(participation=1.0)
    run = silos(digits, tmp_path, [2], p, rounds=1)
    learners = learners_of(run)
    w = learners["edge-0"].get()
    g = new_generator(*dimensions(w), 16, derive_seed(7, "generator"))
    for r in (1, 2):
        updates = []
        for name in ("device-0-0", "device-0-1"):
            seed = int(learners[name].random("generated", r).integers(2**63))
            a = 10 * 0.98 ** (r - 1)
            updates.append(learners[name].train(w, p, r, Reinforcement(g, a * 8 / 16, 8, seed, a)))
        heads = [{name: update.weights[name] for name in CLASSIFIER} for update in updates]
        seed = int(learners["edge-0"].random("extraction", r).integers(2**63))
        g = extract(g, heads, p, r, seed)
        w = weighted_mean([update.weights for update in updates], [update.samples for update in updates])
    kept = run.state("edge-0")
    assert same({name.removeprefix("model/"): kept[name] for name in kept if name.startswith("model/")}, w)
    assert same({name.removeprefix("generator/"): kept[name] for name in kept if name.startswith("generator/")}, g)


def test_half_of_the_devices_take_part_and_others_each_time(digits: Prepared, tmp_path: Path) -> None:
    run = silos(digits, tmp_path, [5], quick(inner_rounds=6, steps=1), rounds=2)
    sent = [run.sent(name, "update")[0] for name in run.samples]
    assert sum(sent) == 12 * 3  # of five, half is three
    assert all(0 < each < 12 for each in sent)


@pytest.mark.slow
def test_a_literal_silo_learns_nothing(digits: Prepared, tmp_path: Path) -> None:
    """Algorithm 1 line 17 as printed, η = 0.1: models are taken from models, so that weights shrink; accuracy stays at
    chance where the mean of the same devices learns."""
    found = {}
    for name, values in (("paper", {}), ("literal", {"profile": "literal"})):
        given = QUICK | {"steps": 10, "inner_rounds": 4, "participation": 1.0} | values
        run = silos(digits, tmp_path / name, [3], read_parameters(FEELPGen, given), rounds=3)
        norm = float(np.linalg.norm(run.state("edge-0")["model/classifier.weight"]))
        found[name] = norm, run.journals["edge-0"].series("global")[3]
    assert found["literal"][0] < found["paper"][0] / 2
    assert found["literal"][1] < 0.3
    assert found["paper"][1] > 0.6


# Between silos


def test_eta_0_is_independent_silos(digits: Prepared, tmp_path: Path) -> None:
    together, apart = (
        silos(digits, tmp_path / str(meshed), [1, 1, 1], quick(eta_agg=0.0), meshed=meshed) for meshed in (True, False)
    )
    for edge in ("edge-0", "edge-1", "edge-2"):
        ours, theirs = together.state(edge), apart.state(edge)
        assert same({name: ours[name] for name in theirs}, theirs)  # but for the queue
    assert together.sent("edge-0", "request") == (0, 0)


def test_edges_that_meet_grow_alike(digits: Prepared, tmp_path: Path) -> None:
    def spread(eta: float) -> float:
        run = silos(digits, tmp_path / str(eta), [2, 2, 2], quick(eta_agg=eta), partition=Dirichlet(alpha=0.1))
        heads = [run.state(f"edge-{k}")["model/classifier.weight"] for k in range(3)]
        return float(np.std(heads, axis=0).mean())

    assert spread(0.5) < spread(0.0) / 2


def test_what_an_edge_reports_of_a_meeting(digits: Prepared, tmp_path: Path) -> None:
    p = quick(refreshed=2, aggregated=2)
    run = silos(digits, tmp_path, [1] * 5, p, rounds=4)
    for edge in (f"edge-{k}" for k in range(5)):
        meetings = run.diary(edge).meetings()
        assert list(meetings) == [1, 2, 3, 4]
        meeting = meetings[4]
        assert len(meeting["asked"]) == 2
        assert sum(meeting["shares"].values()) == pytest.approx(0.5)
        assert set(meeting["shares"]) == set(meeting["asked"])
        rows = list(meeting["queue"].values())
        assert [row[3] for row in rows] == sorted((row[3] for row in rows), reverse=True)
        assert meeting["asked"] == list(meeting["queue"])[:2]
        assert edge not in meeting["queue"]
        assert all(version <= 4 and age >= 0 and kl >= 0 for version, age, kl, _ in rows)
    assert max(len(meeting["queue"]) for meeting in run.diary("edge-0").meetings().values()) > 2  # K' a time


SLOW = {"device-0-0": 400.0, "device-0-1": 400.0}


@pytest.mark.slow
def test_a_slow_edge_delays_no_one_and_answers_while_it_trains(digits: Prepared, tmp_path: Path) -> None:
    even, uneven = (
        silos(digits, tmp_path / str(len(slow)), [2, 2, 2], quick(), rounds=6, slow=slow) for slow in ({}, SLOW)
    )
    for edge in ("edge-1", "edge-2"):
        assert uneven.diary(edge).ends() == pytest.approx(even.diary(edge).ends(), abs=0.05)
    slow = uneven.diary("edge-0")
    assert slow.ends()[0] > 5 * uneven.diary("edge-1").ends()[-1]
    # The others were done by then, and still there: the slow one learns from them, and they had not waited for it.
    assert all(set(meeting["shares"]) == {"edge-1", "edge-2"} for meeting in slow.meetings().values())
    assert all("edge-0" not in meeting["queue"] for meeting in uneven.diary("edge-1").meetings().values())


def test_a_busy_edge_answers_with_the_model_it_published(digits: Prepared, tmp_path: Path) -> None:
    """edge-0 becomes slow after its first round: while it trains, others ask for and take in that round's model."""
    p = quick(inner_rounds=1, participation=1.0)
    late = {"edge-1": 14.0, "device-1-0": 14.0}
    run = silos(digits, tmp_path, [1, 1], p, rounds=3, slow={"device-0-0": 80.0}, late=late)
    first, busy = run.diary("edge-1").meetings()[1], run.diary("edge-0").ends()
    assert busy[0] < 14.0 < run.diary("edge-1").ends()[0] < busy[1]
    assert first["queue"]["edge-0"][0] == 1
    assert first["shares"] == {"edge-0": 0.5}


def test_in_feelpgen_minus_all_wait_for_a_slow_edge(digits: Prepared, tmp_path: Path) -> None:
    run = silos(digits, tmp_path, [2, 2, 2], FEELPGenMinus(**MINUS), rounds=2, slow=SLOW)
    ends = [run.diary(edge).ends()[0] for edge in ("edge-0", "edge-1", "edge-2")]
    assert ends == pytest.approx([ends[0]] * 3, abs=0.1)


def test_feelpgen_minus_is_fedavg_of_all_edges(digits: Prepared, tmp_path: Path) -> None:
    """All edges end with one model: the mean of what the silos trained, by the samples that took part."""
    p = FEELPGenMinus(**MINUS | {"participation": 1.0})
    run = silos(digits, tmp_path / "minus", [2, 1], p, rounds=1)
    alone = silos(digits, tmp_path / "alone", [2, 1], p, rounds=1, meshed=False)
    first, second = (
        {name: each for name, each in alone.state(edge).items() if name.startswith("model/")}
        for edge in ("edge-0", "edge-1")
    )
    expected = weighted_mean([first, second], [240, 120])  # 60 samples each, two inner rounds
    for edge in ("edge-0", "edge-1"):
        state = run.state(edge)
        assert same({name: state[name] for name in expected}, expected)
    assert run.diary("edge-0").meetings()[1]["shares"] == {"edge-1": pytest.approx(1 / 3)}


def test_an_edge_that_joins_late_is_taken_in(digits: Prepared, tmp_path: Path) -> None:
    late = dict.fromkeys(("edge-2", "device-2-0", "device-2-1"), 2.5)
    run = silos(digits, tmp_path, [2, 2, 2], quick(refreshed=2), rounds=8, late=late)
    meetings = run.diary("edge-0").meetings()
    assert "edge-2" not in meetings[1]["queue"]
    assert "edge-2" in meetings[8]["shares"]
    assert run.diary("edge-2").meetings()[1]["shares"]  # what was published before reaches it at once


@pytest.mark.slow
def test_an_edge_that_vanishes_ages_out(digits: Prepared, tmp_path: Path) -> None:
    """edge-2 leaves: it is not asked from then on, its entry grows old, loses weight and is forgotten."""
    gone = dict.fromkeys(("edge-2", "device-2-0", "device-2-1"), 2.5)
    run = silos(digits, tmp_path, [2, 2, 2], quick(max_age=4, refreshed=2), rounds=14, leave=gone)
    meetings = run.diary("edge-0").meetings()
    entries = {t: meeting["queue"]["edge-2"] for t, meeting in meetings.items() if "edge-2" in meeting["queue"]}
    last = max(entries)
    assert entries[last][1] == 4  # age
    assert last < 14
    assert "edge-2" not in meetings[last]["asked"]
    assert entries[last][3] < entries[min(entries)][3]  # weight


def test_a_version_that_comes_again_after_a_break_does_not_become_younger(digits: Prepared, tmp_path: Path) -> None:
    """edge-1 is ten times as slow, and the link to it breaks during one of its rounds: edge-0 gets a version twice."""
    slow = {"edge-1": 100.0, "device-1-0": 100.0, "edge-0": 10.0, "device-0-0": 10.0}
    cut = {("edge-0", "edge-1"): (70.0, 82.0)}
    run = silos(digits, tmp_path, [1, 1], quick(refreshed=2), rounds=16, slow=slow, cuts=cut)
    diary = run.diary("edge-0")
    came_back = [fields for name, _, fields in diary.events if name == "joined" and fields["peer"] == "edge-1"]
    assert len(came_back) == 2
    heard: dict[int, int] = {}  # the round in which a version was heard, by version
    for t, meeting in diary.meetings().items():
        if "edge-1" in meeting["queue"]:
            version, age, *_ = meeting["queue"]["edge-1"]
            assert heard.setdefault(version, t - age) == t - age
    assert heard


@pytest.mark.slow
def test_a_restarted_edge_serves_the_model_of_the_version_it_published(digits: Prepared, tmp_path: Path) -> None:
    run = silos(digits, tmp_path, [1, 1], quick(), rounds=4)
    before = {name.removeprefix("served/"): each for name, each in run.state("edge-0").items() if "served/" in name}
    again = run._role("edge-0")
    assert isinstance(again, Edge)
    again.begin()
    assert same(again.served, before)
    assert not same(again.served, again.w)  # which is that after the exchange


@pytest.mark.slow
def test_a_restarted_edge_continues_where_it_was(digits: Prepared, tmp_path: Path) -> None:
    p = quick(refreshed=2)
    calm, crash = (
        silos(digits, tmp_path / str(k), [2, 2, 2], p, rounds=6, crash=faults)
        for k, faults in enumerate(({}, {"edge-1": (1.0, 1.5)}))
    )
    diary = crash.diary("edge-1")
    (resumed,) = diary.rounds("resumed")
    assert resumed is not None
    assert sorted(diary.meetings()) == [1, 2, 3, 4, 5, 6]
    after = [round for name, round, _ in diary.events if name == "peers"]
    assert after.count(resumed) == 1
    # Its queue was kept: all it knew of before it fell is there at once, as old as it was.
    before, then = diary.meetings()[resumed]["queue"], diary.meetings()[resumed + 1]["queue"]
    assert set(before) <= set(then)
    assert list(crash.journals["edge-1"].series("own")) == list(calm.journals["edge-1"].series("own"))
    # The others go on with it.
    queues = [meeting["queue"] for meeting in crash.diary("edge-0").meetings().values()]
    assert max(queue["edge-1"][0] for queue in queues if "edge-1" in queue) > resumed


@pytest.mark.parametrize("node", ["edge-1", "device-1-0"])
def test_a_restart_changes_nothing_in_feelpgen_minus(digits: Prepared, tmp_path: Path, node: str) -> None:
    """A restarted edge repeats its round, and gets the models that the others sent in it meanwhile."""
    p = FEELPGenMinus(**MINUS)
    calm = silos(digits, tmp_path / "calm", [2, 2, 2], p, rounds=4)
    start, end = calm.diary("edge-1").ends()[:2]
    moment = (start + end) / 2
    crash = silos(digits, tmp_path / "crash", [2, 2, 2], p, rounds=4, crash={node: (moment, moment + 0.4)})
    for edge in ("edge-0", "edge-1", "edge-2"):
        assert same(calm.state(edge), crash.state(edge))
    assert crash.diary(node).rounds("resumed") == ([1] if node == "edge-1" else [])
    assert crash.diary("edge-0").ends()[-1] < calm.diary("edge-0").ends()[-1] + 2  # nobody waited for a deadline


def test_a_restarted_device_changes_nothing(digits: Prepared, tmp_path: Path) -> None:
    calm, crash = (
        silos(digits, tmp_path / str(k), [2, 2], quick(eta_agg=0.0), crash=faults)
        for k, faults in enumerate(({}, {"device-0-1": (0.3, 0.5)}))
    )
    for edge in ("edge-0", "edge-1"):
        ours = {name: each for name, each in crash.state(edge).items() if not name.startswith("queue/")}
        assert same(ours, {name: calm.state(edge)[name] for name in ours})


# FEELPGen plus


def test_the_projection_is_16_times_smaller_on_the_wire(digits: Prepared, tmp_path: Path) -> None:
    """Table III: 41,072 against 2,672 bytes. Ours are 320 x 32 and 320 x 2 float32 and a header of less than 100."""
    sizes = {}
    values = QUICK | {"features": 320}
    for kind in (FEELPGen, FEELPGenPlus):
        run = silos(digits, tmp_path / kind.__name__, [1, 1], kind(**values), rounds=2, model="cnn")
        messages, size = run.sent("edge-0", "features")
        assert messages == 2
        sizes[kind] = size / messages
        reported = run.diary("edge-0").series("generator", "clipped_rows")
        assert sorted(reported) == ([1, 2] if kind is FEELPGenPlus else [])
    headers = [sizes[FEELPGen] - 320 * 32 * 4, sizes[FEELPGenPlus] - 320 * 2 * 4]
    assert headers == pytest.approx([headers[0]] * 2, abs=2)
    assert 0 < headers[0] < 100
    assert 15.4 < sizes[FEELPGen] / sizes[FEELPGenPlus] < 16


def test_released_components_are_smaller_still(digits: Prepared, tmp_path: Path) -> None:
    p = FEELPGenPlus(**QUICK | {"released": "basis"})
    run = silos(digits, tmp_path, [1, 1], p, rounds=2, model="cnn")
    messages, size = run.sent("edge-0", "features")
    assert 2 * 32 * 4 < size / messages < 2 * 32 * 4 + 100
    assert run.diary("edge-1").meetings()[2]["shares"] == {"edge-0": 0.5}


def test_edges_share_a_common_basis() -> None:
    p, labels = FEELPGenPlus(released="common", features=40), 7
    basis = common_basis(32, 2, np.random.default_rng(labels))
    for edge in (1, 2):
        generator = new_generator(10, 32, 8, seed=edge)
        expected = project(sample_features(generator, 40, labels), basis)
        np.testing.assert_array_equal(published(generator, p, labels, noise=edge), expected)


def test_what_is_said_about_privacy(digits: Prepared, tmp_path: Path) -> None:
    assert "no guarantee holds" in guarantee(FEELPGenPlus())
    assert "(1, 0.001)-differentially private" in guarantee(FEELPGenPlus(released="basis"))
    assert "no guarantee holds" in guarantee(FEELPGenPlus(released="common"))
    run = silos(digits, tmp_path, [1, 1], FEELPGenPlus(**QUICK), rounds=1)
    notes = [
        fields["text"]
        for edge in ("edge-0", "edge-1")
        for name, _, fields in run.journals[edge].events
        if name == "note"
    ]
    assert notes == [f"FEELPGen⁺: {guarantee(FEELPGenPlus())}"]  # once a run


# All of it


@pytest.mark.parametrize("kind", [FEELPGenMinus, FEELPGen, FEELPGenPlus])
def test_accuracy_floor(digits: Prepared, tmp_path: Path, kind: type[FEELPGenMinus]) -> None:
    values = MINUS if kind is FEELPGenMinus else QUICK
    p = kind(**values | {"steps": 12, "learning_rate": 0.05, "participation": 1.0})
    run = silos(digits, tmp_path, [2, 2, 2], p, partition=IID(samples_per_client=200))
    assert all(run.journals[f"edge-{k}"].series("global")[3] > 0.85 for k in range(3))
    assert all(run.journals[f"edge-{k}"].series("own")[3] > 0.85 for k in range(3))
    diary = run.journals["edge-0"]
    assert diary.rounds("round") == [1, 1, 2, 2, 3, 3]
    assert list(diary.series("own", "accuracy_before_meeting")) == [1, 2, 3]
    spread = diary.series("generator", "divergence")
    assert list(spread) == [1, 2, 3]
    assert all(value > 0 for value in spread.values())
