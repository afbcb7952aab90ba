"""What holds of every algorithm of rounds: neither the order of answers nor a crash changes the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from node.algorithms.registry import ALGORITHMS
from node.catalogue.partitions import Dirichlet, LabelShards
from node.learning.data.datasets import Prepared
from node.parameters import read_parameters
from node.testing import Federation, hierarchy, same, star

USUAL: dict[str, Any] = {"learning_rate": 0.1, "momentum": 0.9, "batch_size": 16}
PAUSE = (0.7, 1.0)  # s of virtual time, from the crash of a node to its restart
TWO_EDGES = hierarchy([2, 1])


@dataclass(frozen=True)
class Case:
    """``crashes``: nodes with the times of their end and their restart. ``ends``: the nodes with the result."""

    algorithm: str
    tree: Mapping[str, str | None]
    rounds: int
    crashes: Mapping[str, tuple[float, float]]
    params: Mapping[str, Any] = field(default_factory=dict)
    ends: tuple[str, ...] = ("cloud",)
    more: Mapping[str, Any] = field(default_factory=dict)  # fields of `Federation`

    def run(self, digits: Prepared, folder: Path, **more: Any) -> Federation:
        params = read_parameters(ALGORITHMS[self.algorithm].params, USUAL | dict(self.params))
        return Federation(digits, self.tree, self.algorithm, params, folder, self.rounds, **self.more, **more).run()


OF_CLIENTS = {"cloud": PAUSE, "device-1": PAUSE}
FEATURES = {"partition": LabelShards(shard_size="auto", samples_per_client=60)}
SMALL = {"encryptor_width": 2, "encryptor_epochs": 1, "model_epochs": 1, "weight_decay": 0.0}
CASES = {
    **{name: Case(name, star(3), 4, OF_CLIENTS) for name in ("fedavg", "fedprox", "fednova")},
    "flexlora": Case(
        *("flexlora", star(3), 4, OF_CLIENTS),
        more={
            "model": "mlp",
            "model_params": {
                "lora": {
                    **{"rank": 2, "alpha": 4, "targets": ["1", "classifier"]},
                    "ranks": {f"device-{k}": 2 for k in range(3)},
                }
            },
        },
    ),
    "hierfavg": Case("hierfavg", TWO_EDGES, 3, {"cloud": PAUSE, "edge-1": PAUSE, "device-0-1": PAUSE}, {"kappa2": 2}),
    "onlyedge": Case(
        *("onlyedge", TWO_EDGES, 4, {"edge-1": (0.5, 0.9), "device-0-1": (0.5, 0.9)}, {"kappa2": 2}),
        ends=("edge-0", "edge-1"),
    ),
    "phe-fl": Case(
        *("phe-fl", hierarchy([2, 2, 2]), 12, {"cloud": (0.5, 2.5)}, {"momentum": 0.0, "epochs": 1}),
        more={"personal": 0.2},
    ),
    **{
        f"fedfeat-{features}": Case(
            *("fedfeat", star(4), 4, {"cloud": (4.0, 6.0)}),  # a round takes 1.7 s, of which 1.2 s are retraining
            {"epochs": 2, "features": features, "retrain_epochs": 5, "momentum": 0.0, "batch_size": 10},
            more=FEATURES,
        )
        for features in ("last-epoch", "averaged")
    },
    "fededs": Case(
        *("fededs", star(3, "edge"), 3, {"cloud": (2.0, 2.2)}, SMALL),
        more={"partition": Dirichlet(alpha=0.3, variant="client", samples_per_client=60)},
    ),
}
CRASHES = [(name, node) for name, case in CASES.items() for node in case.crashes]


@pytest.fixture(scope="module")
def calm(digits: Prepared, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Federation]:
    """Each case without anything unusual."""
    folder = tmp_path_factory.mktemp("calm")
    return {name: case.run(digits, folder / name) for name, case in CASES.items()}


def assert_same(case: Case, first: Federation, second: Federation) -> None:
    for node in case.ends:
        assert same(first.state(node), second.state(node)), node


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_late_answers_change_nothing(name: str, calm: dict[str, Federation], digits: Prepared, tmp_path: Path) -> None:
    case = CASES[name]
    holders = [node for node in case.tree if node not in case.tree.values()]
    late = case.run(digits, tmp_path, slow={holders[0]: 5.0, holders[1]: 3.0})
    assert_same(case, calm[name], late)
    for node in case.ends:
        assert calm[name].journals[node].metrics == late.journals[node].metrics


@pytest.mark.slow
@pytest.mark.parametrize(("name", "node"), CRASHES)
def test_a_crash_changes_nothing(
    name: str, node: str, calm: dict[str, Federation], digits: Prepared, tmp_path: Path
) -> None:
    """A node that comes back repeats its round exactly, so the run ends where it would have ended without the crash."""
    case = CASES[name]
    crashed = case.run(digits, tmp_path, crash={node: case.crashes[node]})
    assert_same(case, calm[name], crashed)
    if node in (*case.ends, "cloud"):
        assert crashed.journals[node].rounds("resumed")
