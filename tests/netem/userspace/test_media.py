"""Links that cross channels of shared media: first frames on a clock of our own, then real packets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from netem.profile import FULL_FRAME, LinkProfile
from netem.userspace import flight
from netem.userspace.frame import HEADER, NEEDS_CHECKSUM, TCP_IPV6
from netem.userspace.segments import segments_together
from netem.userspace.switch import Switch
from tests.netem.measured import wait_until
from tests.netem.ports import Held
from tests.netem.traffic import transfer
from tests.netem.userspace.test_switch import IMPAIRMENTS
from tests.netem.wiring import Lab

FRAME_TIME = 8 * FULL_FRAME / 10e6  # of a full frame in a channel of 10 Mbit/s
CELL = {"rate": 10e6, "share": "fair", "buffer": 0.1, "rates": {}}


class Network:
    """A switch on a clock that only we move, with nodes a, b and c; b and c send to a through channels."""

    def __init__(self, profile: dict[str, Any] | None = None, **crossings: list[list[str]]) -> None:
        self.now = 0.0
        self.switch = Switch(clock=lambda: self.now)
        self.nodes = {name: Held(name, bytes(5) + name.encode(), []) for name in "abc"}
        self.switch.ports = self.nodes  # type: ignore[assignment]
        for name in ("cell-0", "cell-1", "backhaul"):
            self.ask("channel", name=name, profile=CELL)
        for source, route in crossings.items():
            self.ask("link", source=source, target="a", profile=profile or {}, seed=1, crossings=route)

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        reply = self.switch.handle({"op": op, **arguments})
        assert "error" not in reply, reply
        return reply

    def send(self, source: str, number: int = 1, size: int = FULL_FRAME, mark: int = 0) -> None:
        frame = bytes(10) + self.nodes["a"].mac + bytes(6) + bytes([mark])
        self.nodes[source].packets += [frame.ljust(10 + size, b"\0")] * number
        while self.nodes[source].packets:
            self.switch.forward(self.nodes[source])  # type: ignore[arg-type]
        self.switch.flight.deliver()

    def wait(self, seconds: float) -> list[tuple[float, int]]:
        """Go on for so long; the times at which frames came to a, and their marks."""
        end, came = self.now + seconds, []
        while True:
            due = self.switch.flight.deliver()
            came += [(self.now, packet[22]) for packet in self.nodes["a"].sent]
            self.nodes["a"].sent.clear()
            if due is None or due > end:
                self.now = end
                return came
            self.now = max(self.now, due)

    def link(self, source: str) -> dict[str, Any]:
        links: list[dict[str, Any]] = self.ask("counters")["links"]
        return next(link for link in links if link["source"] == source)

    def channels(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["channel"], row["member"]): row for row in self.ask("counters")["channels"]}


def adds_up(link: dict[str, Any]) -> bool:
    gone = ("delivered", "lost", "overflowed", "cut_dropped")
    return bool(link["offered"] + link["duplicated"] == sum(link[name] for name in gone))


def test_a_packet_waits_for_its_own_rate_then_for_each_channel_then_propagates() -> None:
    network = Network({"latency": "20ms", "rate": "5mbit"}, b=[["cell-0", "b"], ["backhaul", "edge"]])
    network.send("b", 3)
    times = [at for at, _ in network.wait(1.0)]
    own = 2 * FRAME_TIME
    assert times == pytest.approx([(place + 1) * own + 2 * FRAME_TIME + 0.02 for place in range(3)])
    assert {key: row["packets"] for key, row in network.channels().items()} == {
        ("cell-0", "b"): 3,
        ("backhaul", "edge"): 3,
    }
    link = network.link("b")
    assert (link["offered"], link["delivered"], link["delivered_bytes"]) == (3, 3, 3 * FULL_FRAME)


def test_links_at_rest_are_reported_once() -> None:
    """Counters of a thousand links would hold packets up. Only of those with channels is it unknown if they rest."""
    network = Network({"latency": "20ms"}, c=[["cell-0", "c"]])
    network.ask("link", source="b", target="a", profile={"latency": "20ms"}, seed=1)

    def reported() -> dict[str, int]:
        return {row["source"]: row["delivered"] for row in network.ask("counters", changed=True)["links"]}

    assert reported() == {"b": 0, "c": 0}
    assert reported() == {"c": 0}
    network.send("b")
    assert reported() == reported() == {"b": 0, "c": 0}, "one packet is on the way"
    network.wait(0.1)
    assert reported() == {"b": 1, "c": 0}
    assert reported() == {"c": 0}
    network.send("b")
    network.ask("cut", source="b", target="a")
    assert reported() == {"b": 1, "c": 0}
    network.send("b")
    assert network.link("b")["cut_dropped"] == 2
    assert reported() == {"c": 0}
    assert len(network.ask("counters")["links"]) == 2


def test_members_share_a_channel_and_channels_share_nothing() -> None:
    network = Network(b=[["cell-0", "b"]], c=[["cell-0", "c"]])
    network.send("b", 20, mark=1)
    network.send("c", 20, mark=2)
    marks = [mark for _, mark in network.wait(1.0)]
    assert sorted(marks[:21]).count(1) == pytest.approx(10, abs=1)
    network.ask("link", source="c", target="a", crossings=[["cell-1", "c"]])
    network.send("b", 20)
    network.send("c", 1, mark=3)
    ((late, _),) = [(at - 1.0, mark) for at, mark in network.wait(1.0) if mark == 3]
    assert late == pytest.approx(FRAME_TIME)


def test_a_late_switch_changes_no_packets_turn_and_counts_its_lateness() -> None:
    def order(pauses: float) -> list[int]:
        network = Network({"rate": "20mbit"}, b=[["cell-0", "b"], ["backhaul", "b"]], c=[["backhaul", "c"]])
        network.send("b", 10, mark=1)
        network.send("c", 10, mark=2)
        network.now += pauses
        return [mark for _, mark in network.wait(1.0)]

    assert order(0.0) == order(0.5)


def test_a_full_channel_counts_with_the_link_as_overflowed() -> None:
    network = Network(b=[["cell-0", "b"]])
    network.send("b", 200)
    assert network.ask("counters")["flight_dropped"] == 0
    came = network.wait(1.0)
    link = network.link("b")
    assert len(came) == link["delivered"] == 82  # of 125,000 bytes
    assert link["overflowed"] == network.channels()["cell-0", "b"]["overflowed"] == 118
    assert adds_up(link)


@pytest.mark.parametrize("profile", IMPAIRMENTS.values(), ids=IMPAIRMENTS)
def test_the_counters_of_a_link_add_up(profile: dict[str, Any]) -> None:
    network = Network(profile, b=[["cell-0", "b"], ["backhaul", "b"]])
    for _ in range(20):
        network.send("b", 15)
        network.wait(0.01)
    network.ask("cut", source="b", target="a")
    network.ask("restore", source="b", target="a")
    network.send("b", 5)
    came = len(network.wait(1e9))
    link = network.link("b")
    assert link["delivered"] >= came > 0
    assert adds_up(link)
    assert network.switch.flight._bytes == network.switch.flight._crossing == 0


def test_a_cut_drops_what_waits_in_channels_and_what_they_are_sending() -> None:
    network = Network({"rate": "20mbit"}, b=[["cell-0", "b"]], c=[["cell-0", "c"]])
    network.send("b", 10, mark=1)
    network.send("c", 2, mark=2)
    network.wait(2.2 * FRAME_TIME)
    network.ask("cut", source="b", target="a")
    came = network.wait(1.0)
    assert [mark for _, mark in came] == [2, 2][-len(came) :]
    link = network.link("b")
    assert link["cut_dropped"] == 10 - link["delivered"] >= 7
    assert network.channels()["cell-0", "b"]["queued_bytes"] == 0
    network.ask("restore", source="b", target="a")
    network.send("b", 1)
    assert len(network.wait(1.0)) == 1


def test_a_cut_counts_what_is_sent_as_delivered_though_the_clock_runs_on() -> None:
    network = Network({"latency": "10ms"}, b=[])
    for _ in range(100):
        network.send("b")
        network.now += 1e-5
    network.now = 0.0105  # half of them are due

    def clock() -> float:
        network.now += 1e-5
        return network.now

    network.switch.flight._clock = clock
    network.ask("cut", source="b", target="a")
    link = network.link("b")
    assert link["delivered"] == len(network.nodes["a"].sent) == pytest.approx(50, abs=3)
    assert adds_up(link)


def test_a_corrupt_super_packet_crosses_the_channels_and_counts_as_delivered() -> None:
    counters = []
    for route in ([], [["cell-0", "b"]]):
        network = Network({"rate": "10mbit", "corrupt": "99.9%"}, b=route)
        packet = HEADER.pack(NEEDS_CHECKSUM, TCP_IPV6, 0, 1000, 54, 16)
        packet += network.nodes["a"].mac + bytes(6) + b"\x86\xdd" + bytes(52) + b"\x50" + bytes(7) + bytes(3000)
        network.nodes["b"].packets.append(packet)
        network.switch.forward(network.nodes["b"])  # type: ignore[arg-type]
        assert network.wait(1.0) == []
        counters.append(network.link("b"))
        assert adds_up(counters[-1])
        assert network.switch.flight._bytes == network.switch.flight._crossing == 0
    assert counters[0]["delivered"] == counters[0]["corrupted"] == 3
    assert counters[0] == counters[1]
    assert network.channels()["cell-0", "b"]["packets"] == 3


def test_a_handover_loses_nothing_and_has_the_new_capacity() -> None:
    network = Network({"latency": "1ms"}, b=[["cell-0", "b"], ["backhaul", "b"]])
    network.ask("channel", name="cell-1", profile=CELL | {"rate": 2.5e6})
    network.send("b", 10, mark=1)
    network.wait(FRAME_TIME / 2)
    network.ask("link", source="b", target="a", crossings=[["cell-1", "b"], ["backhaul", "b"]])
    network.send("b", 10, mark=2)
    came = network.wait(1.0)
    assert [mark for _, mark in came].count(1) == [mark for _, mark in came].count(2) == 10
    assert network.channels()["cell-0", "b"]["packets"] == network.channels()["cell-1", "b"]["packets"] == 10
    assert network.channels()["backhaul", "b"]["packets"] == 20
    new = [at for at, mark in came if mark == 2]
    assert (new[-1] - new[-5]) / 4 == pytest.approx(4 * FRAME_TIME)
    network.ask("link", source="b", target="a", crossings=[])
    sent = network.now
    network.send("b", 1)
    assert [at - sent for at, _ in network.wait(1.0)] == pytest.approx([0.001])
    assert adds_up(network.link("b"))


def test_what_waits_leaves_at_the_new_rate_of_a_channel() -> None:
    network = Network(b=[["cell-0", "b"]])
    network.send("b", 10)
    network.wait(FRAME_TIME)
    network.ask("channel", name="cell-0", profile=CELL | {"rate": 1e6})
    times = [at for at, _ in network.wait(1.0)]
    assert times == pytest.approx([FRAME_TIME * (1 + 10 * place) for place in range(1, 10)])


def test_changes_of_the_rate_leave_no_events_behind() -> None:
    network = Network(b=[["cell-0", "b"]])
    for change in range(20):
        network.send("b", 3)
        network.wait(2.2 * FRAME_TIME)
        network.ask("channel", name="cell-0", profile=CELL | {"rate": (10e6, 11e6)[change % 2]})
    network.wait(2.2 * FRAME_TIME)
    assert network.channels()["cell-0", "b"]["queued_bytes"] > 0
    assert len(network.switch.flight.media.events) <= 2


def test_what_waits_for_the_link_leaves_at_the_new_rate_of_the_link() -> None:
    network = Network({"rate": "1mbit"}, b=[["cell-0", "b"]])
    network.send("b", 3)
    network.ask("link", source="b", target="a", profile={"rate": "2mbit"})
    times = [at for at, _ in network.wait(1.0)]
    assert times == pytest.approx([FRAME_TIME * (1 + 5 * place) for place in range(1, 4)])


def test_cross_traffic_takes_its_part() -> None:
    network = Network(b=[["cell-0", "b"]])
    network.ask("occupy", name="cell-0", traffic=traffic(5e6), seed=1)
    network.send("b", 50)
    times = [at for at, _ in network.wait(1.0)]
    assert times[-1] == pytest.approx(50 * 2 * FRAME_TIME, rel=0.03)
    network.ask("occupy", name="cell-0", traffic=None)
    row = network.channels()["cell-0", "cross traffic"]
    assert row["bytes"] * 8 == pytest.approx(5e6, rel=0.02)
    network.wait(100.0)
    network.ask("counters")
    network.wait(100.0)
    assert network.channels()["cell-0", "cross traffic"]["packets"] == pytest.approx(row["packets"], abs=2)


def test_packets_in_channels_count_as_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "FLIGHT_PACKETS", 5)
    network = Network({"latency": "50ms"}, b=[["cell-0", "b"]])
    network.send("b", 8)
    assert network.ask("counters")["flight_dropped"] == 3
    assert len(network.wait(1.0)) == 5
    monkeypatch.setattr(flight, "FLIGHT_BYTES", 3 * (FULL_FRAME + 10))
    network.send("b", 4)
    assert network.ask("counters")["flight_dropped"] == 4


def test_pieces_of_super_packets_last_a_millisecond_in_the_slowest_channel() -> None:
    network = Network({"rate": "1gbit"}, b=[["cell-0", "b"], ["backhaul", "b"]])
    assert network.switch.links["b", "a"].segments == 1
    network.ask("channel", name="cell-0", profile=CELL | {"rate": 100e6})
    assert network.switch.links["b", "a"].segments == 1
    network.ask("channel", name="backhaul", profile=CELL | {"rate": 50e6, "share": "airtime", "rates": {"b": 200e6}})
    assert network.switch.links["b", "a"].segments == segments_together_at(100e6)
    network.ask("link", source="b", target="a", crossings=[])
    assert network.switch.links["b", "a"].segments == segments_together_at(1e9)


def test_wrong_requests_are_answered() -> None:
    network = Network(b=[["cell-0", "b"]])
    network.ask("link", source="c", target="a", profile={}, seed=1)
    for request, said in (
        ({"op": "link", "source": "b", "target": "a", "crossings": [["cell-7", "b"]]}, "no channel cell-7"),
        ({"op": "link", "source": "c", "target": "a", "crossings": [["cell-0", "b"]]}, "made without channels"),
        ({"op": "link", "source": "c", "target": "b"}, "a new link needs"),
        ({"op": "occupy", "name": "cell-7", "traffic": None}, "no channel cell-7"),
        ({"op": "occupy", "name": "cell-0", "traffic": {}}, "rows"),
        ({"op": "channel", "name": "cell-0", "profile": {"share": "fair"}}, "rate"),
        ({"op": "channel", "name": 7, "profile": CELL}, "name must be a text"),
    ):
        assert said in network.switch.handle(request)["error"]


@pytest.mark.netns
class TestRealPackets:
    """Nodes b and c send to a. Rates are measured in virtual time: `tests/lab/inside/test_userspace.py`."""

    @pytest.fixture
    def cells(self, lab: Lab) -> Iterator[Lab]:
        for name in ("cell-0", "cell-1"):
            lab.ask("channel", name=name, profile=CELL)
        yield lab
        lab.ask("occupy", name="cell-0", traffic=None)
        lab.ask("link", source="b", target="a", crossings=[])

    def route(self, lab: Lab, source: str, *channels: str) -> None:
        crossings = [[channel, source] for channel in channels]
        lab.ask("link", source=source, target="a", profile={"latency": "5ms"}, seed=1, crossings=crossings)
        lab.ask("link", source="a", target=source, profile={"latency": "5ms"}, seed=2)

    def test_data_cross_channels_and_a_handover_unharmed(self, cells: Lab) -> None:
        self.route(cells, "b", "cell-0", "cell-1")
        before = cells.counters("b", "a")
        data, received = Random(1).randbytes(1_000_000), []
        sending = threading.Thread(target=lambda: received.append(transfer(cells, "b", "a", data)))
        sending.start()
        wait_until(lambda: cells.counters("b", "a")["delivered"] - before["delivered"] > 100)
        cells.ask("link", source="b", target="a", crossings=[["cell-1", "b"]])
        sending.join()
        assert received == [data]
        wait_until(lambda: adds_up(cells.counters("b", "a")))
        assert cells.counters("b", "a")["lost"] == 0


def segments_together_at(rate: float) -> int | None:
    return segments_together(LinkProfile(rate=rate))


def traffic(rate: float, kind: str = "constant") -> dict[str, Any]:
    return {"kind": kind, "rate": rate, "on": 0.0, "off": 0.0, "rows": []}
