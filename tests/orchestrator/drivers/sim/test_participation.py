"""Algorithms with mistakes, simulated: whose updates did not count fails a check, with its name and the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrator.drivers.sim.harness import Simulated, simulate
from tests.texts import containing

PLUGIN = """
import edgebed
import numpy as np
class Cloud(edgebed.Role):
    async def run(self):
        w = self.learner.initial()
        async for t in self.rounds():
            await self.publish(self.children, "model", w, round=t)
            GATHER
            w = await edgebed.average(self, updates, w)
            await edgebed.evaluate(self, w, t)
class Device(edgebed.Role):
    async def run(self):
        while True:
            model = await self.receive("model", sender=self.parent)
            result = await edgebed.train(self, model.tensors, model.round, self.params)
            w, fields = result.weights, {"round": model.round, "samples": result.samples}
            SEND
ROLES = {"cloud": Cloud, "device": Device}
PLUGIN = edgebed.Plugin(algorithms=[edgebed.Algorithm("mine", params=edgebed.LocalTraining, summary="x", flat=True)])
"""
GATHER = 'updates = await self.gather("update", self.children, round=t)'
SEND = 'await self.send(self.parent, "update", w, **fields)'
FIRST_ONLY = 'if self.name == "device-0": '
SCENARIO = """
plugins: [mine.py]
algorithm: {name: mine, rounds: 2, learning_rate: 0.1}
data: {dataset: digits, samples_per_client: 40}
model: {name: mlp, hidden: 16}
topology: {devices: 3}
"""


def mine(tmp_path: Path, send: str, gather: str = GATHER, scenario: str = "") -> Simulated:
    (tmp_path / "mine.py").write_text(PLUGIN.replace("SEND", send).replace("GATHER", gather))
    return simulate(tmp_path, SCENARIO + scenario)


def participation(run: Simulated) -> tuple[str, str]:
    return next((each["verdict"], each["detail"]) for each in run.summary["checks"] if each["name"] == "participation")


@pytest.mark.parametrize(
    "send",
    [
        SEND,
        "fields['samples'] = np.int64(40); " + SEND,
        "fields['extra'] = [1, 2, {'a': 3}]; " + SEND,
        "w = {name: np.asfortranarray(each) for name, each in w.items()}; " + SEND,
        'await self.send(self.parent, "remark", {}, round=model.round); ' + SEND,
    ],
)
def test_what_works_passes(tmp_path: Path, send: str) -> None:
    verdict, detail = participation(mine(tmp_path, send))
    assert verdict == "pass"
    assert detail.startswith("all of 3 clients contributed")
    assert ("kind 'remark' arrived at cloud" in detail) == ("remark" in send)


@pytest.mark.parametrize(
    ("send", "reason"),
    [
        ("del fields['samples']; ", "2 times: message 'update' has no"),
        (
            "w = {name: each[..., :1] for name, each in w.items()}; ",
            "refused 2 times: message 'update' does",
        ),
        ("w = {name: each * np.float32('nan') for name, each in w.items()}; ", "left out 2 times: NaN"),
    ],
)
def test_one_client_with_refused_updates_fails(tmp_path: Path, send: str, reason: str) -> None:
    run = mine(tmp_path, f"{FIRST_ONLY}{send}\n            {SEND}")
    verdict, detail = participation(run)
    assert run.code == 3
    assert verdict == "fail"
    assert detail.startswith("1 of 3 clients contributed to")
    assert reason in detail


def test_a_round_averaged_from_nothing_is_abandoned(tmp_path: Path) -> None:
    run = mine(tmp_path, "del fields['round']; " + SEND)
    verdict, detail = participation(run)
    assert verdict == "fail"
    assert detail.startswith("3 of 3 clients contributed to")
    (learned,) = (each["detail"] for each in run.summary["checks"] if each["name"] == "learned")
    assert learned == containing("rounds", "abandoned", "answers: 2 of 2")


@pytest.mark.parametrize(
    ("send", "scenario", "verdict", "reason"),
    [
        ("pass", "", "fail", "no update by the automatic deadline of 11 s, 2 times"),
        ("pass", "gathering: {deadline: 3s}", "unknown", "no update by the deadline of 3 s, 2 times"),
        ('await self.send(self.parent, "updates", w, **fields)', "", "fail", "waited for no messages of kind"),
    ],
)
def test_one_client_that_does_not_answer(tmp_path: Path, send: str, scenario: str, verdict: str, reason: str) -> None:
    run = mine(tmp_path, f"{FIRST_ONLY}{send}\n            else: {SEND}", scenario=scenario)
    found = participation(run)
    assert found[0] == verdict
    assert "contributed to no round. device-0" in found[1]
    assert reason in found[1]


def test_a_server_that_receives_one_update_after_another(tmp_path: Path) -> None:
    """The first client's updates are of another kind; the server waits for no client in particular."""
    send = f'{FIRST_ONLY}await self.send(self.parent, "other", w, **fields)\n            else: {SEND}'
    verdict, detail = participation(mine(tmp_path, send, 'updates = [await self.receive("update")]'))
    assert verdict == "fail"
    assert "device-0: cloud waited for no messages" in detail


def test_a_client_of_a_population_with_a_refused_update(tmp_path: Path) -> None:
    """Of ten clients four take part in each of two rounds; updates of those with even numbers have another shape."""
    plugin = PLUGIN.replace("flat=True", "flat=True, population=True")
    spoil = "w = w if int(self.name.rsplit('-', 1)[1]) % 2 else {n: each[..., :1] for n, each in w.items()}; "
    (tmp_path / "mine.py").write_text(plugin.replace("SEND", spoil + SEND).replace("GATHER", GATHER))
    scenario = SCENARIO.replace("devices: 3", "population: 10, selected: 4")
    run = simulate(tmp_path, scenario)
    verdict, detail = participation(run)
    assert verdict == "fail"
    assert "10 clients contributed to no round." in detail
    assert "refused 1 time: message 'update' does" in detail
    outcomes = run.summary["population"]["outcomes"]
    assert outcomes["counted"] + outcomes["unused"] == 8
    assert outcomes["unused"] > 0


def test_a_device_that_was_down_all_the_time_is_no_fault(tmp_path: Path) -> None:
    run = mine(tmp_path, SEND, scenario="faults: [{at: 0s, node: device-0, action: crash}]")
    assert participation(run) == ("pass", containing("2 of 3 clients contributed; 1 was away"))
