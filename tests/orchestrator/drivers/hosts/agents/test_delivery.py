from __future__ import annotations

from typing import Any

import msgpack
import pytest

from orchestrator.drivers.hosts.agents.delivery import Delivery


def arrived(side: Delivery, *sent: bytes) -> list[Any]:
    taken = [side.take(msgpack.unpackb(data)) for data in sent]
    return [message for message in taken if message is not None]


def test_each_message_arrives_once() -> None:
    ours, theirs = Delivery(), Delivery()
    first, second = ours.packed({"type": "a"}), ours.packed({"type": "b"})
    assert arrived(theirs, first, first, second, first) == [{"type": "a"}, {"type": "b"}]


def test_none_is_taken_before_one_that_is_missing() -> None:
    ours, theirs = Delivery(), Delivery()
    ours.packed({"type": "lost"})
    assert arrived(theirs, ours.packed({"type": "b"})) == []
    assert arrived(theirs, *ours.unconfirmed()) == [{"type": "lost"}, {"type": "b"}]


def test_what_is_confirmed_is_not_repeated() -> None:
    ours, theirs = Delivery(), Delivery()
    arrived(theirs, ours.packed({"type": "a"}))
    late = ours.packed({"type": "b"})
    arrived(ours, theirs.packed_once({"type": "beat"}))
    assert ours.unconfirmed() == [late]


def test_a_message_without_a_number_is_always_taken() -> None:
    ours, theirs = Delivery(), Delivery()
    beat = ours.packed_once({"type": "beat"})
    assert arrived(theirs, beat, beat) == 2 * [{"type": "beat", "heard": 0}]


def test_a_message_may_have_any_fields() -> None:
    ours, theirs = Delivery(), Delivery()
    message = {"type": "notice", "number": 7, "heard": "x", "message": None}
    assert arrived(theirs, ours.packed(message)) == [message]


def test_a_message_that_cannot_be_sent_takes_no_number() -> None:
    ours, theirs = Delivery(), Delivery()
    with pytest.raises(TypeError):
        ours.packed({"type": object()})
    assert arrived(theirs, ours.packed({"type": "a"})) == [{"type": "a"}]
