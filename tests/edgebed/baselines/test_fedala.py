from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebed.baselines.fedala import FedALA, aggregated, converged, reweighted, upper
from edgebed.testing import Federation, federation, star
from node.testing import same

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}


def run(folder: Path, crash: Mapping[str, tuple[float, float]] | None = None, **params: Any) -> Federation:
    folder.mkdir(exist_ok=True)
    more: dict[str, Any] = {"params": {**LOCAL, **params}, "rounds": 3, "crash": crash or {}}
    return federation(folder, "edgebed.baselines.fedala", "fedala", star(2), **more).run()


def test_the_upper_layers() -> None:
    names = ["extractor.1.weight", "extractor.1.bias", "classifier.weight", "classifier.bias"]
    assert [upper(names, layers) for layers in (0, 1, 2)] == [[], names[2:], names]


def test_the_mixture_by_hand() -> None:
    """Equation 4: [0, 4] + ([2, 2] - [0, 4]) * [0.5, 1] = [1, 2]; below the upper layers the global model, 9."""
    own = {"upper": np.array([0.0, 4.0]), "lower": np.array([1.0])}
    w = {"upper": np.array([2.0, 2.0]), "lower": np.array([9.0])}
    found = aggregated(own, w, {"upper": np.array([0.5, 1.0])})
    assert (found["upper"].tolist(), found["lower"].tolist()) == ([1.0, 2.0], [9.0])


def test_the_weights_by_hand() -> None:
    """Equation 5: [0.5, 1, 0.5] - 0.5 [1, -1, 3] * [0.5, 2, 2] = [0.25, 2, -2.5], clipped to [0.25, 1, 0]."""
    gradient, difference = np.array([1.0, -1.0, 3.0]), np.array([0.5, 2.0, 2.0])
    assert reweighted(np.array([0.5, 1.0, 0.5]), gradient, difference, 0.5).tolist() == [0.25, 1.0, 0.0]


def test_convergence() -> None:
    assert not converged([1.0] * 10)
    assert converged([1.0] * 11)
    assert not converged([float(k % 2) for k in range(99)])
    assert converged([float(k % 2) for k in range(100)])


@pytest.mark.parametrize("params", [{"layers": 0}, {"weight_learning_rate": 0.0}])
def test_without_weights_or_with_ones_it_is_fedavg(tmp_path: Path, params: dict[str, Any]) -> None:
    found = run(tmp_path / "ala", **params)
    other, parts = tmp_path / "avg", found.partition
    avg = Federation(found.data, star(2), "fedavg", FedALA(**LOCAL), other, partition=parts).run()
    for name, values in avg.state("cloud").items():
        np.testing.assert_allclose(found.state("cloud")[name], values, atol=2e-6)


def test_the_weights_leave_one(tmp_path: Path) -> None:
    shares = run(tmp_path).journals["device-0"]
    found = [values["global_weight"] for _, values in shares.metrics if "global_weight" in values]
    assert found[0] == 1.0
    assert 0 < found[2] < 1


def test_a_client_that_restarts_keeps_its_model_and_its_weights(tmp_path: Path) -> None:
    undisturbed = run(tmp_path / "calm")
    crashed = run(tmp_path / "crash", {"device-0": (0.12, 0.2), "device-1": (0.25, 0.3)})
    assert crashed.journals["device-0"].rounds("resumed") == [1]
    for node in star(2):
        assert same(crashed.state(node), undisturbed.state(node))
