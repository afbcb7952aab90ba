"""Tests of the campaign: a fixed number of cases, the cases found before, and planted defects that it must find."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.campaign.canaries import CANARIES
from tests.campaign.case import Case
from tests.campaign.generate import generate
from tests.campaign.invariants import INVARIANTS
from tests.campaign.search import search, smallest
from tests.campaign.shrink import shrink
from tests.campaign.trial import Hosts

pytestmark = pytest.mark.slow

KEPT = sorted((Path(__file__).parent / "kept").glob("*.yaml"))
SEEDS = (2, 4, 5)  # the cheapest of the first ones
FOUND = {
    "fault-without-end": range(4, 5),
    "restore-lost": range(14, 15),
    "wrong-code": range(3, 4),
}  # seeds, if not the first ones
FAULTS = [{"round": 2, "node": "device-1", "action": "disconnect", "for": "1s"}]
SMALL = Case(
    "small",
    {
        **{"algorithm": {"name": "fedavg", "rounds": 2}, "model": "mlp", "data": {"samples_per_client": 30}},
        **{"topology": {"devices": 2}, "faults": FAULTS, "driver": "sim"},
    },
)
"""Shows most defects, and is carried out sooner than random cases."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts() as hosts:
        yield hosts


def test_random_scenarios(hosts: Hosts) -> None:
    outcomes = list(search(hosts, map(generate, SEEDS)))
    assert not any(each.broken for each in outcomes), "\n".join(each.told() for each in outcomes if each.broken)
    assert sum(each.refused for each in outcomes) <= len(SEEDS) / 2


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_was_found_before(hosts: Hosts, path: Path) -> None:
    (outcome,) = search(hosts, [Case.read(path)])
    assert not outcome.broken, outcome.told()


@pytest.mark.parametrize("name", CANARIES)
def test_a_planted_bug_is_found(hosts: Hosts, name: str) -> None:
    outcomes = search(hosts, chain([SMALL], map(generate, FOUND.get(name, range(1, 4)))), name)
    assert any(CANARIES[name].found_by in each.broken for each in outcomes)


def test_every_invariant_has_a_planted_bug() -> None:
    assert {canary.found_by for canary in CANARIES.values()} == set(INVARIANTS)


def test_a_case_that_fails_is_made_small(hosts: Hosts) -> None:
    faults = [{"action": "slow", "factor": 2.0, "node": "device-1", "round": 2}]
    algorithm = {"name": "fedavg", "rounds": 3}
    scenario = {"algorithm": algorithm, "topology": {"devices": 2}, "faults": faults, "driver": "sim"}
    (found,) = search(hosts, [Case("large", scenario)], "round-swallowed")
    small = smallest(hosts, found, "round-swallowed")
    assert small.scenario == {  # two rounds are needed: the missing second one breaks the invariant
        "algorithm": {"name": "fedavg", "rounds": 2},
        "topology": {"devices": 1},
        "driver": "sim",
    }


def test_what_is_needed_to_fail_stays() -> None:
    def fails(case: Case) -> bool:
        faults = case.scenario.get("faults", [])
        return any(fault.get("action") == "pause" for fault in faults) and _edges(case) > 1

    faults = [{"action": "crash", "node": "cloud"}, {"action": "pause", "node": "edge-0", "for": "3s"}]
    scenario = {"algorithm": {"name": "hierfavg"}, "topology": {"edges": 4}, "faults": faults, "links": {"a": {}}}
    small = shrink(Case("1", scenario), fails)
    assert small.scenario == {
        "algorithm": {"name": "hierfavg"},
        "topology": {"edges": 2},
        "faults": [{"action": "pause"}],
    }


def _edges(case: Case) -> int:
    return int(case.scenario.get("topology", {}).get("edges", 0))


def test_a_seed_is_a_name_of_a_case() -> None:
    assert generate(4711) == generate(4711)
    assert generate(4711).scenario != generate(4712).scenario


@pytest.mark.parametrize("seed", range(1, 10))
def test_a_case_is_read_as_it_was_written(tmp_path: Path, seed: int) -> None:
    path = tmp_path / f"{seed}.yaml"
    path.write_text(generate(seed).written())
    assert Case.read(path) == generate(seed)
