"""Which run goes to which host."""

from __future__ import annotations

from orchestrator.sweep.sharing import TRIES, Sharing


def shared(runs: int, **hosts: int) -> Sharing:
    sharing = Sharing()
    for host, places in hosts.items():
        sharing.join(host, places)
    for run in range(runs):
        sharing.add(run)
    return sharing


def all_taken(sharing: Sharing) -> list[tuple[int, str]]:
    taken = []
    while (each := sharing.take()) is not None:
        taken.append(each)
    return taken


def test_runs_go_in_order_to_the_host_with_most_free_places() -> None:
    sharing = shared(5, b=1, a=3)
    assert all_taken(sharing) == [(0, "a"), (1, "a"), (2, "a"), (3, "b")]
    assert sharing.waiting == 1
    sharing.done(3, "b")
    assert all_taken(sharing) == [(4, "b")]


def test_no_more_runs_are_wanted_than_have_a_place() -> None:
    assert not shared(0).wants
    sharing = shared(1, a=2)
    assert sharing.wants
    sharing.add(1)
    assert not sharing.wants
    sharing.take()
    assert not sharing.wants
    sharing.done(0, "a")
    assert sharing.wants


def test_the_runs_of_a_lost_host_come_before_all_others_and_go_elsewhere() -> None:
    sharing = shared(4, a=1, b=1)
    assert all_taken(sharing) == [(0, "a"), (1, "b")]
    sharing.leave("a")
    assert sharing.hosts == ["b"]
    assert sharing.again(0, "a")
    assert sharing.take() is None
    sharing.done(1, "b")
    assert all_taken(sharing) == [(0, "b")]


def test_a_run_avoids_the_host_where_it_got_no_result_if_another_has_a_place() -> None:
    sharing = shared(1, a=2, b=1)
    assert sharing.take() == (0, "a")
    assert sharing.again(0, "a")
    assert sharing.take() == (0, "b")
    sharing.leave("b")
    assert sharing.again(0, "b")
    assert sharing.take() == (0, "a")


def test_a_run_that_never_gets_a_result_is_given_up() -> None:
    sharing = shared(1, a=1)
    told = []
    for _ in range(TRIES):
        assert sharing.take() == (0, "a")
        told.append(sharing.again(0, "a"))
    assert told == [True, True, False]
    assert sharing.waiting == 0
    assert sharing.wants  # its place is free


def test_a_host_that_is_back_has_all_its_places() -> None:
    sharing = shared(2, a=1)
    sharing.take()
    sharing.leave("a")
    sharing.join("a", 1)
    sharing.again(0, "a")
    assert sharing.take() == (0, "a")
