"""Selection of clients, by numbers worked out by hand."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from orchestrator.population.selection import (
    ClientHistory,
    LeastAvailable,
    Oort,
    UniformSelection,
    drawn,
    exploration,
    preferred_duration,
    select,
    utilities,
)


def seen_of(outcomes: dict[int, list[tuple[int, float, float | None]]], clients: int = 6) -> ClientHistory:
    """What was seen after rounds with these outcomes: (client, seconds, utility)."""
    seen = ClientHistory(clients)
    for round, found in outcomes.items():
        seen.end_round(round, found)
    return seen


def chosen(
    params: UniformSelection | LeastAvailable | Oort, seen: ClientHistory, count: int, round: int = 1, seed: int = 1
) -> list[int]:
    n = seen.clients
    return select(params, seed, round, count, np.ones(n, bool), np.ones(n), seen)


def test_uniform_selection_gives_every_client_that_is_there_the_same_chance() -> None:
    there = np.array([True, True, False, True, True])
    seen = ClientHistory(5)
    counts: Counter[int] = Counter()
    for round in range(1, 2001):
        found = select(UniformSelection(), 1, round, 2, there, np.ones(5), seen)
        assert len(set(found)) == 2
        counts.update(found)
    assert counts[2] == 0
    # 2 of 4 in 2,000 rounds: 1,000 each, with a standard deviation of √(2000 · ½ · ½) = 22
    assert all(abs(counts[client] - 1000) < 110 for client in (0, 1, 3, 4))


def test_clients_of_one_round_may_be_selected_one_by_one() -> None:
    """Each draw of a round is another one, and equal for an equal seed. The first is that of the round as a whole."""

    def drawn_in(round: int) -> list[list[int]]:
        return [
            select(UniformSelection(), 1, round, 3, np.ones(1000, bool), np.ones(1000), ClientHistory(1000), draw)
            for draw in range(3)
        ]

    found = drawn_in(4)
    assert found == drawn_in(4)
    assert len({tuple(each) for each in found + drawn_in(5)}) == 6
    assert found[0] == select(UniformSelection(), 1, 4, 3, np.ones(1000, bool), np.ones(1000), ClientHistory(1000))


def test_a_round_gets_as_many_clients_as_are_there() -> None:
    there = np.array([False, True, False])
    assert select(UniformSelection(), 1, 1, 2, there, np.ones(3), ClientHistory(3)) == [1]


@pytest.mark.parametrize("params", [UniformSelection(), LeastAvailable(), Oort()])
def test_selection_is_a_function_of_seed_round_and_what_was_seen(
    params: UniformSelection | LeastAvailable | Oort,
) -> None:
    seen = seen_of({1: [(0, 1.0, 5.0), (1, 2.0, 3.0)]}, clients=50)
    again = seen_of({1: [(0, 1.0, 5.0), (1, 2.0, 3.0)]}, clients=50)
    assert chosen(params, seen, 10, round=2) == chosen(params, again, 10, round=2)
    assert chosen(params, seen, 10, round=2) != chosen(params, seen, 10, round=3)
    assert chosen(params, seen, 10, round=2) != chosen(params, seen, 10, round=2, seed=2)


def test_least_available_clients_come_first() -> None:
    seen = ClientHistory(4)
    for there in ([1, 1, 0, 1], [1, 1, 0, 0], [1, 0, 1, 0]):  # there 3, 2, 1 and 1 of 3 times
        seen.look(np.array(there, bool))
    assert chosen(LeastAvailable(), seen, 2) == [2, 3]
    assert chosen(LeastAvailable(), seen, 3) == [1, 2, 3]


def test_exploration_decays_to_its_least_value() -> None:
    p = Oort(exploration=0.9, exploration_decay=0.5, exploration_least=0.2)
    assert [exploration(p, round) for round in (1, 2, 3, 4)] == [0.9, 0.45, 0.225, 0.2]
    assert exploration(Oort(exploration=0.1, exploration_least=0.2), 5) == 0.1  # never above what was asked for


def test_utility_of_clients_worked_example() -> None:
    # Two rounds: client 0 answered in round 1 after 4 s, client 1 in round 2 after 8 s. Round 3 is to come, T is 4 s.
    seen = seen_of({1: [(0, 4.0, 10.0)], 2: [(1, 8.0, 20.0)]})
    p = Oort(alpha=2.0, clip=1.0, pace=4.0)
    found = utilities(p, seen, np.array([0, 1]), round=3)
    uncertain = [math.sqrt(0.1 * math.log(3) / last) for last in (1, 2)]
    assert found == pytest.approx([10 + uncertain[0], (20 + uncertain[1]) * (4 / 8) ** 2])


def test_utilities_above_the_quantile_are_cut() -> None:
    seen = seen_of({1: [(client, 1.0, utility) for client, utility in enumerate([1.0, 2.0, 3.0, 100.0])]})
    found = utilities(Oort(clip=0.5), seen, np.arange(4), round=1)  # log 1 is 0, and all took the median duration
    assert found == pytest.approx([1.0, 2.0, 2.5, 2.5])  # the median of 1, 2, 3 and 100


def test_a_selected_client_that_did_not_answer_keeps_its_utility() -> None:
    seen = seen_of({1: [(0, 1.0, 10.0), (1, 3.0, None)], 2: [(0, 5.0, None)]})
    assert seen.asked.tolist() == [2, 1, 0, 0, 0, 0]
    assert seen.utility[:2].tolist() == [10.0, 0.0]
    assert seen.duration[:2].tolist() == [5.0, 3.0]
    assert seen.gained == [10.0, 0.0]


def test_the_pacer_raises_the_preferred_duration_when_less_is_gained() -> None:
    p = Oort(window=2, pace=3.0)
    rounds: dict[int, list[tuple[int, float, float | None]]]
    rounds = {round: [(0, 1.0, utility)] for round, utility in enumerate([5.0, 5.0, 4.0, 4.0, 9.0, 9.0], start=1)}
    assert preferred_duration(p, seen_of({})) == 3.0
    assert preferred_duration(p, seen_of({r: rounds[r] for r in (1, 2, 3)})) == 3.0
    assert preferred_duration(p, seen_of({r: rounds[r] for r in (1, 2, 3, 4)})) == 6.0  # 10, then 8
    assert preferred_duration(p, seen_of(dict(rounds))) == 6.0  # 8, then 18: no more


def test_without_a_pace_the_first_answers_say_what_is_preferred() -> None:
    assert preferred_duration(Oort(), seen_of({1: [(0, 1.0, 1.0), (1, 2.0, 1.0), (2, 9.0, 1.0)]})) == 2.0
    assert preferred_duration(Oort(), ClientHistory(3)) == math.inf


def test_oort_exploits_the_best_known_clients_and_explores_others() -> None:
    seen = seen_of({1: [(0, 1.0, 100.0), (1, 1.0, 90.0), (2, 1.0, 1.0), (3, 1.0, 1.0)]}, clients=8)
    p = Oort(exploration=0.5, exploration_least=0.5, cutoff=1.0)
    found = chosen(p, seen, 4, round=2)
    assert found[:2] == [0, 1]  # the two best of those that were asked
    assert set(found[2:]) <= {4, 5, 6, 7}


def test_oort_takes_known_clients_if_none_is_new_and_new_ones_if_none_is_known() -> None:
    assert len(chosen(Oort(), ClientHistory(6), 3)) == 3
    everybody = seen_of({1: [(client, 1.0, 1.0) for client in range(6)]})
    assert len(chosen(Oort(), everybody, 3, round=2)) == 3


def test_oort_selects_as_many_of_clients_with_negative_losses() -> None:
    negative = seen_of({1: [(client, 1.0, -1.0 - client) for client in range(6)]})
    assert chosen(Oort(exploration=0), negative, 4) == [0, 1, 2, 3]


def test_oort_leaves_clients_alone_that_were_selected_often() -> None:
    seen = seen_of({round: [(0, 1.0, 100.0), (1, 1.0, 100.0)] for round in (1, 2)})
    assert not {0, 1} & set(chosen(Oort(most=2), seen, 4, round=3))
    assert len(chosen(Oort(most=2), seen, 5, round=3)) == 5  # unless there are too few others


def test_clients_are_drawn_in_proportion_to_their_weights() -> None:
    random = np.random.default_rng(1)
    first = Counter(int(drawn(random, np.arange(3), np.array([1.0, 3.0, 0.0]), 1)[0]) for _ in range(4000))
    assert first[2] == 0
    # 3 of 4 draws: 3,000, with a standard deviation of √(4000 · ¾ · ¼) = 27
    assert abs(first[1] - 3000) < 140
    assert set(drawn(random, np.arange(3), np.array([1.0, 3.0, 0.0]), 3).tolist()) == {0, 1, 2}
