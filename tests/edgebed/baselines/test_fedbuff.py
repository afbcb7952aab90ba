from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebed import Message, State
from edgebed.baselines.fedbuff import Client, FedBuff, difference, scaling, stepped
from edgebed.testing import Federation, federation, star
from node.assignment import Gathering
from tests.texts import containing

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}


def run(folder: Path, clients: int = 4, **more: Any) -> Federation:
    folder.mkdir(exist_ok=True)
    params = {**LOCAL, **more.pop("params", {})}
    return federation(folder, "edgebed.baselines.fedbuff", "fedbuff", star(clients), params=params, **more)


def test_scaling_worked_example() -> None:
    assert [scaling(tau, FedBuff()) for tau in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])
    assert scaling(8, FedBuff(staleness="constant")) == 1


def test_a_step_worked_example() -> None:
    """w = [1, 2]; Δ = [1, 0] with s = 1 and [0, 4] with s = ½; η_g = 2, K = 2: w - (2 / 2) [1, 2] = [0, 0]. Statistics
    take the mean, (2 + 4) / 2, whatever they were."""
    w = {"w": np.array([1, 2], np.float32), "variance": np.array([9], np.float32)}
    first = {"w": np.array([1, 0], np.float32), "variance": np.array([2], np.float32)}
    second = {"w": np.array([0, 4], np.float32), "variance": np.array([4], np.float32)}
    found = stepped(w, [first, second], [1.0, 0.5], 2.0, ("w",))
    assert found["w"].tolist() == [0.0, 0.0]
    assert found["w"].dtype == np.float32
    assert found["variance"].tolist() == [3.0]


def test_a_difference_worked_example() -> None:
    before = {"w": np.array([1.5], np.float32), "variance": np.array([3], np.float32)}
    found = difference(before, {"w": np.array([1.0], np.float32), "variance": np.array([4], np.float32)}, ("w",))
    assert (found["w"].tolist(), found["variance"].tolist()) == ([0.5], [4.0])


def test_a_buffer_of_all_clients_is_fedavg(tmp_path: Path) -> None:
    """Whoever is slow: each version waits for everybody, so nobody is stale."""
    slow = {"device-2": 5.0}
    buffered = run(tmp_path / "buffered", params={"buffer": 4}, slow=slow).run()
    assert set(buffered.journals["cloud"].series("updates", "staleness").values()) == {0.0}
    parts = buffered.partition
    avg = Federation(buffered.data, star(4), "fedavg", FedBuff(**LOCAL), tmp_path / "avg", partition=parts).run()
    assert buffered.state("cloud").keys() == avg.state("cloud").keys()
    for name, values in avg.state("cloud").items():
        np.testing.assert_allclose(buffered.state("cloud")[name], values, atol=1e-6)


def test_slow_clients_are_stale(tmp_path: Path) -> None:
    """Three fast clients fill three buffers of two in 186 ms, and begin the fourth. The slow one ends it after 242."""
    params = {"buffer": 2, "evaluate_samples": 1}
    journal = run(tmp_path, params=params, rounds=9, slow={"device-3": 4.0}).run().journals["cloud"]
    stale = [fields["staleness"] for name, _, fields in journal.events if name == "updates"]
    assert all(len(each) == 2 for each in stale)
    assert next(each["device-3"] for each in stale if "device-3" in each) == 3
    assert journal.series("updates", "staleness_highest")[1] == 0
    assert list(journal.series("global")) == list(range(1, 10))


def test_the_others_continue_without_a_client(tmp_path: Path) -> None:
    """A training takes 1.2 s. For 20 s two clients fill the buffer of two."""
    slow, cuts = dict.fromkeys(star(4), 20.0), {("cloud", "device-1"): (0.1, 20.0)}
    params = {"buffer": 2, "evaluate_every": 100}
    found = run(tmp_path, params=params, rounds=32, slow=slow, cuts=cuts, crash={"device-0": (0.1, 20.0)}).run()
    taken = [set(fields["staleness"]) for name, _, fields in found.journals["cloud"].events if name == "updates"]
    assert taken[3:15] == [{"device-2", "device-3"}] * 12
    for client in star(4).keys() - {"cloud"}:
        assert sum(client in each for each in taken[18:]) > 5


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize(("sender", "kind"), [("device-1", "update"), ("cloud", "model")])
def test_a_lost_message_does_not_keep_a_worker_away(tmp_path: Path, sender: str, kind: str, place: int) -> None:
    """After the deadline it asks for a model. A training takes 1.2 s; some 15 versions are made before the deadline of
    20 s."""
    lost = Lost(sender, kind, place)
    more: dict[str, Any] = {"slow": dict.fromkeys(star(3), 20.0), "gathering": Gathering(deadline=20)}
    found = run(tmp_path, 3, params={"buffer": 2, "evaluate_every": 100}, rounds=60, fate=lost.fate, **more).run()
    taken = [set(fields["staleness"]) for name, _, fields in found.journals["cloud"].events if name == "updates"]
    for client in ("device-0", "device-1", "device-2"):
        assert sum(client in each for each in taken[-20:]) > 8


@dataclass
class Lost:
    """Loses the message of the ``sender`` and ``kind`` with this ``place`` among those with tensors."""

    sender: str
    kind: str
    place: int

    def fate(self, message: Message) -> Sequence[float]:
        if (message.sender, message.kind) == (self.sender, self.kind) and message.tensors:
            self.place -= 1
            if self.place == 0:
                return ()
        return (0.0,)


@pytest.mark.parametrize("algorithm", ["fedbuff", "fedasync"])
def test_without_a_finite_update_the_run_ends_with_the_reason(tmp_path: Path, algorithm: str) -> None:
    params = {**LOCAL, "learning_rate": 1e30}
    run = federation(tmp_path, f"edgebed.baselines.{algorithm}", algorithm, star(2), params=params)
    with pytest.raises(ExceptionGroup) as caught:
        run.run()
    (error,) = caught.value.exceptions
    assert str(error) == containing("can make version 1", "device-0")


def test_a_buffer_that_cannot_fill_ends_the_run_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third device sends values that are not finite, and the buffer needs it."""

    def spoiled(self: Client, x: State, trained: State) -> State:
        factor = math.nan if self.name == "device-2" else 1.0
        return {name: np.asarray(values * factor, values.dtype) for name, values in trained.items()}

    monkeypatch.setattr(Client, "update", spoiled)
    with pytest.raises(ExceptionGroup) as caught:
        run(tmp_path, 3, params={"buffer": 3}).run()
    (error,) = caught.value.exceptions
    assert "version 1: the updates of device-2" in str(error)
