from __future__ import annotations

import asyncio
import base64
import gc
import inspect
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from node.algorithms.common import parted, report_mean
from node.algorithms.dffke.docking import dock
from node.algorithms.dffke.embedding_decoder import ClientModel, new_decoder, train_decoder
from node.algorithms.dffke.knowledge_exchange import embed, exchange, pictures_of, teach, train_epoch
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.dffke.roles import Client, Coordinator
from node.algorithms.dffke.synthetic import Lesson, Synthetic, Transfer
from node.assignment import Assignment, Gathering, derive_seed
from node.catalogue.datasets import Dataset
from node.catalogue.partitions import IID, LabelShards
from node.errors import NodeError
from node.learning.aggregation import State
from node.learning.data.datasets import Prepared, prepare
from node.learning.models import ModelPool, build
from node.learning.training import Learner
from node.messaging.memory import MemoryNetwork
from node.messaging.wire import Message
from node.parameters import read_parameters
from node.role import Role
from node.testing import Federation, same, star
from orchestrator.errors import ScenarioError
from orchestrator.scenario.reading import parse
from tests.orchestrator.drivers.sim.harness import simulate

QUICK = DFFKE(
    dimension=16,
    width=8,
    batch_size=20,
    epochs=2,
    first_epochs=6,
    embeddings=30,
    docking_epochs=5,
    decoder_epochs=3,
    exchange_epochs=2,
    learning_rate=0.003,
    memory_rounds=2,
    evaluate_samples=50,
)
FEW = IID(samples_per_client=40)
MODELS = ("lenet", "mlp", "cnn")


@dataclass(frozen=True)
class Sent:
    """A message on its way."""

    at: float
    to: tuple[str, ...]
    message: Message


@dataclass
class Mesh(Federation):
    """Clients that reach one another, each with a model of its own. ``sent`` is every message of the run."""

    models: tuple[str, ...] = MODELS
    sent: list[Sent] = field(default_factory=list)

    def of_kind(self, kind: str, round: int | None = None, sender: str | None = None) -> list[Sent]:
        return [
            each
            for each in self.sent
            if each.message.kind == kind
            and round in (None, each.message.round)
            and sender in (None, each.message.sender)
        ]

    def owners(self, round: int) -> list[str]:
        """Whose synthetic pictures the coordinator gave out in a round."""
        [*_, last] = self.of_kind("exchange", round)
        return sorted(Synthetic.of_tensors(last.message.tensors).embeddings)

    def model_of(self, node: str) -> str:
        return self.models[int(node.split("-")[1]) % len(self.models)]

    def _assignment(self, node: str) -> Assignment:
        made = super()._assignment(node)
        if node == "cloud":
            return made
        return replace(made, model=self.model_of(node), data=replace(made.data, global_test=True))

    def _role(self, node: str) -> Role:
        role = super()._role(node)
        send, loop = role._transport.send, asyncio.get_running_loop()

        async def tapped(to: Iterable[str], message: Message, *, replace: bool = False) -> None:
            to = tuple(to)
            if to:
                self.sent.append(Sent(loop.time(), to, message))
            await send(to, message, replace=replace)

        role._transport.send = tapped  # type: ignore[method-assign]
        return role


def mesh(digits: Prepared, folder: Path, clients: int = 3, params: DFFKE = QUICK, **options: Any) -> Mesh:
    usual: dict[str, Any] = {"partition": FEW, "rounds": 3}
    return Mesh(digits, star(clients, "edge"), "dffke", params, folder, **(usual | options))


def learners_of(run: Mesh) -> dict[str, Learner]:
    shards = np.load(run.folder / "shards.npz")
    seed = derive_seed(7, "model")

    def model_pool(name: str) -> ModelPool:
        return ModelPool(lambda: build(name, run.data.shape, 10, seed))

    return {
        node: Learner(model_pool(run.model_of(node)), run.data, 7, node, shards[f"{node}/train"])
        for node in sorted(run.samples)
    }


def test_a_round_is_algorithm_1(digits: Prepared, tmp_path: Path) -> None:
    """Two rounds of two clients, line by line."""
    run = mesh(digits, tmp_path, clients=2, rounds=2).run()
    learners, p = learners_of(run), QUICK
    names = sorted(learners)
    pictures = pictures_of(learners["edge-0"])
    theta = {k: learners[k].initial() for k in names}
    dec, layers = new_decoder(pictures, p, derive_seed(7, "cloud", "decoder")), dict[str, State]()
    memory: list[tuple[State, dict[str, NDArray[np.float32]]]] = []
    for t in ("1", "2"):
        released = {}
        for k in names:
            moments: State = {}
            for epoch in range(1, (p.first_epochs if t == "1" else p.epochs) + 1):
                done = train_epoch(learners[k], theta[k], moments, p, derive_seed(7, k, "epoch", t, str(epoch)))
                theta[k], moments = done.state, done.moments
                assert done.accuracy < p.train_accuracy  # else the loop would end before
            released[k] = embed(learners[k], theta[k], p, derive_seed(7, k, "embeddings", t))
        embeddings = {k: each.values for k, (each, _) in released.items()}
        labels = {k: y for k, (_, y) in released.items()}
        docked = dock(embeddings, labels, layers, 10, p, derive_seed(7, "cloud", "docking", t))
        models = {k: ClientModel(run.model_of(k), {}, theta[k]) for k in names}
        seed = derive_seed(7, "cloud", "decoding", t)
        dec, _ = train_decoder(dec, models, docked.layers, docked.translated, pictures, p, seed)
        layers = docked.layers
        sets = {k: [Transfer(dec, docked.translated[k])] for k in names}
        for decoder, translated in memory:  # of round 1, all of it: there is no other past round
            for k in names:
                sets[k].append(Transfer(decoder, translated[k]))
        lessons = {}
        for k in names:
            logits = teach(learners[k], theta[k], sets[k], p, derive_seed(7, k, "logits", t))
            lessons[k] = [Lesson(each, said.values) for each, said in zip(sets[k], logits, strict=True)]
        for k, other in (names, names[::-1]):
            now, *past = lessons[other]
            theta[k] = exchange(learners[k], theta[k], [now], past, p, derive_seed(7, k, "exchange", t)).state
        memory.append((dec, docked.translated))
    for k in names:
        assert same(run.state(k), theta[k])


@pytest.mark.slow
def test_two_clients_learn_the_classes_that_only_the_other_has(digits: Prepared, tmp_path: Path) -> None:
    """One has half of the digits, the other the rest; their networks differ. Alone, none names one he never saw.

    How much each learns hangs on how its processor rounds. With 140, 150 and 160 samples the smaller network named 37,
    12 and 38 % on one processor, and 20, 5 and 60 % on another; the larger one 82, 64 and 67 %, and 75, 76 and 69 %.
    """
    params = replace(
        QUICK,
        dimension=32,
        width=16,
        first_epochs=30,
        epochs=5,
        embeddings=100,
        docking_epochs=20,
        decoder_epochs=25,
        exchange_epochs=10,
        learning_rate=0.005,
    )
    halves = LabelShards(shard_size=600, shards_per_client=1, samples_per_client=160)
    runs = {
        kind: mesh(digits, tmp_path / kind, 2, p, rounds=rounds, partition=halves, models=("lenet", "mlp")).run()
        for kind, p, rounds in (("alone", replace(params, exchange_epochs=0), 1), ("together", params, 4))
    }
    assert {each.message.kind for each in runs["alone"].sent} == {"begin", "finished", "finish"}
    learners = learners_of(runs["alone"])
    known = {k: set(learner.train_data[1].tolist()) for k, learner in learners.items()}
    together = []
    for k, other in (("edge-0", "edge-1"), ("edge-1", "edge-0")):
        news = sorted(known[other] - known[k])
        assert len(news) >= 4
        accuracy = {
            kind: float(np.mean([of_class(learners[k], run.state(k))[c] for c in news])) for kind, run in runs.items()
        }
        assert accuracy["alone"] == 0
        assert accuracy["together"] > 0
        together.append(accuracy["together"])
    assert np.mean(together) > 0.25


def of_class(learner: Learner, state: State) -> list[float]:
    """Accuracy on the test samples of each class."""
    learner.set(state)
    x, y = (torch.from_numpy(np.array(learner.data.array(name))) for name in ("x_test", "y_test"))
    with torch.inference_mode():
        logits = learner.model.eval()(learner.normalise(x))
    right = logits.argmax(dim=1) == y
    return [float(right[y == label].float().mean()) for label in range(learner.data.classes)]


# What travels, and what stays


def pictures_in(values: NDArray[Any], samples: NDArray[Any]) -> float:
    """The largest correlation between rows of 64 of ``values`` and the 8x8 ``samples``: 1 for a picture, however it is
    scaled and shifted."""
    if values.size % 64 or values.dtype.kind not in "fui":
        return 0.0
    rows, pictures = (
        np.nan_to_num(
            (x - x.mean(1, keepdims=True))
            / np.maximum(np.linalg.norm(x - x.mean(1, keepdims=True), axis=1), 1e-9)[:, None]
        )
        for x in (values.reshape(-1, 64).astype(float), samples.reshape(-1, 64).astype(float))
    )
    return float((rows @ pictures.T).max())


@pytest.mark.slow
def test_no_message_ever_carries_raw_data(digits: Prepared, tmp_path: Path) -> None:
    run = mesh(digits, tmp_path, params=replace(QUICK, dimension=64)).run()
    samples = np.concatenate([learner.train_data[0].numpy() for learner in learners_of(run).values()])
    assert pictures_in(samples[3:5] / 255 - 0.3, samples) > 0.999999  # it would be found
    kinds = {each.message.kind for each in run.sent}
    assert kinds == {"begin", "knowledge", "exchange", "logits", "finished", "finish"}
    for each in run.sent:
        for name, values in each.message.tensors.items():
            assert pictures_in(values, samples) < 0.99, (each.message.kind, name)
            assert values.dtype != np.uint8
    for each in run.of_kind("logits"):
        assert each.message.sender != "cloud"
        assert "cloud" not in each.to  # peer to peer
        assert all(values.shape[1] == 10 for values in each.message.tensors.values())
    assert {each.to for each in run.of_kind("knowledge")} == {("cloud",)}


@pytest.mark.slow
def test_the_coordinator_holds_no_task_model_between_rounds(
    digits: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of the clients' are looked for in all that its role and its running steps lead to."""
    held: dict[str, list[bool]] = {"exchange": [], "finished": []}
    publish = Coordinator.publish

    def look(self: Coordinator, when: str) -> None:
        frame, places = inspect.currentframe(), list[Any]([self])
        while frame is not None:
            if frame.f_code.co_filename == inspect.getfile(Coordinator):
                places.append(dict(frame.f_locals))
            frame = frame.f_back
        assert len(places) > 1
        held[when].append(any_of(weights_sent(run), arrays_of(*places)))

    async def looking_publish(self: Coordinator, to: Any, kind: str, *rest: Any, **more: Any) -> None:
        await publish(self, to, kind, *rest, **more)
        if kind == "exchange":
            look(self, "exchange")

    def looking_report(self: Coordinator, *rest: Any) -> None:
        report_mean(self, *rest)
        look(self, "finished")

    monkeypatch.setattr(Coordinator, "publish", looking_publish)
    monkeypatch.setattr("node.algorithms.dffke.roles.report_mean", looking_report)
    run = mesh(digits, tmp_path)
    run.run()
    assert held == {"exchange": [True] * 3, "finished": [False] * 3}  # within a round it has them, as it must
    assert all(name.startswith(("decoder/", "docking/")) for name in run.state("cloud"))


def weights_sent(run: Mesh) -> list[NDArray[Any]]:
    """Weight matrices that clients shared."""
    tensors = [pair for each in run.of_kind("knowledge") for pair in each.message.tensors.items()]
    return [values for name, values in tensors if name.startswith("model/") and values.size >= 100]


def any_of(wanted: list[NDArray[Any]], held: Iterable[NDArray[Any]]) -> bool:
    known = {(values.shape, values.tobytes()) for values in wanted}
    assert known
    return any((values.shape, values.tobytes()) in known for values in held)


def arrays_of(*roots: Any) -> Iterator[NDArray[Any]]:
    """Every array and tensor that these lead to, but through code, or the network to other nodes."""
    code = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    skipped = (*code, MemoryNetwork, Mesh, Client, asyncio.AbstractEventLoop, asyncio.Future)
    seen, waiting = set[int](), list(roots)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, skipped) or type(thing).__module__ == "node.messaging.delivery.pair":
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            yield thing.detach().numpy()
        elif isinstance(thing, np.ndarray):
            yield thing
        waiting += gc.get_referents(thing)


# The attack of appendix C

CURIOUS = replace(QUICK, inversion=3, inversion_samples=100, inversion_epochs=3)


@pytest.fixture(scope="module")
def inverted(digits: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return mesh(digits, tmp_path_factory.mktemp("inverted") / "run", params=CURIOUS).run()


@pytest.mark.slow
def test_the_attack_comes_after_all_rounds_and_changes_nothing(calm: Mesh, inverted: Mesh) -> None:
    attack = ("inverted", "judged")
    before = [each for each in inverted.sent if each.message.kind not in (*attack, "finish")]
    assert [(each.at, each.to, each.message.kind) for each in before] == [
        (each.at, each.to, each.message.kind) for each in calm.sent if each.message.kind != "finish"
    ]
    for node in calm.tree:
        assert same(inverted.state(node), calm.state(node))
        assert inverted.journals[node].metrics == calm.journals[node].metrics
    assert not any(calm.of_kind(kind) for kind in attack)
    assert not any("inversion" in [name for name, *_ in journal.events] for journal in calm.journals.values())
    last = max(each.at for each in before)
    assert all(each.at >= last for kind in attack for each in inverted.of_kind(kind))


@pytest.mark.slow
def test_private_pictures_go_into_the_record_alone(inverted: Mesh) -> None:
    """Each client tells its own and what was made of them; no message but the coordinator's holds pictures."""
    for node, learner in learners_of(inverted).items():
        [(t, found)] = [(t, fields) for name, t, fields in inverted.journals[node].events if name == "inversion"]
        assert (t, found["samples"], found["shape"]) == (3, 30, [1, 8, 8])
        assert set(found["scores"]) == {"reconstructed", "synthetic", "class_mean"}
        assert {kind: len(made) for kind, made in found["pictures"].items()} == dict.fromkeys(
            ("private", "reconstructed", "synthetic", "class_mean"), 3
        )
        held = {picture.tobytes() for picture in learner.train_data[0].numpy()}
        assert {base64.b64decode(each) for each in found["pictures"]["private"]} <= held
        [sent] = [each for each in inverted.of_kind("inverted") if each.to == (node,)]
        assert {name: values.shape for name, values in sent.message.tensors.items()} == dict.fromkeys(
            ("reconstructed", "synthetic"), (30, 1, 8, 8)
        )
        assert not held & {picture.tobytes() for made in sent.message.tensors.values() for picture in made}
    samples = np.concatenate([learner.train_data[0].numpy() for learner in learners_of(inverted).values()])
    for each in inverted.sent:
        if each.message.kind != "inverted":
            for name, values in each.message.tensors.items():
                assert values.dtype != np.uint8
                assert pictures_in(values, samples) < 0.99, (each.message.kind, name)


def test_a_run_that_ends_early_is_attacked_too(digits: Prepared, tmp_path: Path) -> None:
    run = mesh(digits, tmp_path, params=CURIOUS, accuracy=0.01).run()
    assert [each.message.round for each in run.of_kind("judged")] == [1, 1, 1]


@pytest.mark.slow
def test_embeddings_that_came_late_are_compared_with_the_pictures_that_they_are_of(
    digits: Prepared, tmp_path: Path
) -> None:
    """edge-0 is told of after round 2 by what it shared in round 1, too late for that."""
    rule = Gathering(quorum=0.5, deadline=5, late="keep")
    run = mesh(digits, tmp_path, params=CURIOUS, slow={"edge-0": 30.0}, gathering=rule, rounds=2).run()
    [(t, found)] = [(t, fields) for name, t, fields in run.journals["edge-0"].events if name == "inversion"]
    assert t == 1
    assert {each.message.round for each in run.of_kind("judged", sender="edge-0")} == {2}
    [told] = run.of_kind("knowledge", 1, "edge-0")
    learner = learners_of(run)["edge-0"]
    learner.set(parted(told.message.tensors, "model"))
    private = [np.frombuffer(base64.b64decode(each), np.uint8) for each in found["pictures"]["private"]]
    with torch.inference_mode():
        x = learner.normalise(torch.from_numpy(np.stack(private).reshape(-1, 1, 8, 8)))
        again = learner.model.eval().extractor(x).numpy()
    np.testing.assert_allclose(again, told.message.tensors["embeddings"][:3], atol=1e-5)


def test_nothing_shared_cannot_be_inverted() -> None:
    with pytest.raises(ValueError, match=r"inversion: 3 finds no embeddings.*exchange_epochs"):
        replace(CURIOUS, exchange_epochs=0)


def test_pictures_of_floats_are_not_attacked(digits: Prepared, tmp_path: Path) -> None:
    samples = list(zip(digits.array("x_train") / np.float32(255), digits.array("y_train"), strict=True))
    known = {"floats": Dataset("floats", read=lambda: (samples, samples))}
    floats = prepare("floats", tmp_path / "data", known=known)
    with pytest.raises(ExceptionGroup) as raised:
        mesh(floats, tmp_path / "run", params=CURIOUS).run()
    assert raised.group_contains(NodeError, match=r"inversion: 3 needs pictures.*bytes, not")


# Who takes part


@pytest.mark.slow
def test_only_those_who_are_asked_take_part_and_all_remember(digits: Prepared, tmp_path: Path) -> None:
    run = mesh(digits, tmp_path, params=replace(QUICK, participation=2 / 3), rounds=4).run()
    asked = {each.message.round: each.message.fields["participants"] for each in run.of_kind("begin")}
    assert [len(names) for names in asked.values()] == [2] * 4
    assert len({tuple(names) for names in asked.values()}) > 1
    for t in (1, 2, 3, 4):
        assert run.owners(t) == asked[t]
        assert sorted(each.message.sender for each in run.of_kind("finished", t)) == asked[t]
    for node in run.samples:
        client = run.roles[node]
        assert isinstance(client, Client)
        assert sorted(client.memory) == [2, 3, 4]  # the last two rounds, and the current one


@pytest.mark.slow
@pytest.mark.parametrize("memory_rounds", [0, 2])
def test_logits_on_the_memory_travel_if_there_is_one(digits: Prepared, tmp_path: Path, memory_rounds: int) -> None:
    run = mesh(digits, tmp_path, params=replace(QUICK, memory_rounds=memory_rounds), rounds=4).run()
    sizes = {
        t: {name: len(values) for name, values in run.of_kind("logits", t, "edge-1")[0].message.tensors.items()}
        for t in (1, 2, 3, 4)
    }
    if memory_rounds:  # 30 of now, and 30 of the last two rounds together
        assert sizes == {
            1: {"1": 30},
            2: {"2": 30, "1": 30},
            3: {"3": 30, "1": 15, "2": 15},
            4: {"4": 30, "2": 15, "3": 15},
        }
    else:
        assert sizes == {t: {str(t): 30} for t in (1, 2, 3, 4)}


def when(run: Mesh, kind: str, round: int) -> float:
    """When the last message of a kind was sent in a round of a calm run."""
    return max(each.at for each in run.of_kind(kind, round))


@pytest.fixture(scope="module")
def calm(digits: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return mesh(digits, tmp_path_factory.mktemp("calm") / "run").run()


ONE_SLOW: dict[str, Any] = {  # phases last longer than it takes to find that somebody is gone, 8 s
    "slow": {"edge-0": 100.0},
    "gathering": Gathering(quorum=0.5, deadline=200),
}
EVERYBODY = ["edge-0", "edge-1", "edge-2"]


@pytest.fixture(scope="module")
def slow(digits: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return mesh(digits, tmp_path_factory.mktemp("slow") / "run", **ONE_SLOW).run()


@pytest.mark.slow
def test_who_drops_out_while_training_misses_that_phase(digits: Prepared, tmp_path: Path, slow: Mesh) -> None:
    """edge-1 cannot be reached from the local training of round 2 until after the exchange of the others has begun."""
    gone = (when(slow, "begin", 2) + 0.01, when(slow, "exchange", 2) + 3)
    cuts = {(other, "edge-1"): gone for other in ("cloud", "edge-0", "edge-2")}
    run = mesh(digits, tmp_path, cuts=cuts, **ONE_SLOW).run()
    assert [run.owners(t) for t in (1, 2, 3)] == [EVERYBODY, ["edge-0", "edge-2"], EVERYBODY]
    assert series(run, "edge-0", "teachers") == {1: 2, 2: 1, 3: 2}
    assert series(run, "edge-1", "teachers") == {1: 2, 2: 2, 3: 2}  # it learns from those who shared their models
    assert list(run.journals["cloud"].series("global")) == [1, 2, 3]


@pytest.mark.slow
def test_who_drops_out_in_the_exchange_teaches_no_one(digits: Prepared, tmp_path: Path, slow: Mesh) -> None:
    """edge-2 crashes when it has shared its model in round 2, and is back in round 3 with the model it had trained."""
    at = (when(slow, "knowledge", 2) + when(slow, "exchange", 2)) / 2
    back = when(slow, "logits", 2) + 30  # edge-0 has one teacher for 25 s then, and trains in round 3 for 8 s
    run = mesh(digits, tmp_path, crash={"edge-2": (at, back)}, **ONE_SLOW).run()
    assert min(each.at for each in run.of_kind("begin", 3)) < back < when(run, "knowledge", 3)
    assert [run.owners(t) for t in (1, 2, 3)] == [EVERYBODY] * 3
    assert series(run, "edge-0", "teachers") == {1: 2, 2: 1, 3: 2}
    assert series(run, "edge-2", "epochs")[3] == QUICK.epochs  # those of a client that has been trained before
    assert not run.of_kind("logits", 2, "edge-2")
    assert list(run.journals["cloud"].series("global")) == [1, 2, 3]


def series(run: Mesh, node: str, name: str) -> dict[int, float]:
    """A figure that a node reported, whatever its scope."""
    return {round: values[name] for round, values in run.journals[node].metrics if name in values}


def test_no_one_waits_for_ever_for_a_slow_client(digits: Prepared, tmp_path: Path) -> None:
    """edge-0 never gets through a pass before the deadline: the others exchange, and no round hangs."""
    rule = Gathering(quorum=0.5, deadline=5)
    run = mesh(digits, tmp_path, gathering=rule, slow={"edge-0": 1e5}, rounds=2).run()
    assert [run.owners(t) for t in (1, 2)] == [["edge-1", "edge-2"]] * 2
    assert series(run, "edge-1", "teachers") == {1: 1, 2: 1}


@pytest.mark.slow
@pytest.mark.parametrize("node", ["cloud", "edge-1"])
def test_a_crash_in_local_training_changes_nothing(digits: Prepared, tmp_path: Path, calm: Mesh, node: str) -> None:
    """Without a memory, which a restarted client lacks. The coordinator begins its round again, and clients that have
    trained share once more; a client trains its round again from the model that it kept."""
    params = replace(QUICK, memory_rounds=0)
    at = (when(calm, "begin", 2) + when(calm, "knowledge", 2)) / 2
    runs = [
        mesh(digits, tmp_path / str(k), params=params, crash=crash).run()
        for k, crash in enumerate(({}, {node: (at, at + 0.01)}))
    ]
    assert "resumed" in [name for name, _, _ in runs[1].journals[node].events]
    for each in ("edge-0", "edge-1", "edge-2"):
        assert same(runs[0].state(each), runs[1].state(each))


@pytest.mark.slow
def test_a_coordinator_that_falls_in_the_exchange_continues_with_the_next_round(
    digits: Prepared, tmp_path: Path, calm: Mesh
) -> None:
    at = (when(calm, "exchange", 2) + when(calm, "finished", 2)) / 2
    run = mesh(digits, tmp_path, crash={"cloud": (at, at + 0.5)}).run()
    assert {each.message.round for each in run.of_kind("begin")} == {1, 2, 3}
    assert len(run.of_kind("begin", 2)) == 1
    assert run.owners(3) == ["edge-0", "edge-1", "edge-2"]
    for node in run.samples:
        assert same(run.state(node), calm.state(node))


# Reports, parameters, scenarios


@pytest.mark.slow
def test_reports(calm: Mesh) -> None:
    assert list(calm.journals["edge-2"].series("own-before-exchange")) == [1, 2, 3]
    for scope in ("global", "own"):
        clients = [calm.journals[node].series(scope) for node in sorted(calm.samples)]
        assert [list(each) for each in clients] == [[1, 2, 3]] * 3
        mean = calm.journals["cloud"].series(scope)
        assert mean == pytest.approx({t: np.mean([each[t] for each in clients]) for t in (1, 2, 3)})


def test_training_stops_at_the_accuracy_asked_for(digits: Prepared, tmp_path: Path) -> None:
    run = mesh(digits, tmp_path, params=replace(QUICK, train_accuracy=0.3), rounds=1).run()
    for node in run.samples:
        assert 1 <= series(run, node, "epochs")[1] < QUICK.first_epochs


@pytest.mark.parametrize(
    ("privacy", "guarantee"), [("clip", "each embedding, once, given the model"), ("empirical", "none")]
)
def test_privacy_is_said_as_it_is(digits: Prepared, tmp_path: Path, privacy: str, guarantee: str) -> None:
    run = mesh(digits, tmp_path, params=replace(QUICK, privacy=privacy, clip_norm=0.01), rounds=1).run()
    [(round, fields), (_, logits)] = [(t, f) for name, t, f in run.journals["edge-0"].events if name == "privacy"]
    assert (round, fields["of"], fields["guarantee"], fields["mechanism"]) == (1, "embeddings", guarantee, privacy)
    assert (logits["of"], logits["guarantee"]) == (
        "logits",
        "single rows of logits, once" if privacy == "clip" else "none",
    )
    for noised in (fields, logits):
        assert noised["sigma"] > 0
        assert noised["clipped"] == (1 if privacy == "clip" else 0)


def test_samples_beyond_the_largest_number_of_embeddings_are_counted(digits: Prepared, tmp_path: Path) -> None:
    run = mesh(digits, tmp_path, params=replace(QUICK, embeddings=7), rounds=1).run()
    values = [of for _, of in run.journals["edge-0"].metrics if "shared_samples" in of]
    assert [(of["shared_samples"], of["unshared_samples"]) for of in values] == [(7, run.samples["edge-0"] - 7)]


def test_profiles_set_what_is_not_given() -> None:
    paper, fast = (read_parameters(DFFKE, {"profile": name, "batch_size": 17}) for name in ("paper", "fast"))
    assert (paper.dimension, paper.width, paper.docking_epochs, paper.embeddings) == (512, 64, 100, 750)
    assert (fast.dimension, fast.batch_size, paper.batch_size) == (64, 17, 17)
    with pytest.raises(ValueError, match="profile: 'quick' is not paper or fast"):
        read_parameters(DFFKE, {"profile": "quick"})


def test_parameters_without_meaning_are_refused() -> None:
    for values in ({"steps": 5}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"epsilon": 1.5}):
        with pytest.raises(ValueError, match=next(iter(values))):
            DFFKE(**values)


def test_without_links_to_others_a_client_says_what_is_missing(digits: Prepared, tmp_path: Path) -> None:
    run = Federation(digits, star(2, "edge"), "dffke", QUICK, tmp_path, partition=FEW, rounds=1, meshed=False)
    with pytest.raises(ExceptionGroup) as caught:
        run.run()
    assert "edge-0 reaches no other client: give" in str(caught.value.exceptions[0])


SCENARIO = """
seed: 3
algorithm: {name: dffke, rounds: 2, profile: fast, dimension: 16, width: 8, first_epochs: 3, decoder_epochs: 3,
            docking_epochs: 5, exchange_epochs: 2, embeddings: 20}
data: {dataset: digits, partition: iid, samples_per_client: 40, evaluate_samples: 60}
model: small
topology: {edges: 3, devices_per_edge: 0}
links: {edge-edge: {latency: 5ms, rate: 50mbit}, edge-cloud: {latency: 20ms, rate: 20mbit}}
"""


@pytest.mark.slow
def test_the_same_seed_gives_the_same_record_with_one_worker_or_two(tmp_path: Path) -> None:
    runs = [simulate(tmp_path, SCENARIO, "--workers", workers) for workers in ("1", "2")]
    for run in runs:
        assert run.code == 0, run.errors
        assert run.summary["messages"]["logits"] == 2 * 3 * 2  # rounds, owners, peers of each
        assert set(run.summary["accuracy"]["edge"]) == {"edge-0", "edge-1", "edge-2"}
        assert run.summary["accuracy"]["global"] == pytest.approx(
            np.mean(list(run.summary["accuracy"]["edge"].values()))
        )
        assert run.summary["seconds"] > 0.5
    assert runs[0].record() == runs[1].record()
    names = [node["model"] for node in runs[0].history().plan["nodes"]]
    assert names == ["cnn", "cnn", "mlp", "lenet"]  # the cloud's is only what its time is counted in


def test_a_group_of_models_is_for_algorithms_whose_clients_may_differ() -> None:
    with pytest.raises(ScenarioError, match="small gives clients different models"):
        parse("algorithm: fedavg\nmodel: small\ntopology: {edges: 3, devices_per_edge: 0}\n", "scenario.yaml")


def test_edges_are_meshed_by_default() -> None:
    assert parse(SCENARIO.replace("edge-edge: {latency: 5ms, rate: 50mbit}, ", ""), "scenario.yaml").mesh
