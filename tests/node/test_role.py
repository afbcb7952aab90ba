"""Roles in a `MemoryNetwork` on virtual time: what algorithms may rely on. A packet takes 10 ms, a step of work 1 s."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch

from node.assignment import Assignment, Gathering, Relation, Stop, Timeouts, derive_seed
from node.errors import NodeError
from node.messaging.delivery.pair import Delay
from node.messaging.memory import MemoryNetwork
from node.messaging.wire import Message
from node.role import Role
from node.runtime.checkpoint import Checkpoint, checkpoint_path, load
from node.runtime.compute import Mode
from tests.node.assignments import Nodes
from tests.virtual import virtual

DEVICES = ["device-0", "device-1", "device-2"]
NODES = Nodes("cloud", *DEVICES)


@dataclass
class Notes:
    """A reporter that keeps what one node tells, with the time."""

    events: list[tuple[float, str, int | None, dict[str, Any]]] = field(default_factory=list)
    metrics: list[tuple[int | None, dict[str, Any]]] = field(default_factory=list)

    def event(self, name: str, *, round: int | None = None, **fields: Any) -> None:
        self.events.append((asyncio.get_running_loop().time(), name, round, fields))

    def metric(self, round: int | None, values: Mapping[str, Any]) -> None:
        self.metrics.append((round, dict(values)))

    def of(self, name: str) -> list[tuple[int | None, dict[str, Any]]]:
        return [(round, fields) for _, each, round, fields in self.events if each == name]


class Inline:
    """Compute that takes ``seconds`` of the loop's time, whatever it does."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds

    async def run(self, fn: Callable[..., Any], args: tuple[Any, ...], samples: int, mode: Mode) -> Any:
        await asyncio.sleep(self.seconds)
        return fn(*args)

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        fn(*args)


class World:
    """A cloud and its devices."""

    def __init__(self) -> None:
        self.nodes = NODES
        self.network = MemoryNetwork(lambda source, target: Delay(0.01))
        self.notes: dict[str, Notes] = {name: Notes() for name in NODES.keys}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def role(
        self, role_class: type[Role], name: str, *, work: float = 1.0, restored: Checkpoint | None = None, **values: Any
    ) -> Role:
        relations: Any = dict.fromkeys(DEVICES, "child") if name == "cloud" else {"cloud": "parent"}
        assignment = self.nodes.assignment(name, relations, **values)
        transport = self.network.transport(name, relations, timeouts=assignment.timeouts)
        return role_class(assignment, transport, Inline(work), self.notes[name], restored=restored)

    def cut(self, device: str) -> None:
        """Cut a device off from the cloud."""
        for ends in (("cloud", device), (device, "cloud")):
            self.network.cut(*ends)

    def heal(self, device: str) -> None:
        for ends in (("cloud", device), (device, "cloud")):
            self.network.restore(*ends)

    def start(self, role: Role) -> Role:
        self.tasks[role.name] = asyncio.create_task(role.perform())
        return role

    async def crash(self, role: Role) -> None:
        """End without a word."""
        self.tasks[role.name].cancel()
        await asyncio.gather(self.tasks[role.name], return_exceptions=True)

    async def over(self, *names: str) -> None:
        async with asyncio.timeout(1000):
            await asyncio.gather(*(self.tasks[name] for name in names))


@pytest.fixture
def world() -> World:
    return World()


class Cloud(Role):
    """Adds up what its devices send."""

    async def run(self) -> None:
        w = self.restored.tensors if self.restored else {"w": np.zeros(3)}
        self.seen: list[list[str]] = []
        async for t in self.rounds():
            await self.publish(self.children, "model", w, round=t)
            updates = await self.gather("update", self.children, round=t)
            self.seen.append([update.sender for update in updates])
            w = {"w": w["w"] + sum(update.tensors["w"] for update in updates)}
            self.report(round=t, scope="global", accuracy=t / 10)
        self.total = w["w"].tolist()


class Device(Role):
    """Answers each model with ones."""

    async def run(self) -> None:
        self.rounds_done: list[int | None] = []
        while True:
            model = await self.receive("model")
            await self.compute(lambda: None)
            self.rounds_done.append(model.round)
            await self.send(self.parent, "update", {"w": np.ones(3)}, round=model.round)


def start_all(world: World, **values: Any) -> tuple[Any, list[Any]]:
    devices = [world.start(world.role(Device, name)) for name in DEVICES]
    return world.start(world.role(Cloud, "cloud", **values)), devices


@virtual
async def test_rounds_go_round_and_everybody_ends(world: World) -> None:
    cloud, devices = start_all(world)
    await world.over("cloud", *DEVICES)
    assert cloud.seen == [DEVICES] * 3
    assert cloud.total == [9.0] * 3
    assert [device.rounds_done for device in devices] == [[1, 2, 3]] * 3
    assert cloud.ended_by == "rounds"
    # A round is one step of work and two packets of 10 ms.
    assert asyncio.get_running_loop().time() == pytest.approx(3 * 1.02, abs=0.5)
    phases = [(round, fields["phase"]) for round, fields in world.notes["cloud"].of("round")]
    assert phases == [(t, phase) for t in (1, 2, 3) for phase in ("start", "end")]
    assert [fields["peer"] for _, fields in world.notes["device-0"].of("joined")] == ["cloud"]
    assert world.notes["device-0"].of("lost") == []


@virtual
async def test_who_a_role_is(world: World) -> None:
    cloud, device = world.role(Cloud, "cloud"), world.role(Device, "device-1")
    assert (cloud.name, cloud.tier, cloud.parent, cloud.children) == ("cloud", "cloud", None, tuple(DEVICES))
    assert (device.name, device.tier, device.parent, device.children) == ("device-1", "device", "cloud", ())
    expected = np.random.default_rng(derive_seed(1, "cloud", "role")).random()
    assert cloud.rng.random() == expected


@virtual
async def test_tensors_of_torch_are_sent_and_reported(world: World) -> None:
    class Torch(Role):
        async def run(self) -> None:
            self.report(round=1, loss=torch.tensor(0.5))  # type: ignore[arg-type]
            await self.publish("device-0", "model", {"w": torch.arange(3)})  # type: ignore[dict-item]
            await asyncio.sleep(60)
            self.report(round=1, loss=torch.ones(2))  # type: ignore[arg-type]

    received: list[Any] = []

    class Receives(Role):
        async def run(self) -> None:
            received.append((await self.receive("model")).tensors["w"].tolist())

    world.start(world.role(Torch, "cloud"))
    world.start(world.role(Receives, "device-0"))
    with pytest.raises(NodeError, match=r"report: loss.*Tensor"):
        await world.over("cloud")
    await world.over("device-0")
    assert received == [[0, 1, 2]]


@virtual
async def test_a_reported_accuracy_ends_the_run(world: World) -> None:
    cloud, _ = start_all(world, stop=Stop(rounds=9, accuracy=0.2))
    await world.over("cloud", *DEVICES)
    assert len(cloud.seen) == 2
    assert cloud.ended_by == "accuracy"
    assert world.notes["cloud"].metrics == [
        (1, {"scope": "global", "accuracy": 0.1}),
        (2, {"scope": "global", "accuracy": 0.2}),
    ]


@virtual
async def test_numbers_of_numpy_are_numbers(world: World) -> None:
    cloud: Any = world.role(Cloud, "cloud", stop=Stop(rounds=9, accuracy=0.5))
    cloud.report(round=1, scope="global", accuracy=np.float32(0.5), loss=np.float32(np.nan))
    assert cloud.ended_by == "accuracy"
    assert [fields["what"] for _, fields in world.notes["cloud"].of("not_finite")] == ["loss"]


@virtual
async def test_only_global_accuracy_ends_it(world: World) -> None:
    class Own(Cloud):
        def report(self, *, round: int | None = None, **values: float | str) -> None:
            super().report(round=round, **values | {"scope": "own"})

    for name in DEVICES:
        world.start(world.role(Device, name))
    cloud: Any = world.start(world.role(Own, "cloud", stop=Stop(rounds=3, accuracy=0.0)))
    await world.over("cloud")
    assert len(cloud.seen) == 3


@virtual
async def test_a_lost_device_is_not_waited_for_beyond_the_quorum(world: World) -> None:
    cloud, _ = start_all(world, gathering=Gathering(quorum=0.5, deadline=100.0))
    await asyncio.sleep(0.5)
    world.cut("device-2")
    await world.over("cloud")
    assert cloud.seen == [DEVICES[:2]] * 3
    assert asyncio.get_running_loop().time() < 20  # lost_after, not the deadline
    ((_, lost),) = world.notes["cloud"].of("lost")
    assert lost["peer"] == "device-2"


@virtual
async def test_no_one_waits_at_the_start_for_a_device_that_is_planned_to_come_late(world: World) -> None:
    class Late(Nodes):
        def assignment(self, node: str, peers: Mapping[str, Relation], **values: Any) -> Assignment:
            usual = super().assignment(node, peers, **values)
            return replace(usual, peers=tuple(replace(each, late=each.name == "device-2") for each in usual.peers))

    world.nodes = Late(*NODES.keys)
    for name in DEVICES[:2]:
        world.start(world.role(Device, name))
    cloud: Any = world.start(world.role(Cloud, "cloud", stop=Stop(rounds=6), gathering=Gathering(quorum=0.5)))
    await asyncio.sleep(2.5)
    world.start(world.role(Device, "device-2"))
    await world.over("cloud")
    assert cloud.seen[0] == DEVICES[:2]
    assert cloud.seen[-1] == DEVICES
    assert first_round(world) < 0.5  # and not lost_after, 8 s


def first_round(world: World) -> float:
    """When the cloud began its first round."""
    return next(t for t, name, _, _ in world.notes["cloud"].events if name == "round")


@virtual
async def test_a_device_that_comes_back_gets_the_model_of_the_round(world: World) -> None:
    cloud, devices = start_all(world, gathering=Gathering(quorum=1.0, deadline=100.0))
    await asyncio.sleep(0.5)
    world.cut("device-2")
    await asyncio.sleep(20)
    world.heal("device-2")
    await world.over("cloud", *DEVICES)
    assert cloud.seen == [DEVICES] * 3
    assert devices[2].rounds_done == [1, 1, 2, 3]  # its first answer was lost with the link
    assert devices[0].rounds_done == [1, 2, 3]


@virtual
async def test_a_restarted_device_gets_the_model_of_the_round(world: World) -> None:
    cloud, devices = start_all(world, gathering=Gathering(quorum=1.0, deadline=100.0))
    await asyncio.sleep(1.5)
    await world.crash(devices[1])
    again: Any = world.start(world.role(Device, "device-1"))
    await world.over("cloud", *DEVICES)
    assert cloud.seen == [DEVICES] * 3
    assert again.rounds_done == [2, 3]


@virtual
async def test_a_device_that_joins_late_takes_part_from_then_on(world: World) -> None:
    for name in DEVICES[:2]:
        world.start(world.role(Device, name))
    rules = Gathering(quorum=0.5, deadline=100.0)
    cloud: Any = world.start(
        world.role(Cloud, "cloud", gathering=rules, stop=Stop(rounds=4), timeouts=Timeouts(lost_after=2.0))
    )
    await asyncio.sleep(3.5)  # the cloud waited 2 s for it, and is in its second round
    world.start(world.role(Device, "device-2"))
    await world.over("cloud", *DEVICES)
    assert cloud.seen[0] == DEVICES[:2]
    assert cloud.seen[2:] == [DEVICES] * 2


@virtual
async def test_below_the_quorum_a_round_is_abandoned_at_the_deadline(world: World) -> None:
    world.start(world.role(Device, "device-0"))
    cloud: Any = world.start(world.role(Cloud, "cloud", gathering=Gathering(quorum=0.6, deadline=30.0)))
    await world.over("cloud")
    assert cloud.seen == [[]] * 3
    assert asyncio.get_running_loop().time() == pytest.approx(8 + 3 * 30, abs=1)  # lost_after, then the deadlines
    expected = {"kind": "update", "have": 1, "need": 2, "peers": ["device-0"]}
    assert world.notes["cloud"].of("round_abandoned") == [(t, expected) for t in (1, 2, 3)]


class Diverged(Device):
    """Answers with what is not finite, and says so."""

    async def run(self) -> None:
        while True:
            model = await self.receive("model")
            self.report(round=model.round, scope="train", loss=math.nan, accuracy=0.5)
            await self.send(self.parent, "update", {"w": np.array([1.0, np.inf, 0.0])}, round=model.round)


@virtual
async def test_what_is_not_finite_is_reported_and_left_out(world: World) -> None:
    roles = dict(zip(DEVICES, (Device, Diverged, Device), strict=True))
    for name, kind in roles.items():
        world.start(world.role(kind, name))
    cloud: Any = world.start(world.role(Cloud, "cloud", gathering=Gathering(quorum=0.5, deadline=30.0)))
    await world.over("cloud", *DEVICES)
    assert cloud.seen == [["device-0", "device-2"]] * 3
    assert cloud.total == [6.0] * 3
    assert asyncio.get_running_loop().time() < 10  # nobody waited for another answer of device-1
    refused = {"peer": "device-1", "kind": "update", "what": "w"}
    assert world.notes["cloud"].of("not_finite") == [(t, refused) for t in (1, 2, 3)]
    _, first = inspect.getsourcelines(Diverged.run)  # a module outside of `node`, as a plug-in is
    own = [
        {"what": "loss", "scope": "train", "at": f"test_role.py:{first + 3}"},
        {"what": "w", "kind": "update", "at": f"test_role.py:{first + 4}"},
    ]
    assert world.notes["device-1"].of("not_finite") == [(t, each) for t in (1, 2, 3) for each in own]
    assert all(math.isnan(values["loss"]) for _, values in world.notes["device-1"].metrics)


@virtual
async def test_rounds_report_how_many_gatherings_came_to_nothing(world: World) -> None:
    for name in DEVICES:
        world.start(world.role(Diverged if name == "device-0" else Device, name))
    world.start(world.role(Cloud, "cloud", gathering=Gathering(quorum=1.0, deadline=30.0)))
    await world.over("cloud", *DEVICES)
    ends = [fields for _, fields in world.notes["cloud"].of("round") if fields["phase"] == "end"]
    assert ends == [{"phase": "end", "gatherings": 1, "abandoned": 1}] * 3
    abandoned = {"kind": "update", "have": 2, "need": 3, "peers": ["device-1", "device-2"]}
    assert world.notes["cloud"].of("round_abandoned")[0] == (1, abandoned)


@virtual
async def test_a_round_with_no_one_left_to_ask_is_abandoned(world: World) -> None:
    _, devices = start_all(world)
    await asyncio.sleep(1.5)  # in the second round
    for device in devices:
        device.stop(leaving=True)
    await world.over("cloud", *DEVICES)
    assert [round for round, _ in world.notes["cloud"].of("round_abandoned")] == [2, 3]


class Listener(Role):
    """Keeps what the devices say."""

    async def run(self) -> None:
        self.heard = [(await self.receive("word")).sender for _ in DEVICES[1:]]


class Speaker(Role):
    async def run(self) -> None:
        word = np.array([np.nan if self.name == "device-0" else 0.0])
        await self.send("cloud", "word", {"w": word})


@virtual
async def test_who_receives_leaves_out_what_is_not_finite(world: World) -> None:
    for name in DEVICES:
        world.start(world.role(Speaker, name))
    cloud: Any = world.start(world.role(Listener, "cloud"))
    await world.over("cloud")
    assert sorted(cloud.heard) == DEVICES[1:]
    assert world.notes["cloud"].of("not_finite") == [(None, {"peer": "device-0", "kind": "word", "what": "w"})]


@virtual
async def test_a_parents_message_is_received_whatever_it_holds(world: World) -> None:
    _, devices = start_all(world, restored=Checkpoint(1, {"w": np.full(3, np.nan)}, {}))
    await world.over("cloud", *DEVICES)
    assert [device.rounds_done for device in devices] == [[2, 3]] * 3
    told = world.notes["cloud"].of("not_finite")
    assert [(t, {key: fields[key] for key in ("what", "kind")}) for t, fields in told] == [
        (t, {"what": "w", "kind": "model"}) for t in (2, 3)
    ]


@virtual
async def test_a_node_that_leaves_is_not_waited_for_and_ends_no_one(world: World) -> None:
    cloud, devices = start_all(world)
    await asyncio.sleep(1.5)
    devices[0].stop(leaving=True)
    await world.over("cloud", *DEVICES)
    assert cloud.seen == [DEVICES, DEVICES[1:], DEVICES[1:]]
    assert world.notes["cloud"].of("left") == [(None, {"peer": "device-0"})]
    assert world.notes["cloud"].of("round_abandoned") == []


@pytest.mark.parametrize(("late", "seen"), [("discard", [[], [], []]), ("keep", [[], DEVICES, []])])
@virtual
async def test_late_answers(world: World, late: Literal["discard", "keep"], seen: list[list[str]]) -> None:
    for name in DEVICES:  # answers to round 1 come in round 2, those to round 2 after round 3
        world.start(world.role(Device, name, work=1.5))
    cloud: Any = world.start(world.role(Cloud, "cloud", gathering=Gathering(deadline=1.0, late=late)))
    await world.over("cloud")
    assert cloud.seen == seen
    told = world.notes["cloud"].of("late")
    assert {"peer": "device-0", "kind": "update"} in [fields for _, fields in told]


@virtual
async def test_a_slow_device_skips_to_the_newest_model(world: World) -> None:
    for name in DEVICES:
        world.start(world.role(Device, name, work=9.0 if name == "device-2" else 1.0))
    rules = Gathering(quorum=0.5, deadline=2.0)
    cloud = world.role(Cloud, "cloud", gathering=rules, stop=Stop(rounds=8))
    world.start(cloud)
    await world.over("cloud", *DEVICES)
    skipped = [round for round, _ in world.notes["device-2"].of("superseded")]
    assert skipped == [2, 3, 4]


@virtual
async def test_a_coordinator_continues_after_its_checkpoint(world: World, tmp_path: Path) -> None:
    class Careful(Cloud):
        async def run(self) -> None:
            self.first = self.restored.round if self.restored else 0
            async for t in self.rounds():
                await self.publish(self.children, "model", {}, round=t)
                await self.gather("update", self.children, round=t)
                await self.checkpoint(t, {"w": np.full(2, t)}, note="x")

    for name in DEVICES:
        world.start(world.role(Device, name))
    first = world.start(world.role(Careful, "cloud", checkpoint_directory=str(tmp_path)))
    await asyncio.sleep(2.5)
    await world.crash(first)
    restored = load(checkpoint_path(tmp_path, "cloud"))
    assert restored is not None
    assert (restored.round, restored.fields, restored.tensors["w"].tolist()) == (2, {"note": "x"}, [2, 2])
    world.start(world.role(Careful, "cloud", restored=restored))
    await world.over("cloud", *DEVICES)
    assert world.notes["cloud"].of("resumed") == [(2, {})]
    starts = [round for round, fields in world.notes["cloud"].of("round") if fields["phase"] == "start"]
    assert starts == [1, 2, 3, 3]


@virtual
async def test_who_is_restored_beyond_the_last_round_is_done(world: World) -> None:
    for name in DEVICES:
        world.start(world.role(Device, name))
    world.start(world.role(Cloud, "cloud", restored=Checkpoint(10**12, {"w": np.zeros(1)}, {})))
    await world.over("cloud", *DEVICES)
    assert world.notes["cloud"].of("round") == []


@virtual
async def test_a_slow_disk_holds_up_the_next_checkpoint_and_the_end_but_not_the_rounds(
    world: World, tmp_path: Path
) -> None:
    """Rounds of 1 s, a disk that takes 5: checkpoints are begun at 1, 6 and 11 s."""

    class Disk(Inline):
        async def aside(self, fn: Callable[..., None], *args: Any) -> None:
            await asyncio.sleep(5)
            fn(*args)

    class Careful(Cloud):
        async def run(self) -> None:
            self.ends: list[float] = []
            async for t in self.rounds():
                w = await self.compute(lambda t=t: np.full(2, t))
                self.ends.append(asyncio.get_running_loop().time())
                await self.checkpoint(t, {"w": w})
                w += 1

    role: Any = world.role(Careful, "cloud", checkpoint_directory=str(tmp_path), stop=Stop(rounds=3))
    role._compute = Disk()
    began = asyncio.get_running_loop().time()
    for name in DEVICES:
        world.start(world.role(Device, name))
    world.start(role)
    await world.over("cloud")
    waited = role.ends[0] - 1.0 - began  # for the devices
    assert [end - began - waited for end in role.ends] == pytest.approx([1.0, 2.0, 7.0])
    assert asyncio.get_running_loop().time() - began - waited == pytest.approx(16.0, abs=0.1)
    kept = load(checkpoint_path(tmp_path, "cloud"))
    assert kept is not None
    assert (kept.round, kept.tensors["w"].tolist()) == (3, [3, 3])


@virtual
async def test_a_published_tensor_may_be_changed_and_still_goes_to_who_comes_later(world: World) -> None:
    class Publisher(Role):
        async def run(self) -> None:
            w = np.zeros(2)
            await self.publish("device-0", "model", {"w": w})
            w += 1
            await self.gather("update", ["device-0"], round=1)

    class Reader(Role):
        async def run(self) -> None:
            self.got = (await self.receive("model")).tensors["w"].tolist()
            await self.send("cloud", "update", round=1)

    world.start(world.role(Publisher, "cloud"))
    await asyncio.sleep(10)
    reader: Any = world.start(world.role(Reader, "device-0"))
    await world.over("cloud", "device-0")
    assert reader.got == [0, 0]


async def got_at_once_and_late(world: World, publisher: type[Role], reader: type[Role]) -> tuple[Any, Any]:
    """``got`` of a reader that is there when the cloud publishes, and of one that comes ten seconds later."""
    here: Any = world.start(world.role(reader, "device-0"))
    world.start(world.role(publisher, "cloud"))
    await asyncio.sleep(10)
    late: Any = world.start(world.role(reader, "device-1"))
    await world.over("cloud", "device-0", "device-1")
    return here.got, late.got


@virtual
async def test_each_peer_can_be_given_tensors_of_its_own_at_once_or_when_it_comes(world: World) -> None:
    class Publisher(Role):
        async def run(self) -> None:
            tensors = {name: {"w": np.full(1, place)} for place, name in enumerate(DEVICES[:2])}
            await self.publish_each("model", tensors, round=1)
            tensors["device-1"]["w"] += 5
            await self.gather("update", ["device-1"], round=1)

    class Reader(Role):
        async def run(self) -> None:
            self.got = (await self.receive("model")).tensors["w"].tolist()
            await self.send("cloud", "update", round=1)

    assert await got_at_once_and_late(world, Publisher, Reader) == ([0], [1])


@virtual
async def test_a_withdrawn_message_does_not_go_to_who_comes_later(world: World) -> None:
    class Publisher(Role):
        async def run(self) -> None:
            await self.publish(DEVICES[:2], "layer")
            await self.publish(DEVICES[:2], "model", round=1)
            self.withdraw("layer")
            await self.gather("update", ["device-1"], round=1)

    class Reader(Role):
        async def run(self) -> None:
            self.got = [(await self.receive("layer", "model")).kind]
            if self.name == "device-0":
                self.got.append((await self.receive("layer", "model")).kind)
            await self.send("cloud", "update", round=1)

    assert await got_at_once_and_late(world, Publisher, Reader) == (["layer", "model"], ["model"])


@virtual
async def test_asked_to_stop_a_role_ends_wherever_it_waits(world: World) -> None:
    class Waiter(Role):
        async def run(self) -> None:
            if self.name == "device-0":
                await self.receive("model")
            elif self.name == "device-1":
                await self.gather("update", ["cloud"], round=1)
            else:
                await self.compute(lambda: None)
            raise AssertionError("the wait should not have ended well")

    roles = [world.start(world.role(Waiter, name, work=1e6)) for name in DEVICES]
    await asyncio.sleep(20)
    for role in roles:
        role.stop()
    await world.over(*DEVICES)
    assert asyncio.get_running_loop().time() < 21
    assert {role.ended_by for role in roles} == {"stopped"}


@virtual
async def test_what_a_role_does_wrong_ends_it_with_its_error(world: World) -> None:
    class Wrong(Role):
        sent: ClassVar[list[Any]]

        async def run(self) -> None:
            await self.send(*self.sent)

    for *Wrong.sent, error in (
        ("device-0", "model", {"w": np.array(["text"])}, "cannot travel"),
        ("device-0", "model", {"w": torch.ones(2, requires_grad=True)}, "use value.detach"),
        ("device-0", "model", {"w": torch.ones(2, dtype=torch.bfloat16)}, "'w' is a Tensor of type torch.bfloat16"),
        ("device-0", "finish", "kind 'finish'"),
        (None, "update", "cloud has no parent"),
    ):
        world.start(world.role(Wrong, "cloud"))
        with pytest.raises(NodeError, match=error):
            await world.over("cloud")


@virtual
async def test_only_the_parent_ends_a_role(world: World) -> None:
    device = world.start(world.role(Device, "device-0"))
    stranger = world.network.transport("device-1", ["device-0"])
    await stranger.start()
    await stranger.send(["device-0"], Message("finish", "device-1"))
    await asyncio.sleep(60)
    assert not world.tasks["device-0"].done()
    device.stop()
    await world.over("device-0")


class Asks(Cloud):
    """Works for 5 s, and tells whoever asks meanwhile how far it is."""

    async def run(self) -> None:
        self.done = 0
        async with self.beside(self.tell()):
            for _ in range(5):
                await self.compute(lambda: None)
                self.done += 1
            await self.send(self.children, "over")
            await asyncio.sleep(1)

    async def tell(self) -> None:
        while True:
            question = await self.receive("question")
            await self.send(question.sender, "answer", done=self.done)


class Asker(Role):
    async def run(self) -> None:
        await asyncio.sleep(2.5)
        await self.send(self.parent, "question")
        self.answer = (await self.receive("answer")).fields["done"]
        self.answered_at = asyncio.get_running_loop().time()
        await self.receive("over")


@virtual
async def test_a_service_answers_while_the_role_is_busy(world: World) -> None:
    world.start(world.role(Asks, "cloud"))
    asker: Any = world.start(world.role(Asker, "device-0"))
    for name in DEVICES[1:]:
        world.start(world.role(Device, name))
    await world.over("cloud", *DEVICES)
    assert asker.answer == 2
    assert asker.answered_at < 3
    assert not [task for task in asyncio.all_tasks() if "tell" in str(task)]  # it ends with the body


@virtual
async def test_what_goes_wrong_in_a_service_is_raised_where_the_role_waits(world: World) -> None:
    class Fails(Asks):
        async def tell(self) -> None:
            await self.receive("question")
            raise ValueError("no answer")

        async def run(self) -> None:
            async with self.beside(self.tell()):
                await self.receive("nothing")

    world.start(world.role(Fails, "cloud"))
    world.start(world.role(Asker, "device-0"))
    for name in DEVICES[1:]:
        world.start(world.role(Device, name))
    with pytest.raises(ValueError, match="no answer"):
        await world.over("cloud")
    for name in DEVICES:
        world.tasks[name].cancel()


@virtual
async def test_a_stop_ends_role_and_service(world: World) -> None:
    cloud: Any = world.start(world.role(Asks, "cloud", work=100.0))
    for name in DEVICES:
        world.start(world.role(Device, name))
    await asyncio.sleep(2)
    cloud.stop()
    await world.over("cloud", *DEVICES)
    assert (cloud.done, cloud.ended_by) == (0, "stopped")


@pytest.mark.parametrize(
    ("quorum", "deadline", "seen", "took"),
    [(0.0, 2.0, ["device-0"], 2.0), (0.0, 0.5, [], 0.5), (1.0, 2.0, [], 2.0), (0.0, math.inf, DEVICES, 50.0)],
)
@virtual
async def test_a_gathering_with_a_rule_of_its_own(
    world: World, quorum: float, deadline: float, seen: list[str], took: float
) -> None:
    """device-0 answers after 1 s, the others after 50 s; the scenario's rule, all within 10 s, does not count."""

    class Own(Cloud):
        async def run(self) -> None:
            await self.publish(self.children, "model", {"w": np.zeros(3)}, round=1)
            began = asyncio.get_running_loop().time()
            answers = await self.gather("update", self.children, round=1, quorum=quorum, deadline=deadline)
            self.got = [answer.sender for answer in answers]
            self.took = asyncio.get_running_loop().time() - began

    for name in DEVICES:
        world.start(world.role(Device, name, work=1.0 if name == "device-0" else 50.0))
    cloud: Any = world.start(world.role(Own, "cloud", gathering=Gathering(deadline=10.0)))
    await world.over("cloud")
    assert cloud.got == seen
    assert cloud.took == pytest.approx(took, abs=0.1)
    assert bool(world.notes["cloud"].of("round_abandoned")) == (
        quorum > 0
    )  # who wants whoever answers abandons nothing


@virtual
async def test_tensors_that_are_handed_over_cannot_be_changed_any_more(world: World) -> None:
    class HandsOver(Device):
        async def run(self) -> None:
            assert self.parent is not None
            await self.receive("model")
            copied, owned = np.ones(3), np.ones(3)
            await self.send(self.parent, "other", {"w": copied}, round=1)
            copied += 1
            await self.send(self.parent, "update", {"w": owned}, owned=True, round=1)
            with pytest.raises(ValueError, match="read-only"):
                owned += 1

    class Reads(Cloud):
        async def run(self) -> None:
            await self.publish(self.children, "model", {"w": np.zeros(3)}, round=1)
            self.got = [(await self.receive(kind)).tensors["w"].tolist() for kind in ("other", "update")]

    world.start(world.role(HandsOver, DEVICES[0]))
    cloud: Any = world.start(world.role(Reads, "cloud"))
    await world.over("cloud", DEVICES[0])
    assert cloud.got == [[1, 1, 1], [1, 1, 1]]


@virtual
async def test_a_gathering_without_a_deadline_waits_for_those_who_are_there(world: World) -> None:
    class Own(Cloud):
        async def run(self) -> None:
            self.there = self.present
            got = await self.gather("update", self.children, round=1, quorum=0, deadline=math.inf)
            self.got, self.left = [each.sender for each in got], self.present

    cloud: Any = world.start(world.role(Own, "cloud"))
    devices = [world.start(world.role(Device, name)) for name in DEVICES]
    await asyncio.sleep(1)
    devices[0].stop(leaving=True)
    world.cut("device-1")
    world.cut("device-2")
    await world.over("cloud")
    assert cloud.there == frozenset(DEVICES)
    assert (cloud.got, cloud.left) == ([], frozenset())
    for name in DEVICES:
        world.tasks[name].cancel()


@virtual
async def test_seeds_that_nodes_share_and_notes(world: World) -> None:
    cloud, device = world.role(Cloud, "cloud"), world.role(Device, "device-1")
    assert cloud.shared_seed("labels") == device.shared_seed("labels") != cloud.shared_seed("noise")
    assert cloud.seed("labels", "1") != device.seed("labels", "1") != device.seed("labels", "2")
    cloud.note("peers", round=3, shares={"edge-1": 0.5})
    assert world.notes["cloud"].of("peers") == [(3, {"shares": {"edge-1": 0.5}})]
    with pytest.raises(NodeError, match=r"cloud: every event.*'type'.*'merged'"):
        cloud.note("merged", type="mean")
