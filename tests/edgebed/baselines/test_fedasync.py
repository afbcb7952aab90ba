from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgebed import MiniBatch, Model
from edgebed.baselines.fedasync import FedAsync, Proximal, mixed, weight
from edgebed.testing import Federation, Journal, federation, star
from node.testing import same

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}


def run(folder: Path, clients: int = 3, **more: Any) -> Federation:
    folder.mkdir(exist_ok=True)
    params = {**LOCAL, **more.pop("params", {})}
    return federation(folder, "edgebed.baselines.fedasync", "fedasync", star(clients), params=params, **more)


def staleness(journal: Journal) -> list[tuple[str, int]]:
    """The worker of each version, and its staleness."""
    found = [fields["staleness"] for name, _, fields in journal.events if name == "updates"]
    return [next(iter(each.items())) for each in found]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (FedAsync(mixing=0.6, staleness="constant"), [0.6, 0.6, 0.6]),
        (FedAsync(mixing=0.6, exponent=0.5), [0.6, 0.3, 0.2]),  # (0 + 1)^-½, (3 + 1)^-½, (8 + 1)^-½
        (FedAsync(mixing=0.6, staleness="hinge", slope=0.5, behind=3), [0.6, 0.6, 0.6 / 3.5]),  # 0.5 (8 - 3) + 1
    ],
)
def test_weights_worked_example(params: FedAsync, expected: list[float]) -> None:
    assert [weight(d, params) for d in (0, 3, 8)] == pytest.approx(expected)


def test_mixing_worked_example() -> None:
    """(1 - 0.25) [1, 2] + 0.25 [5, -2] = [2, 1]; of a counter, the maximum."""
    old = {"w": np.array([1, 2], np.float32), "seen": np.array(3)}
    new = {"w": np.array([5, -2], np.float32), "seen": np.array(4)}
    found = mixed(old, new, 0.25)
    assert (found["w"].tolist(), found["seen"].item()) == ([2.0, 1.0], 4)


def test_the_proximal_term_worked_example() -> None:
    """x = [1, 2], x_τ = [0, 4], ρ = 0.5: (0.5 / 2) (1² + 2²) = 1.25; gradient ρ (x − x_τ) = [0.5, -1]."""
    linear = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 2.0]]))
    start = {"classifier.weight": np.array([[0, 4]], np.float32)}
    none = torch.empty(0)
    term = Proximal(start, 0.5)(Model(nn.Identity(), linear), MiniBatch(none, none, none))
    assert term.item() == 1.25
    assert torch.autograd.grad(term, [linear.weight])[0].tolist() == [[0.5, -1.0]]


def test_one_worker_with_mixing_one_is_fedavg(tmp_path: Path) -> None:
    one = run(tmp_path / "async", 1, params={"mixing": 1.0, "proximal": 0.0}).run()
    avg = Federation(one.data, star(1), "fedavg", FedAsync(**LOCAL), tmp_path / "avg", partition=one.partition).run()
    assert same(one.state("cloud"), avg.state("cloud"))


def test_a_slow_worker_is_stale_and_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """Sixty samples take 60 ms, at the slow worker 210. A message takes one, and so does an evaluation of one sample.
    So the fast workers make six versions before the slow one's first update comes, and six more before its second."""
    found = run(tmp_path, rounds=16, params={"evaluate_samples": 1}, slow={"device-2": 3.5}).run()
    journal = found.journals["cloud"]
    order = staleness(journal)
    assert [age for worker, age in order if worker == "device-2"] == [6, 6]
    assert max(age for worker, age in order if worker != "device-2") == 2
    assert list(journal.series("updates", "staleness").values()) == [age for _, age in order]
    assert list(journal.series("global")) == list(range(1, 17))


def test_evaluations_are_as_rare_as_asked(tmp_path: Path) -> None:
    found = run(tmp_path, rounds=7, params={"evaluate_every": 3}).run()
    assert list(found.journals["cloud"].series("global")) == [3, 6]


def test_workers_that_were_away_continue(tmp_path: Path) -> None:
    """A cut link loses an update or a model, a crash both. A training takes 1.2 s, so the third worker makes some 16
    versions in 20 s without them."""
    slow, cuts = dict.fromkeys(star(3), 20.0), {("cloud", "device-0"): (0.1, 20.0)}
    params = {"evaluate_every": 100}
    found = run(tmp_path, rounds=32, params=params, slow=slow, cuts=cuts, crash={"device-1": (0.1, 20.0)}).run()
    order = [worker for worker, _ in staleness(found.journals["cloud"])]
    assert order[3:16] == ["device-2"] * 13
    for worker in star(3).keys() - {"cloud"}:
        assert 4 <= order[17:].count(worker) <= 6


def test_a_server_that_crashed_continues(tmp_path: Path) -> None:
    found = run(tmp_path, rounds=24, crash={"cloud": (3.0, 30.0)}).run()
    assert max(found.journals["cloud"].series("global")) == 24
    assert found.journals["cloud"].series("global")[24] > 0.5
