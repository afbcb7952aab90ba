from __future__ import annotations

import numpy as np

from node.messaging.contributions import Contributions
from node.messaging.gathering import Gather
from node.messaging.wire import Message

W = {"w": np.zeros(1)}


def update(sender: str, kind: str = "update") -> Message:
    return Message(kind, sender, 1, {}, W)


def gathered(noted: Contributions, *senders: str, quorum: float | None = 0.5) -> None:
    gather = Gather("update", 1, frozenset("abc"), quorum)
    noted.gathered(gather, [update(sender) for sender in senders])


def test_each_sender_is_reported_once() -> None:
    noted = Contributions()
    gathered(noted, "b", "a")
    assert noted.news(gathered=True, kinds=None) == [("update", ["a", "b"])]
    gathered(noted, "a", "c")
    assert noted.news(gathered=True, kinds=None) == [("update", ["c"])]
    noted.forget(["a"])
    gathered(noted, "a", "c")
    assert noted.news(gathered=True, kinds=None) == [("update", ["a"])]


def test_what_is_refused_does_not_count_and_the_last_one_abandons_the_gathering() -> None:
    noted = Contributions()
    gathered(noted, "a", "b")
    assert noted.refuse(update("a")) is None
    assert noted.refuse(update("a")) is None  # twice is once
    assert noted.refuse(update("b")) == ("update", 1)
    assert noted.refuse(update("b")) is None
    assert noted.news(gathered=True, kinds=None) == []
    gathered(noted, "a", quorum=0)  # it needs no answers
    assert noted.refuse(update("a")) is None


def test_what_is_received_counts_with_tensors_until_the_same_kind_is_received_again() -> None:
    noted = Contributions()
    noted.received(update("a"))
    noted.received(Message("request", "b", 1, {}, {}))
    assert noted.news(gathered=True, kinds=None) == []
    assert noted.news(gathered=False, kinds=["other"]) == []
    assert noted.refuse(update("a")) is None
    assert noted.news(gathered=False, kinds=["update"]) == []
    noted.received(update("c"))
    assert noted.news(gathered=False, kinds=["update"]) == [("update", ["c"])]


def test_kinds_that_were_never_waited_for() -> None:
    noted = Contributions()
    noted.want(["update"])
    noted.leave([("update", "a"), ("updates", "b"), ("updates", "a")])
    assert noted.unreceived() == {"updates": ["a", "b"]}
