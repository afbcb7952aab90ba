from __future__ import annotations

import pytest

from node.algorithms.feelpgen.parameters import FEELPGen
from node.algorithms.parameters import FedAvg, HierFAVG
from node.assignment import Relation
from node.messaging.numbering import EdgeRounds
from tests.node.assignments import Nodes


@pytest.mark.parametrize(
    ("edge_round", "round"), [(1, 1), (2, 1), (3, 1), (4, 2), (6, 2), (7, 3)]
)  # three edge rounds in each round: 1 2 3 | 4 5 6 | 7 ...
def test_an_edge_round_belongs_to_a_round(edge_round: int, round: int) -> None:
    rounds = EdgeRounds(3, frozenset({"device-0-0"}))
    assert rounds.numbers(edge_round, "device-0-0") == {"round": round, "edge_round": edge_round}


def test_messages_of_others_are_numbered_by_round() -> None:
    rounds = EdgeRounds(3, frozenset({"device-0-0"}))
    assert rounds.numbers(4, "cloud") == {"round": 4}
    assert rounds.numbers(None, "device-0-0") == {"round": None}
    assert rounds.numbers(0, "device-0-0") == {"round": 0}  # before the first


def test_without_edge_rounds_there_is_one_number() -> None:
    assert EdgeRounds().numbers(4, "device-0-0") == {"round": 4}


def test_parameters_say_how_many_edge_rounds_a_round_has() -> None:
    assert (HierFAVG(kappa2=5).edge_rounds, FEELPGen(inner_rounds=3).edge_rounds, FedAvg().edge_rounds) == (5, 3, 1)


def test_edges_number_with_their_devices_and_devices_with_their_edge() -> None:
    nodes = Nodes("cloud", "edge-0", "device-0")
    relations: dict[str, dict[str, Relation]] = {
        "cloud": {"edge-0": "child"},
        "edge-0": {"cloud": "parent", "device-0": "child"},
        "device-0": {"edge-0": "parent"},
    }
    found = {}
    for name, peers in relations.items():
        assignment = nodes.assignment(name, peers)
        found[name] = EdgeRounds.of(assignment, HierFAVG(kappa2=5))
        for one in (HierFAVG(kappa2=1), FedAvg(), object()):
            assert EdgeRounds.of(assignment, one) == EdgeRounds(1, frozenset())
    assert found == {
        "cloud": EdgeRounds(),
        "edge-0": EdgeRounds(5, frozenset({"device-0"})),
        "device-0": EdgeRounds(5, frozenset({"edge-0"})),
    }
    assert EdgeRounds.of(nodes.assignment("edge-0", relations["edge-0"]), HierFAVG(kappa2=2)).within == 2
