"""The switch's trunk, with packets in lists instead of interfaces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.media.profile import ChannelProfile
from netem.userspace import trunk
from netem.userspace.frame import HEADER
from netem.userspace.switch import Switch
from tests.netem.measured import wait_until
from tests.netem.ports import Held

HERE, THERE, ALSO_THERE, STRANGER = (bytes([2, 0xED, 0, 0, 0, number]) for number in range(4))


def packet(destination: bytes, source: bytes) -> bytes:
    return bytes(HEADER.size) + destination + source + b"\x08\x00" + bytes(46)


class Stage:
    """A switch with the node "here", and the nodes "there" and "also there" of another host."""

    def __init__(self) -> None:
        self.switch = Switch()
        self.here, self.trunk = Held("here", HERE, []), Held(trunk.NAME, bytes(6), [])
        self.switch.ports = {"here": self.here, trunk.NAME: self.trunk}  # type: ignore[dict-item]
        self.tell({"there": THERE, "also there": ALSO_THERE})

    def tell(self, remotes: dict[str, bytes]) -> None:
        """Which nodes live on other hosts."""
        addresses = {name: mac.hex(":") for name, mac in remotes.items()}
        assert self.switch.handle({"op": "trunk", "interface": "trunk", "remotes": addresses}) == {"ok": True}

    def arrive(self, *packets: bytes) -> None:
        """From the trunk."""
        self.trunk.packets += packets
        self.switch.forward(self.trunk)  # type: ignore[arg-type]

    def leave(self, *packets: bytes) -> None:
        """From the node "here"."""
        self.here.packets += packets
        self.switch.forward(self.here)  # type: ignore[arg-type]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_link_to_another_host_is_shaped_here_and_leaves_by_the_trunk(stage: Stage) -> None:
    stage.switch.link("here", "there", {}, 1)
    stage.leave(packet(THERE, HERE), packet(ALSO_THERE, HERE))
    assert stage.trunk.sent == [packet(THERE, HERE)]
    assert stage.switch.unrouted == 1
    stage.switch.link("here", "there", {"loss": "100%"})
    stage.leave(packet(THERE, HERE))
    assert [link["lost"] for link in stage.switch.counters()["links"]] == [1]


def test_packets_of_an_admitted_link_reach_their_target(stage: Stage) -> None:
    stage.switch.admit([("there", "here")])
    stage.arrive(packet(HERE, THERE), packet(HERE, ALSO_THERE), packet(HERE, STRANGER))
    assert stage.here.sent == [packet(HERE, THERE)]
    counted = stage.switch.counters()
    assert (counted["from_trunk"], counted["unrouted"], counted["from_strangers"]) == (1, 1, 1)
    assert counted["links"] == []


def test_packets_over_the_trunk_are_counted_by_the_other_hosts_node(stage: Stage) -> None:
    stage.switch.link("here", "there", {}, 1)
    stage.leave(packet(THERE, HERE), packet(THERE, HERE), packet(ALSO_THERE, HERE))
    stage.arrive(packet(HERE, ALSO_THERE), packet(HERE, STRANGER), packet(STRANGER, ALSO_THERE))
    counted = stage.switch.counters()
    assert counted["sent_to"] == {"there": 2, "also there": 0}
    assert counted["came_from"] == {"there": 0, "also there": 2}  # also what nobody here takes


def test_nothing_goes_back_to_the_trunk(stage: Stage) -> None:
    stage.switch.link("here", "also there", {}, 1)
    stage.switch.admit([("there", "here"), ("there", "also there")])
    stage.arrive(packet(ALSO_THERE, THERE), packet(ALSO_THERE, HERE))
    assert stage.trunk.sent == []


def test_a_link_is_admitted_before_and_after_its_target_is_attached(stage: Stage) -> None:
    del stage.switch.ports["here"]
    stage.switch.admit([("there", "here")])
    stage.arrive(packet(HERE, THERE))
    assert stage.switch.unrouted == 1
    stage.switch.ports["here"] = stage.here  # type: ignore[assignment]
    stage.switch.admit([("also there", "here")])
    stage.arrive(packet(HERE, THERE), packet(HERE, ALSO_THERE))
    assert len(stage.here.sent) == 2


def test_a_node_that_moves_to_this_host_is_reached_here_by_the_links_as_they_are(stage: Stage) -> None:
    stage.switch.link("here", "there", {"loss": "100%"}, 1)
    stage.switch.admit([("there", "here"), ("also there", "here"), ("also there", "there")])
    stage.leave(packet(THERE, HERE))
    moved = Held("there", THERE, [])
    stage.switch.ports["there"] = moved  # type: ignore[assignment]
    stage.tell({"also there": ALSO_THERE})
    stage.switch.link("here", "there", {})
    stage.switch.link("there", "here", {}, 2)
    stage.leave(packet(THERE, HERE))
    assert stage.trunk.sent == []
    assert moved.sent == [packet(THERE, HERE)]
    # Its old life on the other host is nobody now.
    stage.arrive(packet(HERE, THERE), packet(HERE, ALSO_THERE), packet(THERE, ALSO_THERE))
    assert stage.here.sent == [packet(HERE, ALSO_THERE)]
    assert moved.sent[1:] == [packet(THERE, ALSO_THERE)]
    moved.packets.append(packet(HERE, THERE))
    stage.switch.forward(moved)  # type: ignore[arg-type]
    assert stage.here.sent[1:] == [packet(HERE, THERE)]
    counted = stage.switch.counters()
    assert counted["from_strangers"] == 1
    assert [(link["source"], link["lost"], link["delivered"]) for link in counted["links"]] == [
        ("here", 1, 1),
        ("there", 0, 1),
    ]
    assert counted["came_from"] == {"also there": 2}


def test_a_node_that_moves_away_is_reached_over_the_trunk(stage: Stage) -> None:
    stage.switch.link("there", "here", {}, 1)
    stage.switch.link("also there", "here", {}, 1)
    del stage.switch.ports["here"]
    stage.tell({"here": HERE, "also there": ALSO_THERE})
    there = Held("there", THERE, [packet(HERE, THERE)])
    stage.switch.forward(there)  # type: ignore[arg-type]
    assert stage.trunk.sent == [packet(HERE, THERE)]


@given(packets=st.lists(st.binary(max_size=80), max_size=20))
def test_any_bytes_leave_the_switch_at_work(packets: list[bytes]) -> None:
    stage = Stage()
    stage.switch.admit([("there", "here")])
    stage.arrive(*(bytes(HEADER.size) + each for each in packets))
    assert stage.here.sent == []
    assert stage.switch.unrouted + stage.switch.from_strangers == len(packets)


@pytest.mark.parametrize("operation", ["admit", "pass_on"])
@pytest.mark.parametrize("links", [5, ["here"], [["a", "b", "c"]]])
def test_a_bad_list_of_links_is_refused(links: object, operation: str) -> None:
    assert operation in Switch().handle({"op": operation, "links": links})["error"]


@pytest.mark.parametrize("remotes", [5, {"there": "02:ed"}])
def test_bad_addresses_are_refused(remotes: object) -> None:
    assert "trunk" in Switch().handle({"op": "trunk", "interface": "none0", "remotes": remotes})["error"]


class Cell(Stage):
    """The links to "here" share a cell whose queue is in this switch, so that it shapes what comes from the trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.switch.channel("cell", ChannelProfile(8e6, "fifo").to_mapping())
        for source in ("there", "also there"):
            self.switch.link(source, "here", {}, 1, [("cell", source)])
        self.switch.admit([("there", "here"), ("also there", "here")])


def test_a_link_that_was_made_at_its_target_shapes_what_comes_from_the_trunk() -> None:
    stage = Cell()
    stage.arrive(packet(HERE, THERE), packet(HERE, ALSO_THERE))
    wait_until(lambda: stage.switch.flight.deliver() is None)
    assert stage.here.sent == [packet(HERE, THERE), packet(HERE, ALSO_THERE)]
    stage.switch.cut("there", "here")
    stage.arrive(packet(HERE, THERE))
    counted = stage.switch.counters()
    assert [(link["source"], link["delivered"], link["cut_dropped"]) for link in counted["links"]] == [
        ("there", 1, 1),
        ("also there", 1, 0),
    ]
    assert [(row["member"], row["packets"]) for row in counted["channels"]] == [("there", 1), ("also there", 1)]
    assert counted["from_trunk"] == 0  # they are those of links
    assert counted["came_from"] == {"there": 2, "also there": 1}


def test_a_link_that_its_target_shapes_leaves_as_it_is_until_it_is_made_here(stage: Stage) -> None:
    stage.switch.pass_on([("here", "there")])
    stage.leave(packet(THERE, HERE), packet(ALSO_THERE, HERE))
    assert stage.trunk.sent == [packet(THERE, HERE)]
    counted = stage.switch.counters()
    assert (counted["links"], counted["sent_to"]["there"]) == ([], 1)
    stage.switch.link("here", "there", {"loss": "100%"}, 1)
    stage.leave(packet(THERE, HERE))
    assert len(stage.trunk.sent) == 1
    assert [link["lost"] for link in stage.switch.counters()["links"]] == [1]
