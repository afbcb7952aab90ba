from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgebed import Message, MiniBatch, Model, State, parted, round_of
from edgebed.baselines.scaffold import Correction, Scaffold, advanced, controlled, renewed
from edgebed.testing import Federation, federation, star
from node.learning.models import build

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}


def w(*values: float) -> State:
    return {"w": np.array(values, np.float32)}


def pair(folder: Path, clients: int, **more: Any) -> tuple[Federation, Federation]:
    """SCAFFOLD, and FedAvg on the same data."""
    scaffold = federation(folder, "edgebed.baselines.scaffold", "scaffold", star(clients), params=LOCAL, **more).run()
    parts = scaffold.partition
    other = folder / "avg"
    avg = Federation(scaffold.data, star(clients), "fedavg", Scaffold(**LOCAL), other, partition=parts, **more)
    return scaffold, avg.run()


def test_a_client_worked_example() -> None:
    """K η = 2: c_i⁺ = [1, 0] - [0, 1] + ([4, 2] - [2, 0]) / 2 = [2, 0]."""
    assert renewed(w(4, 2), w(2, 0), w(0, 1), w(1, 0), 2.0)["w"].tolist() == [2.0, 0.0]


def test_the_server_worked_example() -> None:
    """x = 1, models 2 and 4, η_g = ½: 1 + ½ (3 - 1) = 2. The statistics take the mean, 3. Of four clients two were
    counted, with 3 and 7: c = (3 + 7 + 0 + 0) / 4 = 2.5."""
    x, *states = (w(value) | {"variance": np.array([other])} for value, other in ((1, 9.0), (2, 2.0), (4, 4.0)))
    found = advanced(x, states, 0.5, ("w",))
    assert (found["w"].tolist(), found["variance"].tolist()) == ([2.0], [3.0])
    assert controlled([w(3), w(7)], 4, w(0))["w"].tolist() == [2.5]
    assert controlled([], 0, w(0))["w"].tolist() == [0.0]


def test_the_corrections_gradient_is_the_difference_of_the_control_variates() -> None:
    linear = nn.Linear(2, 1, bias=False)
    c, c_i = ({"classifier.weight": np.array([values], np.float32)} for values in ([1, 2], [3, -1]))
    none = torch.empty(0)
    term = Correction(c, c_i)(Model(nn.Identity(), linear), MiniBatch(none, none, none))
    assert torch.autograd.grad(term, [linear.weight])[0].tolist() == [[-2.0, 3.0]]


def test_option_2_is_the_mean_gradient(tmp_path: Path) -> None:
    """Without a correction c_i⁺ = (x - y_i) / (K η) is the mean of the K gradients; after round 1 the mean of the c_i
    is that over the clients, so x_1 = x_0 - K η c with K = 4 mini-batches of 16 of the 60 samples."""
    first, _ = pair(tmp_path, 3, rounds=1)
    state = first.state("cloud")
    initial = build("mlp", first.data.shape, 10, 0)
    assert {name.partition("/")[0] for name in state} == {"model", "counted"}
    for name, _ in initial.named_parameters():
        np.testing.assert_allclose(state[f"counted/{name}"].mean(axis=0), mean_of_steps(first, name), atol=1e-5)


def mean_of_steps(run: Federation, name: str) -> Any:
    start = run.roles["cloud"].learner.initial()[name]
    return (start - run.state("cloud")[f"model/{name}"]) / (4 * 0.1)


@pytest.mark.parametrize(("clients", "rounds"), [(3, 1), (1, 4)])
def test_control_variates_of_zero_are_fedavg(tmp_path: Path, clients: int, rounds: int) -> None:
    """In round 1 all are 0. A single client's c_i is c in every round."""
    scaffold, avg = pair(tmp_path, clients, rounds=rounds)
    for name, values in avg.state("cloud").items():
        np.testing.assert_allclose(scaffold.state("cloud")[f"model/{name}"], values, atol=2e-6)


def test_the_rounds_after_that_differ_and_learn(tmp_path: Path) -> None:
    scaffold, avg = pair(tmp_path, 3, rounds=6, crash={"cloud": (1.5, 3.0), "device-0": (1.0, 4.0)})
    name = next(iter(avg.state("cloud")))
    assert np.abs(scaffold.state("cloud")[f"model/{name}"] - avg.state("cloud")[name]).max() > 1e-4
    assert scaffold.journals["cloud"].series("global")[6] > 0.6


def sent_controls(folder: Path, crash: Mapping[str, tuple[float, float]]) -> tuple[State, dict[str, State]]:
    """c of the last round, and the c_i⁺ of the round before it, by client."""
    models: dict[int, State] = {}
    updates: dict[int, dict[str, State]] = defaultdict(dict)

    def fate(message: Message) -> Sequence[float]:
        control = parted(message.tensors, "control")
        if message.kind == "model":
            models[round_of(message)] = control
        elif message.kind == "update":
            updates[round_of(message)][message.sender] = control
        return (0.0,)

    pair(folder, 3, rounds=6, crash=crash, fate=fate)
    return models[6], updates[5]


GONE = {"device-0": (0.2, math.inf)}


@pytest.mark.parametrize(("crash", "clients"), [({"cloud": (1.5, 3.0), "device-0": (1.0, 4.0)}, 3), (GONE, 2)])
def test_after_crashes_c_is_the_mean_of_the_clients_that_are_there(
    tmp_path: Path, crash: dict[str, tuple[float, float]], clients: int
) -> None:
    """Each counted update replaces what the server counted of its client, so a lost one leaves nothing behind. Of a
    client that has gone nothing is left."""
    c, of_clients = sent_controls(tmp_path, crash)
    assert len(of_clients) == clients
    for name, values in c.items():
        mean = np.mean([each[name] for each in of_clients.values()], axis=0)
        np.testing.assert_allclose(values, mean, atol=1e-6)


def test_other_optimizers_are_refused() -> None:
    with pytest.raises(ValueError, match="SCAFFOLD corrects plain SGD"):
        Scaffold(momentum=0.9)
