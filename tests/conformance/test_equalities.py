"""What the docs claim to be equal is equal at the edges of the parameters: other optimizers, batch normalisation,
clients of unequal size and without samples, a client that crashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgebed import State, parted, weighted_mean
from node.catalogue.partitions import IID, PartitionParameters, PartitionScheme
from node.learning.data.datasets import Prepared
from node.parameters import read_parameters
from node.plugins import LearningCatalogue, find, with_plugins
from node.testing import Federation, hierarchy, same, star

ROUNDS = 3
ROUNDING = 5e-6  # of weights below 1 after three rounds in single precision

SGD: dict[str, Any] = {"learning_rate": 0.05, "batch_size": 16}
OTHER_TRAINING = {
    "momentum": 0.9,
    "weight_decay": 1e-3,
    "gradient_clipping": 0.5,
    "gradient_accumulation": 2,
    "learning_rate_decay": 0.8,
    "steps": 5,
}


@dataclass(frozen=True, kw_only=True)
class Uneven(PartitionParameters):
    """The first client has 70 samples, the second 23, and the third none."""


def unevenly(labels: NDArray[np.int64], groups: Sequence[int], params: Any, random: Any) -> list[NDArray[np.int64]]:
    parts = [np.arange(70), np.arange(70, 93), np.arange(0)]
    return parts[: sum(groups)]


EVEN, UNEVEN = IID(samples_per_client=60), Uneven(min_samples=0)
Edge = tuple[str, dict[str, Any], dict[str, Any]]
EDGES: dict[str, Edge] = {  # model, parameters, fields of the federation
    "plain": ("mlp", {}, {"partition": EVEN}),
    "other training": ("mlp", OTHER_TRAINING, {"partition": EVEN}),
    "adam": ("mlp", {"optimizer": "adam", "learning_rate": 0.003}, {"partition": EVEN}),
    "batch normalisation": ("cnn", {}, {"partition": EVEN}),
    "uneven": ("mlp", {}, {"partition": UNEVEN}),
    "crash": ("mlp", {}, {"partition": EVEN, "crash": {"device-1": (0.15, 0.4)}}),
}
TRAINING = tuple(EDGES)
EVEN_SIZES = tuple(name for name in EDGES if name != "uneven")
PLAIN_SGD = ("plain", "batch normalisation", "crash")
OWN_LOOP = ("plain", "adam", "batch normalisation", "uneven", "crash")


def known(baselines: Sequence[str], folder: Path) -> LearningCatalogue:
    """The catalogue with these baselines, and with the partition of this module."""
    catalogue = with_plugins([find(f"edgebed.baselines.{name}", folder) for name in baselines])
    uneven = PartitionScheme("uneven", Uneven, divide=unevenly)
    return replace(catalogue, partitions={**catalogue.partitions, "uneven": uneven})


@dataclass(frozen=True)
class Claim:
    """An algorithm with some parameters, at each of the `edges`, and the ``other`` that it equals; ``exact``: to the
    last bit, for floats, else up to rounding. ``part``: of the checkpoint, with the model."""

    algorithm: str
    params: Mapping[str, Any] = field(default_factory=dict)
    other: str = "fedavg"
    other_params: Mapping[str, Any] = field(default_factory=dict)
    plugin: str = ""
    edges: tuple[str, ...] = TRAINING
    exact: bool = False
    part: str = ""
    tree: Mapping[str, str | None] = field(default_factory=lambda: star(3))
    rounds: int = ROUNDS

    def run(self, digits: Prepared, folder: Path, edge: str, *, other: bool) -> State:
        """The last model of the cloud."""
        name, params = (self.other, self.other_params) if other else (self.algorithm, self.params)
        module = self.plugin or self.algorithm
        builtin = self.algorithm in ("fedprox", "fednova", "hierfavg")
        catalogue = known([] if builtin else [module], folder)
        model, training, fields = EDGES[edge]
        chosen = read_parameters(catalogue.algorithms[name].params, SGD | training | dict(params))
        fields = {key: each for key, each in fields.items() if key != "crash" or "device-1" in self.tree}
        run = Federation(
            digits, self.tree, name, chosen, folder / name, self.rounds, model=model, catalogue=catalogue, **fields
        ).run()
        state = run.state("cloud")
        return parted(state, self.part) if self.part and not other else state

    def other_run(self, edge: str) -> tuple[object, ...]:
        """All that the model of the other algorithm depends on."""
        return self.other, str(self.other_params), edge, tuple(self.tree.items()), self.rounds


HIERFAVG = {"kappa2": 2}
CLAIMS = {
    "fedprox": Claim("fedprox", {"mu": 0}, exact=True),
    "fednova": Claim("fednova", edges=tuple(name for name in EVEN_SIZES if name != "adam")),
    "top-k": Claim("top-k-fedavg", {"kept": 1.0}, plugin="compressed"),
    "top-k-fednova": Claim("top-k-fednova", {"kept": 1.0}, other="fednova", plugin="compressed", edges=("uneven",)),
    "qsgd": Claim("qsgd-fedavg", {"levels": 2**31 - 1}, plugin="compressed"),
    "masked-sum": Claim("masked-sum", plugin="masked_sum"),
    "fedala-0": Claim("fedala", {"layers": 0}, exact=True),
    "fedala-1": Claim("fedala", {"weight_learning_rate": 0}),
    "fedbuff": Claim("fedbuff", {"buffer": 3}, edges=("plain", "other training", "adam", "batch normalisation")),
    "fedasync": Claim(
        "fedasync",
        {"mixing": 1.0, "proximal": 0.0},
        tree=star(1),
        exact=True,
        edges=("plain", "other training", "adam"),
    ),
    "scaffold-1": Claim("scaffold", part="model", tree=star(1), edges=PLAIN_SGD),
    "scaffold-round-1": Claim("scaffold", part="model", rounds=1, edges=PLAIN_SGD),
    "fedgen": Claim("fedgen", {"generated_factor": 0, "agreement_factor": 0}, part="model", exact=True),
    "lgfedavg": Claim("lgfedavg", {"global_layers": 99}, exact=True),
    "fedavgm": Claim("fedavgm", {"server_momentum": 0, "server_learning_rate": 1}, plugin="fedopt", part="model"),
    "fedprox-h": Claim(
        *("fedprox-h", {"mu": 0, "intra": 2}, "hierfavg", HIERFAVG, "hierarchical"),
        exact=True,
        tree=hierarchy([2, 1]),
    ),
}
CASES = [(name, edge) for name, claim in CLAIMS.items() for edge in claim.edges]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def others() -> dict[tuple[object, ...], State]:
    """The models of the other algorithms, by `Claim.other_run`: many claims compare with the same."""
    return {}


@pytest.mark.parametrize(("name", "edge"), CASES)
def test_a_claim_of_equality(
    name: str, edge: str, digits: Prepared, tmp_path: Path, others: dict[tuple[object, ...], State]
) -> None:
    claim = CLAIMS[name]
    found = claim.run(digits, tmp_path, edge, other=False)
    other = claim.other_run(edge)
    if other not in others:
        others[other] = claim.run(digits, tmp_path, edge, other=True)
    expected = others[other]
    floats = {key: values for key, values in expected.items() if values.dtype.kind == "f"}
    if claim.exact:
        assert same({key: found[key] for key in floats}, floats)
    for key, values in floats.items():
        np.testing.assert_allclose(found[key], values, atol=ROUNDING, err_msg=key)


LOCAL: dict[str, dict[str, Any]] = {
    "fml": {"own_weight": 1},
    "fedproto": {"prototype_weight": 0, "inference": "classifier"},
    "fedtgp": {"prototype_weight": 0, "inference": "classifier", "server_epochs": 1},
    "feddistill": {"distillation_weight": 0},
}
LOCAL_CASES = [(name, edge) for name in LOCAL for edge in (OWN_LOOP if name == "fml" else TRAINING)]


@pytest.mark.parametrize(("name", "edge"), LOCAL_CASES)
def test_a_client_trains_alone(name: str, edge: str, digits: Prepared, tmp_path: Path) -> None:
    catalogue = known([name], tmp_path)
    model, training, fields = EDGES[edge]
    given = LOCAL[name]
    params = read_parameters(catalogue.algorithms[name].params, SGD | training | given)
    run = Federation(
        digits, star(3), name, params, tmp_path / "run", ROUNDS, model=model, catalogue=catalogue, **fields
    ).run()
    for node in run.samples:
        learner = run.roles[node].learner
        w: State = learner.initial()
        if not learner.samples:
            continue
        for t in range(1, ROUNDS + 1):
            w = learner.train(w, params.at(t), t).weights
        own = parted(run.state(node), "own") if name == "fml" else run.state(node)
        assert same({key: own[key] for key in w}, w)


@pytest.mark.parametrize("edge", ["adam", "uneven"])
def test_memes_of_their_labels_alone_are_averaged(edge: str, digits: Prepared, tmp_path: Path) -> None:
    """FedAvg by hand, from the meme's initial weights, which are others than those of a client's model."""
    catalogue = known(["fml"], tmp_path)
    _, training, fields = EDGES[edge]
    params = read_parameters(catalogue.algorithms["fml"].params, SGD | training | {"meme_weight": 1, "meme": "mlp"})
    run = Federation(
        digits, star(3), "fml", params, tmp_path / "run", ROUNDS, model="mlp", catalogue=catalogue, **fields
    ).run()
    learners = [run.roles[node].learner for node, samples in run.samples.items() if samples]
    w = {key: values.copy() for key, values in learners[0].build("mlp").views.items()}
    for t in range(1, ROUNDS + 1):
        trained = [learner.train(w, params, t).weights for learner in learners]
        w = weighted_mean(trained, [learner.samples for learner in learners])
    assert same({key: run.state("cloud")[key] for key in w}, w)
