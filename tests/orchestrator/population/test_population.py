from __future__ import annotations

import numpy as np
import pytest

from netem.profile import LinkProfile
from orchestrator.population.availability import Always
from orchestrator.population.population import (
    Distribution,
    Fixed,
    HardwareShare,
    LinkShare,
    Population,
    client_name,
    client_number,
)
from orchestrator.population.selection import Oort
from orchestrator.scenario.population.clients import DistributionSpec, LognormalSpec, UniformSpec

UP, DOWN = LinkProfile(latency=0.01, rate=1e6), LinkProfile(latency=0.01, rate=9e6)


def population(size: int = 20_000, speed: Distribution | None = None) -> Population:
    return Population(
        seed=1,
        size=size,
        selected=10,
        asked=13,
        selection=Oort(),
        availability=Always(size),
        hardware=[HardwareShare("slow", 0.3, 0.1), HardwareShare("fast", 0.7, 1.0)],
        speed=speed,
        links=[LinkShare("wifi", 0.6, UP, DOWN), LinkShare("lte", 0.4, UP, DOWN)],
        samples=DistributionSpec(lognormal=LognormalSpec(median=40, sigma=0.5, low=10, high=80)),
        alpha=None,
    )


def test_shares_are_those_of_the_clients() -> None:
    clients = population()
    # 20,000 draws: a standard deviation of at most 0.0035
    assert np.mean(clients.speeds == 0.1) == pytest.approx(0.3, abs=0.02)
    assert np.mean(clients.link_numbers == 0) == pytest.approx(0.6, abs=0.02)
    assert clients.hardware_name(int(np.argmin(clients.speeds))) == "slow"


def test_numbers_of_samples_follow_their_distribution() -> None:
    samples = population().sample_counts
    assert [float(each) for each in (samples.min(), np.median(samples), samples.max())] == [10, 40, 80]
    assert Fixed(7).draw(np.random.default_rng(1), 3).tolist() == [7, 7, 7]


def test_speeds_follow_their_distribution() -> None:
    clients = population(speed=DistributionSpec(uniform=UniformSpec(low=0.2, high=0.4)))
    assert 0.2 <= clients.speeds.min() < clients.speeds.max() <= 0.4
    assert clients.hardware_name(0) is None


def test_a_client_is_the_same_in_a_larger_population() -> None:
    small, large = population(100), population(1000)
    assert (small.speeds == large.speeds[:100]).all()
    assert (small.link_numbers == large.link_numbers[:100]).all()
    assert (small.sample_counts == large.sample_counts[:100]).all()


def test_the_plan_keeps_what_was_drawn_from() -> None:
    kept = population().to_json()
    assert kept["selection"]["name"] == "oort"
    assert kept["samples"] == {"lognormal": {"median": 40, "sigma": 0.5, "low": 10, "high": 80}}
    assert kept["quantiles"]["samples"] == {
        "0%": 10,
        "5%": kept["quantiles"]["samples"]["5%"],
        "50%": 40,
        **{"95%": 80, "100%": 80},
    }
    assert [each["name"] for each in kept["links"]] == ["wifi", "lte"]


def test_names_and_numbers_of_clients() -> None:
    assert client_name(48213) == "device-48213"
    assert client_number("device-48213") == 48213
