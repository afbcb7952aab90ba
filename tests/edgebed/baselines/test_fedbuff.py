from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebed.baselines.fedbuff import FedBuff, difference, scaling, stepped
from edgebed.testing import Federation, federation, star

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}


def run(folder: Path, clients: int = 4, **more: Any) -> Federation:
    folder.mkdir(exist_ok=True)
    params = {**LOCAL, **more.pop("params", {})}
    return federation(folder, "edgebed.baselines.fedbuff", "fedbuff", star(clients), params=params, **more)


def test_scaling_by_hand() -> None:
    assert [scaling(tau, FedBuff()) for tau in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])
    assert scaling(8, FedBuff(staleness="constant")) == 1


def test_a_step_by_hand() -> None:
    """w = [1, 2]; Δ = [1, 0] with s = 1 and [0, 4] with s = ½; η_g = 2, K = 2: w - (2 / 2) [1, 2] = [0, 0]. Statistics
    take the mean, (2 + 4) / 2, whatever they were."""
    w = {"w": np.array([1, 2], np.float32), "variance": np.array([9], np.float32)}
    first = {"w": np.array([1, 0], np.float32), "variance": np.array([2], np.float32)}
    second = {"w": np.array([0, 4], np.float32), "variance": np.array([4], np.float32)}
    found = stepped(w, [first, second], [1.0, 0.5], 2.0, ("w",))
    assert found["w"].tolist() == [0.0, 0.0]
    assert found["w"].dtype == np.float32
    assert found["variance"].tolist() == [3.0]


def test_a_difference_by_hand() -> None:
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


def test_the_others_go_on_without_a_client(tmp_path: Path) -> None:
    """A training takes 1.2 s. For 20 s two clients fill the buffer of two."""
    slow, cuts = dict.fromkeys(star(4), 20.0), {("cloud", "device-1"): (0.1, 20.0)}
    params = {"buffer": 2, "evaluate_every": 100}
    found = run(tmp_path, params=params, rounds=32, slow=slow, cuts=cuts, crash={"device-0": (0.1, 20.0)}).run()
    taken = [set(fields["staleness"]) for name, _, fields in found.journals["cloud"].events if name == "updates"]
    assert taken[3:15] == [{"device-2", "device-3"}] * 12
    for client in star(4).keys() - {"cloud"}:
        assert sum(client in each for each in taken[18:]) > 5
