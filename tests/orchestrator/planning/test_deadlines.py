"""Deadlines by the formula in the module, with numbers that can be done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netem.profile import LinkProfile
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.fededs.parameters import FedEDS
from node.algorithms.parameters import FedAvg, FedFeat, HierFAVG, OnlyEdge
from orchestrator.planning.deadlines import RoundWork, deadlines, transfer

SLOW = LinkProfile(latency=0.1, jitter=0.05, rate=1e6)
FAST = LinkProfile(latency=0.01)

# One million parameters: 20 ms a sample. 4 MB at 1 mbit are 32 s.
WORK = RoundWork(
    parameters=1_000_000, model_bytes=4_000_000, features=500, classes=10, clients=10, samples=100, speed=0.5
)


def test_training_is_bound_by_the_slowest_board_or_by_the_host() -> None:
    assert WORK.training(FedAvg()) == pytest.approx(2 * 10 * 2.0)  # ten clients of 2 s share a core
    alone = replace(WORK, clients=1, speed=0.1)
    assert alone.training(FedAvg()) == pytest.approx(2 * 2.0 / 0.1)


def test_training_counts_epochs_or_steps() -> None:
    assert WORK.training(FedAvg(epochs=3)) == pytest.approx(3 * 40.0)
    assert WORK.training(FedAvg(epochs=3, steps=5, batch_size=20)) == pytest.approx(40.0)
    assert WORK.training(HierFAVG(kappa1=10, batch_size=20)) == pytest.approx(2 * 40.0)
    assert WORK.training(DFFKE(epochs=2, first_epochs=3)) == pytest.approx(3 * 40.0)
    assert WORK.training(FedEDS(epochs=1, epochs_max=5)) == pytest.approx(10 * 40.0)  # beside each a peer's pictures
    assert WORK.training(FedEDS(epochs=2, annealing=False, exchange=False)) == pytest.approx(2 * 40.0)


def test_a_transfer_takes_the_slowest_link() -> None:
    assert transfer([FAST, SLOW], 4_000_000) == pytest.approx(0.15 + 32.0)
    assert transfer([FAST], 4_000_000) == pytest.approx(0.01)
    assert transfer([], 4_000_000) == 0.0
    assert transfer([FAST, LinkProfile(real=True)], 4_000_000) == pytest.approx(0.1 + 6.4)  # 5 mbit are assumed


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


def test_what_clients_send_one_another_counts() -> None:
    """A part of 1 MiB and 100 outputs of 10 float32 numbers are 1,052,576 bytes, at 1 mbit 8.42 s."""
    alone, together = (
        deadlines(WORK, FedEDS(exchange=exchange, epochs=5), [("cloud", [FAST], [FAST])], None, across=[SLOW])["cloud"]
        for exchange in (False, True)
    )
    assert alone == 211.0  # 10 + 4 * 0.02 + 5 * 40 = 210.08
    assert together == 445.0  # 210.08 + 5 * 40 + 4 * (0.15 + 8.42) = 444.36
    assert DFFKE(embeddings=40).between_clients(100, 10) == 2 * 40 * 40
    assert DFFKE(exchange_epochs=0).between_clients(100, 10) == 0


def test_the_next_tier_waits_for_its_rounds() -> None:
    """The edge: 10 + 4 * 0.02 + 40 = 50.08; the cloud: 10 + 4 * 0.02 + 2 * 51 = 112.08."""
    tiers = [("edge", [FAST], [FAST]), ("cloud", [FAST], [FAST])]
    assert deadlines(WORK, HierFAVG(kappa2=2), tiers, None) == {"edge": 51.0, "cloud": 113.0}


def test_a_given_deadline_is_taken_as_it_is() -> None:
    tiers = [("edge", [FAST], [FAST]), ("cloud", [FAST], [FAST])]
    assert deadlines(WORK, OnlyEdge(), tiers, 2.5) == {"edge": 2.5, "cloud": 13.0}
