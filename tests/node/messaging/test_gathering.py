from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.messaging.gathering import KEPT, KEPT_OF_SENDER, Gather, Mailbox, Remark, needed
from node.messaging.wire import Message

PEERS = frozenset({"a", "b", "c", "d"})


def message(sender: str, round: int | None = 1, kind: str = "update", tag: int = 0) -> Message:
    return Message(kind, sender, round, {"tag": tag})


def begun(mailbox: Mailbox, round: int = 1, quorum: float = 1.0) -> Gather:
    gather = Gather("update", round, PEERS, quorum)
    assert mailbox.begin(gather) == []
    return gather


def fates(remarks: list[Remark]) -> list[tuple[str, str]]:
    return [(fate, each.sender) for fate, each in remarks]


@pytest.mark.parametrize(
    ("quorum", "members", "need"),
    [(1.0, 4, 4), (0.5, 4, 2), (0.5, 5, 3), (0.51, 100, 51), (0.55, 100, 55), (0.0, 4, 1), (0.01, 4, 1), (1.0, 0, 0)],
)
def test_quorum(quorum: float, members: int, need: int) -> None:
    assert needed(quorum, members) == need


@given(st.floats(0, 1), st.integers(1, 1000))
def test_a_quorum_is_between_one_and_all(quorum: float, members: int) -> None:
    assert 1 <= needed(quorum, members) <= members


def test_a_quorum_by_number() -> None:
    """1 is one peer, where 1.0 is all of them; of those who are left, all, if they are fewer."""
    assert [Gather("update", 1, PEERS, None, count).need(set()) for count in (1, 2, 4)] == [1, 2, 4]
    assert Gather("update", 1, PEERS, 1.0).need(set()) == 4
    assert [Gather("update", 1, PEERS, None, 3).need(left) for left in ({"a"}, {"a", "b"}, set(PEERS))] == [3, 2, 0]


def test_complete_when_all_who_are_there_answered() -> None:
    mailbox = Mailbox("discard")
    gather = begun(mailbox, quorum=0.5)
    mailbox.put(message("a"))
    assert not gather.complete(PEERS, set())
    mailbox.put(message("b"))
    assert not gather.complete(PEERS, set())  # a quorum, but two are still there
    assert gather.complete({"a", "b"}, set())  # the other two are lost
    assert not gather.complete({"a", "b", "c"}, set())


def test_the_lost_are_waited_for_as_long_as_the_quorum_needs_them() -> None:
    mailbox = Mailbox("discard")
    gather = begun(mailbox, quorum=0.75)
    mailbox.put(message("a"))
    mailbox.put(message("b"))
    assert not gather.complete({"a", "b"}, set())
    assert gather.complete({"a", "b"}, {"c", "d"})  # they left: two of two answered
    assert gather.result(set()) == []
    assert len(gather.result({"c", "d"})) == 2


def test_no_one_is_waited_for_when_all_have_left() -> None:
    gather = begun(Mailbox("discard"))
    assert gather.complete(set(), PEERS)
    assert gather.result(PEERS) == []


def test_answers_come_sorted_and_the_last_of_a_peer_counts() -> None:
    mailbox = Mailbox("discard")
    gather = begun(mailbox, quorum=0.5)
    for sender, tag in (("c", 1), ("a", 2), ("c", 3)):
        assert mailbox.put(message(sender, tag=tag)) == []
    assert [(each.sender, each.fields["tag"]) for each in gather.result(set())] == [("a", 2), ("c", 3)]


def test_only_the_kind_the_round_and_the_peers_asked_for_are_answers() -> None:
    mailbox = Mailbox("discard")
    gather = begun(mailbox)
    for other in (message("a", kind="data"), message("z"), message("b", round=2)):
        mailbox.put(other)
    assert not gather.answers
    mailbox.put(message("c", round=None))
    assert set(gather.answers) == {"c"}


def test_messages_that_came_early_wait_for_their_round() -> None:
    mailbox = Mailbox("discard")
    mailbox.put(message("a", round=1))
    mailbox.put(message("b", round=2))
    first = begun(mailbox, round=1)
    assert set(first.answers) == {"a"}
    mailbox.end(first)
    assert set(begun(mailbox, round=2).answers) == {"b"}


@pytest.mark.parametrize("late", ["discard", "keep"])
def test_late_messages_are_reported_whenever_they_come(late: Literal["discard", "keep"]) -> None:
    mailbox = Mailbox(late)
    mailbox.put(message("d", round=1))
    first = Gather("update", 2, PEERS, 0.5)
    assert fates(mailbox.begin(first)) == [("late", "d")]
    assert fates(mailbox.put(message("a", round=1))) == [("late", "a")]
    mailbox.end(first)
    assert fates(mailbox.put(message("b", round=2))) == [("late", "b")]
    assert mailbox.put(message("b", round=3)) == []


def test_late_messages_are_thrown_away() -> None:
    mailbox = Mailbox("discard")
    mailbox.end(begun(mailbox, round=1))
    mailbox.put(message("a", round=1))
    second = begun(mailbox, round=2)
    mailbox.end(second)
    assert not second.answers
    assert mailbox.take(["update"]) == (None, [])


def test_late_messages_that_are_kept_stand_in_once_for_who_does_not_answer() -> None:
    mailbox = Mailbox("keep")
    mailbox.end(begun(mailbox, round=1))
    for sender in ("a", "b"):
        mailbox.put(message(sender, round=1))
    second = begun(mailbox, round=2, quorum=0.5)
    mailbox.put(message("b", round=2))
    assert not second.complete(PEERS, set())  # a stand-in keeps nobody from waiting for the real answer
    mailbox.end(second)
    assert [(each.sender, each.round) for each in second.result(set())] == [("a", 1), ("b", 2)]
    third = begun(mailbox, round=3)
    mailbox.end(third)
    assert not third.answers


def test_two_gatherings_of_a_kind_do_not_disturb_each_other() -> None:
    mailbox = Mailbox("discard")
    one, other = Gather("update", 5, frozenset("a"), 1.0), Gather("update", 1, frozenset("b"), 1.0)
    mailbox.begin(one)
    mailbox.begin(other)
    assert mailbox.put(message("b", round=1)) == []
    assert mailbox.put(message("a", round=5)) == []
    assert one.answers.keys() == {"a"}
    assert other.answers.keys() == {"b"}


def test_taking_gives_the_newest_of_a_sender_and_reports_what_it_supersedes() -> None:
    mailbox = Mailbox("discard")
    for round in (1, 2, 3):
        mailbox.put(message("a", round=round, kind="model"))
    taken, remarks = mailbox.take(["model"])
    assert taken is not None
    assert taken.round == 3
    assert [(fate, each.round) for fate, each in remarks] == [("superseded", 1), ("superseded", 2)]
    assert mailbox.take(["model"]) == (None, [])


def test_senders_and_kinds_take_turns() -> None:
    mailbox = Mailbox("discard")
    for sender, kind in (("b", "data"), ("a", "data"), ("a", "model"), ("b", "other")):
        mailbox.put(message(sender, kind=kind))
    taken = [mailbox.take(["model", "data"])[0] for _ in range(4)]
    found = [(each.sender, each.kind) if each else None for each in taken]
    assert found == [("b", "data"), ("a", "data"), ("a", "model"), None]


def test_what_no_one_takes_does_not_pile_up() -> None:
    mailbox = Mailbox("discard")
    remarks = [remark for round in range(KEPT + 3) for remark in mailbox.put(message("a", round=round))]
    assert [each.round for _, each in remarks] == [0, 1, 2]
    assert {fate for fate, _ in remarks} == {"superseded"}


def diverged(sender: str, round: int | None = 1) -> Message:
    return Message("update", sender, round, {}, {"w": np.array([1.0, np.nan])})


def test_an_answer_that_is_not_finite_is_left_out_and_not_waited_for() -> None:
    mailbox = Mailbox("discard")
    gather = begun(mailbox, quorum=0.75)
    for sender in "abc":
        mailbox.put(message(sender))
    assert fates(mailbox.put(diverged("d"))) == [("not_finite", "d")]
    assert gather.complete(PEERS, set())
    assert [answer.sender for answer in gather.result(set())] == ["a", "b", "c"]


def test_answers_that_are_not_finite_are_no_quorum() -> None:
    mailbox = Mailbox("discard")
    gather = begun(mailbox, quorum=0.75)
    for sender in "cd":
        mailbox.put(diverged(sender))
    for sender in "ab":
        mailbox.put(message(sender))
    assert gather.complete(PEERS, set())  # all have answered, there is nothing to wait for
    assert gather.result(set()) == []


def test_what_waits_for_its_round_is_left_out_then() -> None:
    mailbox = Mailbox("discard")
    assert mailbox.put(diverged("a", round=2)) == []
    gather = Gather("update", 2, PEERS, 0.5)
    assert fates(mailbox.begin(gather)) == [("not_finite", "a")]
    assert gather.missing == {"b", "c", "d"}


def test_a_good_answer_makes_up_for_one_that_was_not_finite() -> None:
    mailbox = Mailbox("discard")
    gather = begun(mailbox)
    mailbox.put(diverged("a"))
    mailbox.put(message("a"))
    mailbox.put(diverged("a"))
    assert list(gather.answers) == ["a"]


def test_a_late_message_that_is_not_finite_stands_in_for_no_one() -> None:
    mailbox = Mailbox("keep")
    mailbox.end(begun(mailbox, 1, quorum=0.25))
    assert fates(mailbox.put(diverged("a", round=1))) == [("not_finite", "a")]
    second = begun(mailbox, 2, quorum=0.25)
    mailbox.end(second)
    assert second.result(set()) == []


def waiting(mailbox: Mailbox) -> list[Message]:
    return [each for kinds in mailbox._waiting.values() for of_kind in kinds.values() for _, each in of_kind]


def test_a_sender_has_few_messages_waiting_whatever_their_kinds_and_rounds() -> None:
    mailbox = Mailbox("discard")
    mailbox.put(message("b", kind="model"))
    remarks = [mailbox.put(message("a", number, f"kind-{number % 50}", number)) for number in range(1000)]
    assert len(waiting(mailbox)) == KEPT_OF_SENDER + 1
    assert sum(map(len, remarks)) == 1000 - KEPT_OF_SENDER
    left, _ = mailbox.take(["model"])
    assert left is not None  # of another
    kept = {each.fields["tag"] for each in waiting(mailbox)}
    assert kept == set(range(1000 - KEPT_OF_SENDER, 1000))


def test_a_sender_has_few_bytes_waiting_but_always_the_newest_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.messaging.gathering.KEPT_BYTES", 1000)
    mailbox = Mailbox("discard")
    for round, size in ((1, 400), (2, 400), (3, 400), (4, 5000)):
        mailbox.put(Message("update", "a", round, {}, {"w": np.zeros(size, np.uint8)}))
        if round == 3:
            assert [each.round for each in waiting(mailbox)] == [2, 3]
    assert [each.round for each in waiting(mailbox)] == [4]


def test_what_one_sender_alone_may_say_is_not_taken_from_another() -> None:
    mailbox = Mailbox("discard")
    mailbox.put(message("child", kind="model"))
    assert mailbox.take(["model"], "parent") == (None, [])
    mailbox.put(message("parent", kind="model"))
    taken, _ = mailbox.take(["model"], "parent")
    assert taken is not None
    assert taken.sender == "parent"


def test_enough_answers_end_the_wait_in_spite_of_others() -> None:
    mailbox = Mailbox("discard")
    gather = Gather("update", 1, PEERS, 0.5, enough=2)
    mailbox.begin(gather)
    for sender in ("c", "a", "b"):  # b answers at the same instant, before anybody looks
        assert gather.complete(PEERS, set()) is (sender == "b")
        mailbox.put(message(sender))
    assert [each.sender for each in gather.result(set())] == ["a", "c"]  # the first two, sorted


def test_fewer_than_enough_are_waited_for_like_any() -> None:
    gather = Gather("update", 1, PEERS, 0.5, enough=4)
    gather.answer(message("a"))
    gather.answer(message("b"))
    assert not gather.complete({"a", "b", "c"}, set())
    assert gather.complete({"a", "b"}, set())


def test_a_forgotten_peer_restarts() -> None:
    mailbox = Mailbox("keep")
    mailbox.end(begun(mailbox, round=5))
    assert fates(mailbox.put(message("a", round=3))) == [("late", "a")]
    mailbox.put(message("a", round=7))
    mailbox.forget({"a"})
    assert mailbox.take(["update"]) == (None, [])
    assert mailbox.put(message("a", round=3)) == []  # not late: nothing is known of it


def test_rounds_start_at_0_and_an_earlier_one_is_late_after_a_gathering_began() -> None:
    mailbox = Mailbox("discard")
    assert mailbox.put(message("a", round=0)) == []
    mailbox.end(begun(mailbox, round=0))
    assert fates(mailbox.put(message("a", round=0))) == [("late", "a")]
    mailbox = Mailbox("discard")
    begun(mailbox, round=1)
    assert fates(mailbox.put(message("a", round=0))) == [("late", "a")]


def test_an_earlier_gathering_does_not_make_later_rounds_early_again() -> None:
    mailbox = Mailbox("discard")
    mailbox.end(begun(mailbox, round=5))
    begun(mailbox, round=2)
    assert fates(mailbox.put(message("a", round=3))) == [("late", "a")]
    assert mailbox.put(message("a", round=6)) == []


def test_a_gathering_of_no_quorum_needs_no_answer_but_waits_for_who_is_there() -> None:
    gather = Gather("update", 1, PEERS, 0)
    assert gather.need(set()) == 0
    assert not gather.complete({"a"}, set())
    assert gather.complete(set(), set())
    gather.answer(message("a"))
    assert [each.sender for each in gather.result(set())] == ["a"]


def test_a_number_in_place_of_a_quorum_may_be_left_out() -> None:
    assert Gather("update", 1, PEERS, None).need(set()) == 0


def test_sixteen_of_a_kind_and_64_of_a_sender_wait() -> None:
    mailbox = Mailbox("discard")
    for number in range(80):
        of_kind, round = divmod(number, 16)
        remarks = mailbox.put(message("a", round=round + 1, kind=f"kind-{of_kind}"))
        assert bool(remarks) is (number >= 64)
    mailbox = Mailbox("discard")
    for round in range(17):
        assert bool(mailbox.put(message("a", round=round))) is (round == 16)


def test_256_mib_of_a_sender_wait() -> None:
    mailbox = Mailbox("discard")
    half = np.broadcast_to(np.zeros(1, np.uint8), (1 << 27,))  # of one byte of memory
    for round, count in ((1, 0), (2, 0), (3, 1)):
        assert len(mailbox.put(Message("update", "a", round, {}, {"w": half}))) == count
    assert len(mailbox.put(Message("small", "a", 1, {}, {"w": np.zeros(1)}))) == 1


def test_messages_without_a_round_or_of_another_do_not_replace_each_other() -> None:
    mailbox = Mailbox("discard")
    for round, tag in ((1, 1), (1, 2), (2, 3), (None, 4), (None, 5)):
        assert mailbox.put(message("a", round=round, tag=tag)) == []
    assert [each.fields["tag"] for each in waiting(mailbox)] == [2, 3, 4, 5]


def test_the_message_that_waited_longest_is_taken_first() -> None:
    """By its newest message, whatever its sender or kind."""
    mailbox = Mailbox("discard")
    for sender, kind in (("a", "model"), ("b", "data"), ("a", "model"), ("c", "data")):
        mailbox.put(message(sender, round=len(waiting(mailbox)), kind=kind))
    taken = [mailbox.take(["data", "model"])[0] for _ in range(3)]
    assert [each.sender for each in taken if each] == ["b", "a", "c"]


def test_those_who_wait_are_listed_by_kind_and_sender() -> None:
    mailbox = Mailbox("discard")
    for sender, kind in (("a", "model"), ("a", "data"), ("b", "data")):
        mailbox.put(message(sender, kind=kind))
    assert list(mailbox.waiting()) == [("model", "a"), ("data", "a"), ("data", "b")]
    assert list(mailbox.waiting({"b", "z"})) == [("data", "b")]
    assert list(mailbox.waiting(set())) == []


def test_who_answered_and_then_failed_still_counts_for_the_quorum() -> None:
    """Its first answer is there; of one without an answer only the absence of NaN would be waited for."""
    mailbox = Mailbox("discard")
    gather = begun(mailbox, quorum=0.5)
    mailbox.put(message("a"))
    mailbox.put(diverged("a"))
    assert not gather.complete(set(), set())  # one of two
    mailbox.put(diverged("b"))
    assert gather.complete(set(), set())  # nothing better will come of b
    assert gather.result(set()) == []
