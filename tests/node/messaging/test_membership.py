from __future__ import annotations

from node.messaging.membership import Membership


def test_who_is_there() -> None:
    membership = Membership(["a", "b", "c"])
    assert not membership.present
    membership.join("a")
    membership.join("b")
    membership.lose("a")
    assert membership.present == {"b"}
    membership.leave("b")
    assert not membership.present
    assert membership.left == {"b"}
    membership.join("b")
    assert membership.present == {"b"}
    assert not membership.left


def test_complete_when_every_expected_peer_was_seen_or_will_not_come() -> None:
    membership = Membership(["a", "b", "c"])
    membership.join("a")
    membership.lose("a")
    membership.join("b")
    assert not membership.complete
    membership.leave("c")
    assert membership.complete
    assert Membership([]).complete


def test_awaited_peers_may_still_answer_until_they_are_lost_or_leave() -> None:
    members = Membership([])
    members.awaited |= {"a", "b", "c", "d"}
    members.join("a")
    members.lose("b")
    members.leave("c")
    assert members.reachable == {"a", "d"}
    assert members.present == {"a"}
    for peer in ("a", "c", "d"):
        members.forget(peer)
    assert (members.reachable, members.left) == (set(), set())
