"""FedKD: compression and losses by hand, its protocol, and its reduction without loss of energy."""

from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
import pytest
import torch

import edgebed
from edgebed.baselines.fedkd import FedKD, added, compressed, decompressed, energy, losses
from node.learning.aggregation import weighted_mean
from tests.edgebed.baselines.harness import equal, learns_and_reports, run


def test_the_energy_grows_with_the_rounds() -> None:
    assert energy(FedKD(energy_start=0.9, energy_end=1.0), 5, 20) == pytest.approx(0.925)


def test_the_first_singular_values_are_kept() -> None:
    """A diagonal of 3, 2, 1 has the energies 9, 13 and 14 of 14. Half of it takes one value of 3 rows and 9 columns, 12
    numbers for 27; 0.9 of it takes two, 24 numbers; all of it three, more than the matrix has."""
    matrix = np.zeros((3, 9), np.float32)
    matrix[0, 0], matrix[1, 1], matrix[2, 2] = 3, 2, 1
    update = {"w": matrix, "b": np.ones(2, np.float32)}
    half, most, all_ = (compressed(update, share) for share in (0.5, 0.9, 1.0))
    assert {name: each.shape for name, each in half.items()} == {"w/u": (3, 1), "w/v": (1, 9), "b/whole": (2,)}
    assert most["w/u"].shape == (3, 2)
    assert sorted(all_) == ["b/whole", "w/whole"]
    assert np.round(decompressed(half, update)["w"][:, :3], 5).tolist() == [[3, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert np.round(decompressed(most, update)["w"][:, :3], 5).tolist() == [[3, 0, 0], [0, 2, 0], [0, 0, 0]]
    assert equal(decompressed(all_, update), update)
    assert decompressed({"w/u": half["w/u"], "w/v": np.ones((2, 9), np.float32)}, update) == {}
    assert compressed({"w": np.zeros((4, 4), np.float32)}, 0.9)["w/u"].shape == (4, 1)  # nothing was learned
    assert sorted(compressed({"w": np.full((4, 4), np.nan, np.float32)}, 0.9)) == ["w/whole"]  # which gather refuses


def test_both_losses() -> None:
    """Mentor: (1/2, 1/2), CE ln 2. Mentee: (3/4, 1/4), CE of class 1 is ln 4. Their sum is ln 8. Features 2 against W^h
    H^s = 3 · 1: MSE 1."""
    p, q = torch.zeros(1, 2, requires_grad=True), torch.tensor([[log(3), 0.0]], requires_grad=True)
    high, low, transform = (torch.full((1, 1), value, requires_grad=True) for value in (2.0, 1.0, 3.0))
    mentor, mentee = losses((high, p), (low, q), transform, torch.tensor([1]))
    assert mentor.item() == pytest.approx(log(2) + (0.75 * log(1.5) + 0.25 * log(0.5) + 1) / log(8))
    assert mentee.item() == pytest.approx(log(4) + (0.5 * log(2 / 3) + 0.5 * log(2) + 1) / log(8))
    mentor.backward()  # type: ignore[no-untyped-call]
    assert (q.grad, low.grad, transform.grad) == (None, None, None)
    p.grad = high.grad = None
    mentee.backward()  # type: ignore[no-untyped-call]
    assert (p.grad, high.grad) == (None, None)
    assert transform.grad is not None
    assert transform.grad.item() == pytest.approx(2 * (3 - 2) / log(8))


def test_clients_of_three_models_share_a_mentee(tmp_path: Path) -> None:
    done = run(tmp_path, "fedkd", rounds=3, model_params={})
    learns_and_reports(done, rounds=3)
    bases = [edgebed.parted(done.state(f"device-{k}"), "base") for k in range(3)]
    assert equal(bases[0], bases[1])  # after decompression all have the same mentee
    assert equal(bases[0], bases[2])
    assert not any(done.journals["cloud"].rounds("bad_message"))


def test_without_loss_of_energy_the_mentees_are_averaged(tmp_path: Path) -> None:
    done = run(tmp_path, "fedkd", rounds=1, model="cnn", energy_start=1, energy_end=1)
    mean = weighted_mean([edgebed.parted(done.state(f"device-{k}"), "mentee") for k in range(3)], [60, 60, 60])
    assert all(np.allclose(values, mean[name], atol=1e-5) for name, values in done.state("cloud").items())


def test_a_client_that_was_away_gets_the_whole_mentee(tmp_path: Path) -> None:
    done = run(tmp_path, "fedkd", rounds=5, crash={"device-0": (0.3, 0.7)}, model_params={})
    assert done.journals["device-0"].rounds("resumed")
    bases = [edgebed.parted(done.state(f"device-{k}"), "base") for k in range(3)]
    assert equal(bases[0], bases[1])


def test_an_update_is_added() -> None:
    made = added({"w": np.ones(2, np.float32), "n": np.array(3)}, {"w": np.full(2, 0.5), "n": np.array(2)})
    assert (made["w"].tolist(), made["n"].tolist(), str(made["w"].dtype)) == ([1.5, 1.5], 5, "float32")
    assert all(isinstance(values, np.ndarray) for values in made.values())
