"""Deadlines by the formula in the module, with numbers that can be done by hand."""

from __future__ import annotations

import pytest

from netem.profile import LinkProfile
from node.catalogue.baselines import FedAvg, HierFAVG, OnlyEdge
from node.catalogue.papers import DFFKE, FedFeat
from orchestrator.planning.deadlines import Workload, deadlines

SLOW = LinkProfile(latency=0.1, jitter=0.05, rate=1e6)
FAST = LinkProfile(latency=0.01)

# One million parameters: 20 ms a sample. 4 MB at 1 mbit are 32 s.
WORK = Workload(parameters=1_000_000, model_bytes=4_000_000, features=500, clients=10, samples=100, speed=0.5)


def test_training_is_bound_by_the_slowest_board_or_by_the_host() -> None:
    assert WORK.training(FedAvg()) == pytest.approx(2 * 10 * 2.0)  # ten clients of 2 s share a core
    alone = Workload(parameters=1_000_000, model_bytes=0, features=500, clients=1, samples=100, speed=0.1)
    assert alone.training(FedAvg()) == pytest.approx(2 * 2.0 / 0.1)


def test_training_counts_epochs_or_steps() -> None:
    assert WORK.training(FedAvg(epochs=3)) == pytest.approx(3 * 40.0)
    assert WORK.training(FedAvg(epochs=3, steps=5, batch_size=20)) == pytest.approx(40.0)
    assert WORK.training(HierFAVG(kappa1=10, batch_size=20)) == pytest.approx(2 * 40.0)


def test_a_transfer_takes_the_slowest_link() -> None:
    assert WORK.transfer([FAST, SLOW]) == pytest.approx(0.15 + 32.0)
    assert WORK.transfer([FAST]) == pytest.approx(0.01)
    assert WORK.transfer([]) == 0.0


def test_the_tier_above_the_clients_waits_for_transfer_and_training() -> None:
    """10 + 4 * (0.01 + 32.15) + 40 = 178.64."""
    assert deadlines(WORK, FedAvg(), [("cloud", [FAST], [SLOW])], None) == {"cloud": 179.0}


def test_features_travel_up_beside_the_model() -> None:
    """100 samples of 500 float32 features and a label of 8 bytes are 200,800 bytes, at 1 mbit 1.6064 s."""
    plain, with_features = (
        deadlines(WORK, FedFeat(epochs=1, retrain_epochs=epochs), [("cloud", [FAST], [SLOW])], None)["cloud"]
        for epochs in (0, 5)
    )
    assert plain == 179.0
    assert with_features == 186.0  # 178.64 + 4 * 1.6064 = 185.07
    assert DFFKE(embeddings=40).beside_model(100, 500) == 40 * 2008
    assert DFFKE(embeddings=40, exchange_epochs=0).beside_model(100, 500) == 0


def test_the_next_tier_waits_for_its_rounds() -> None:
    """The edge: 10 + 4 * 0.02 + 40 = 50.08; the cloud: 10 + 4 * 0.02 + 2 * 51 = 112.08."""
    tiers = [("edge", [FAST], [FAST]), ("cloud", [FAST], [FAST])]
    assert deadlines(WORK, HierFAVG(kappa2=2), tiers, None) == {"edge": 51.0, "cloud": 113.0}


def test_a_given_deadline_is_taken_as_it_is() -> None:
    tiers = [("edge", [FAST], [FAST]), ("cloud", [FAST], [FAST])]
    assert deadlines(WORK, OnlyEdge(), tiers, 2.5) == {"edge": 2.5, "cloud": 13.0}
