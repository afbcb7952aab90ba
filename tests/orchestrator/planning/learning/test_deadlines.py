"""Deadlines by the formula in the module, with numbers that can be done by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from netem.library import PROFILES
from netem.profile import LinkProfile
from node.algorithms.dffke.embedding_decoder import Pictures
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.dffke.step_samples import StepSamples
from node.algorithms.fededs.encryptor import unet
from node.algorithms.fededs.parameters import VALUE, FedEDS
from node.algorithms.feelpgen.parameters import FEELPGen
from node.algorithms.parameters import FedAvg, FedFeat, HierFAVG, OnlyEdge
from node.catalogue.models import MODELS
from node.catalogue.sizes import Size
from node.learning.counted_operations import cost_of
from node.learning.local_training import ClientWork
from node.learning.models import build
from node.learning.networks.zoo import layer_outputs
from node.learning.step_seconds import PER_STEP
from orchestrator.planning.learning.deadlines import RoundWork, TierNodes, deadlines, lost_after, transfer
from orchestrator.scenario.sections.hardware import HARDWARE

SLOW = LinkProfile(latency=0.1, jitter=0.05, rate=1e6)
FAST = LinkProfile(latency=0.01)

# A sample takes 1 ms to train: 30 ps for each of its operations, and 4 ms to send its 4 MB at 1 gbit. The evaluation of
# 100 samples takes 100 * 21.5 / 30 ms = 71.7 ms.
MODEL = Size(1_000_000, features=500, operations=round(1e-3 / 30e-12), layers=0)
WORK = RoundWork([MODEL], (1, 28, 28), 10, TierNodes(count=10, speed=0.5, samples=100))
PASS = 0.1 * 21.5 / 30
STEPS = 2 * PER_STEP


def test_work_is_bound_by_the_slowest_board_or_by_the_host() -> None:
    """0.1 s of training and one more pass; ten clients share a core, or one has a tenth of its speed. Margin: 4."""
    assert WORK.seconds(FedAvg()) == pytest.approx(4 * 10 * (0.1 + PASS + STEPS))
    alone = replace(WORK, clients=TierNodes(count=1, speed=0.1, samples=100))
    assert alone.seconds(FedAvg()) == pytest.approx(4 * (0.1 + PASS + STEPS) / 0.1)


@pytest.mark.parametrize(("limit", "tests"), [(None, 50), (30, 30), (70, 50)])
def test_clients_evaluate_on_their_test_samples(limit: int | None, tests: int) -> None:
    """Of 50, at most as many as the algorithm says."""
    clients = TierNodes(count=1, speed=1.0, samples=100, tests=50)
    seconds = replace(WORK, clients=clients).seconds(FedAvg(evaluate_samples=limit))
    assert seconds == pytest.approx(4 * (0.1 + PASS * (1 + tests / 100) + STEPS))


def test_the_model_that_takes_longest_counts() -> None:
    larger = replace(MODEL, operations=2 * MODEL.operations)
    alone = replace(WORK, models=[larger]).seconds(FedAvg())
    assert replace(WORK, models=[MODEL, larger]).seconds(FedAvg()) == alone


@pytest.mark.parametrize(
    ("params", "trained"),
    [
        (FedAvg(epochs=3), 300),
        (FedAvg(epochs=3, steps=5, batch_size=20), 100),
        (HierFAVG(kappa1=10, batch_size=20), 200),
        (DFFKE(epochs=2, first_epochs=3, exchange_epochs=0), 300),
        (FedEDS(epochs=1, epochs_max=5, encryptor_epochs=1, encryptor_width=1, model_epochs=1), 1000),  # and a peer's
        (FedEDS(epochs=2, annealing=False, exchange=False), 200),
    ],
)
def test_training_counts_epochs_or_steps(params: Any, trained: int) -> None:
    assert params.longest_training(ClientWork(100, 10, (1, 28, 28), 10, MODEL)) == trained


def test_before_the_first_round_fededs_trains_a_model_and_an_encryptor() -> None:
    """The work of the U-Net by the network itself: multiply-adds and `VALUE` for each output value, as in a run."""
    shape, params = (3, 13, 16), FedEDS(model_epochs=5, encryptor_epochs=20, encryptor_width=8)
    model = MODELS["cnn"].size(shape, 10)
    net, effort = unet(shape, 8, seed=0).eval(), 0
    import torch

    for layer, values in layer_outputs(net, torch.zeros(1, *shape)):
        weight = getattr(layer, "weight", None)
        if weight is not None and weight.ndim == 4:
            inputs = values // weight.shape[1] // 4 * weight.shape[0]  # of a transposed convolution, channel by channel
            transposed = isinstance(layer, torch.nn.ConvTranspose2d)
            effort += weight[0].numel() * (inputs if transposed else values)
        effort += VALUE * values
    own = model.operations + VALUE * model.values
    expected = 100 * (5 + 20 * (1 + effort / own))
    assert params.longest_training(ClientWork(100, 4, shape, 10, model)) == pytest.approx(expected, rel=0.01)


def test_the_exchange_of_dffke_takes_as_long_as_its_roles_say() -> None:
    """The roles' own cost, counted on the network, of five clients' 100 embeddings and as many of the memory."""
    shape, params = ((1, 28, 28), DFFKE(first_epochs=1, embeddings=100, private_steps=2, dimension=64, width=16))
    model = build("cnn", shape, 10, 0)
    cost = StepSamples(model, Pictures(shape, 10, (0.0,), (1.0,)), params)
    expected = cost.exchange(400, 400) + cost.teaching(200)
    work = ClientWork(300, 5, shape, 10, MODELS["cnn"].size(shape, 10))
    assert params.longest_training(work) == pytest.approx(expected, rel=0.01)


def test_edges_train_generators_and_are_evaluated_between_rounds() -> None:
    """50 steps of 32 generated samples, and four evaluations of 100 test samples, at a tenth of the speed."""
    edges = TierNodes(count=2, speed=0.1, tests=100)
    added = replace(WORK, edges=edges).seconds(FEELPGen()) - WORK.seconds(FEELPGen())
    assert added == pytest.approx(4 * (1.6 + 4 * PASS + STEPS) / 0.1)


SIDES = (8, 32, 128)
SMALLEST = {"fedfeat-cnn": 32, "celeba-cnn": 128}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, entry in MODELS.items() if entry.measure is not None])
def test_no_healthy_client_is_cut_off(name: str) -> None:
    """The simulation's cost, counted on the network itself, of 20 passes over 1,000 samples and an evaluation."""
    for side in SIDES[SIDES.index(SMALLEST.get(name, 8)) :]:
        shape, params = (3, side, side), FedAvg(epochs=20, batch_size=10)
        cost = cost_of(build(name, shape, 10, 0), torch.zeros(1, *shape), params.batch_size)
        seconds = cost(20_000, "train") + cost(500, "evaluate")
        for hardware in HARDWARE.values():
            speed = min(hardware.expected_speed, 1.0)
            work = RoundWork([MODELS[name].size(shape, 10)], shape, 10, TierNodes(1, speed, samples=1000, tests=500))
            (deadline,) = deadlines(work, params, [("cloud", [FAST], [FAST])], None).values()
            assert deadline > 2 * seconds / speed


def test_a_transfer_takes_the_slowest_link() -> None:
    assert transfer([FAST, SLOW], 4_000_000) == pytest.approx(0.15 + 32.0)
    assert transfer([FAST], 4_000_000) == pytest.approx(0.01)
    assert transfer([], 4_000_000) == 0.0
    assert transfer([FAST, LinkProfile(real=True)], 4_000_000) == pytest.approx(0.1 + 6.4)  # 5 mbit are assumed


def test_the_tier_above_the_clients_waits_for_transfer_and_training() -> None:
    """10 + 4 * (0.01 + 32.15) + 4 * 10 * 0.1717 = 145.5."""
    assert deadlines(WORK, FedAvg(), [("cloud", [FAST], [SLOW])], None) == {"cloud": 146.0}


def test_features_travel_up_next_to_the_model() -> None:
    """100 samples of 500 float32 features and a label of 8 bytes are 200,800 bytes, at 1 mbit 1.6064 s."""
    plain, with_features = (
        deadlines(WORK, FedFeat(epochs=1, retrain_epochs=epochs), [("cloud", [FAST], [SLOW])], None)["cloud"]
        for epochs in (0, 5)
    )
    assert plain == 146.0
    assert with_features == 152.0  # 145.51 + 4 * 1.6064 = 151.93
    assert DFFKE(embeddings=40).beside_model(100, 500) == 40 * 2008
    assert DFFKE(embeddings=40, exchange_epochs=0).beside_model(100, 500) == 0


def test_what_clients_send_one_another_counts() -> None:
    """A part of 1 MiB and 100 outputs of 10 float32 numbers are 1,052,576 bytes, at 1 mbit 8.42 s."""
    params = FedEDS(epochs=5, encryptor_epochs=1, encryptor_width=1, model_epochs=1)
    alone, together = (
        deadlines(WORK, replace(params, exchange=exchange), [("cloud", [FAST], [FAST])], None, across=[SLOW])["cloud"]
        for exchange in (False, True)
    )
    assert alone == 34.0  # 10 + 4 * 0.02 + 40 * (0.5 + 0.0717 + 0.0014) = 33.004
    assert together == 88.0  # 33.004 + 40 * 0.5 + 4 * (0.15 + 8.42) = 87.28
    assert DFFKE(embeddings=40).between_clients(100, 10) == 2 * 40 * 40
    assert DFFKE(exchange_epochs=0).between_clients(100, 10) == 0


def test_the_next_tier_waits_for_its_rounds() -> None:
    """The edge: 10 + 4 * 0.02 + 6.923 = 17.003; the cloud: 10 + 4 * 0.02 + 2 * 18 = 46.08."""
    tiers = [("edge", [FAST], [FAST]), ("cloud", [FAST], [FAST])]
    assert deadlines(WORK, HierFAVG(kappa2=2), tiers, None) == {"edge": 18.0, "cloud": 47.0}


def test_a_given_deadline_is_taken_as_it_is() -> None:
    tiers = [("edge", [FAST], [FAST]), ("cloud", [FAST], [FAST])]
    assert deadlines(WORK, OnlyEdge(), tiers, 2.5) == {"edge": 2.5, "cloud": 13.0}
    assert deadlines(WORK, FedAvg(), tiers, 2.5) == {"edge": 2.5, "cloud": 13.0}  # one round of edges, as for OnlyEdge


def test_a_peer_on_a_slow_link_may_be_silent_for_longer() -> None:
    """16 frames of 1514 bytes at 5470 bit/s take 35.4 s, and a round trip 1 s."""
    assert lost_after([PROFILES["lora-gateway"], FAST]) == math.ceil(4 + 2 * 16 * 1514 * 8 / 5470) == 75
    assert {lost_after([profile]) for name, profile in PROFILES.items() if name != "lora-gateway"} == {8.0}
    assert lost_after([LinkProfile(latency=2.0)]) == 16
    assert lost_after([LinkProfile(latency=2.0, rate=8.0, buffer_bytes=0)]) == 16  # nothing waits without a buffer
    assert lost_after([]) == 8
