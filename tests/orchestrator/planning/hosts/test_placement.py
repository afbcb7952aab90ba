"""The placement: each rule by an example that can be done by hand, and what holds for every inventory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.profile import LinkProfile
from orchestrator.errors import PlanError
from orchestrator.planning.hosts.crossings import AskedLink, HostCrossing, crossing_notes, least_delay
from orchestrator.planning.hosts.inventory import HostFacts, Inventory, Underlay
from orchestrator.planning.hosts.packing import MEMORY
from orchestrator.planning.hosts.placement import Placement, place
from orchestrator.scenario.sections.hardware import BOARDS, GIB, HARDWARE, HardwareClass
from orchestrator.scenario.sections.hosts import HostChoice
from orchestrator.scenario.sections.topology import Topology
from tests.texts import containing

PI = {"edgebed.hardware": "raspberry-pi-4"}
ONE_CORE = HardwareClass("custom", cores=1)


def host(
    name: str,
    cores: float = 4,
    memory: int = 16 * GIB,
    labels: Mapping[str, str] | None = None,
    *,
    manager: bool = False,
) -> HostFacts:
    return HostFacts(name, "192.0.2.1", "amd64", cores, memory, labels or {}, manager)


def placed(
    topology: Topology,
    hosts: Sequence[HostFacts],
    hardware: Mapping[str, HardwareClass] | None = None,
    pins: Mapping[str, HostChoice] | None = None,
    underlay: Mapping[tuple[str, str], Underlay] | None = None,
    profile: LinkProfile | None = None,
) -> Placement:
    """``hardware``: by node or tier. ``profile``: of every direction of every link; None: there are no links."""
    members, given = topology.members(), hardware or {}
    of_nodes = {each.name: given.get(each.name) or given.get(each.tier) or HARDWARE["host"] for each in members}
    ends = [
        ends for pair in topology.pairs(mesh=False) for ends in ((pair.lower, pair.upper), (pair.upper, pair.lower))
    ]
    links = [AskedLink(*pair, "edge-cloud", [profile]) for pair in ends] if profile is not None else []
    return place(members, of_nodes, pins or {}, links, Inventory(tuple(hosts), underlay or {}))


def edges(count: int, devices: int | list[int]) -> Topology:
    return Topology.model_validate({"edges": count, "devices_per_edge": devices})


FLAT = Topology.model_validate({"devices": 4, "edges": 0})


def test_a_pin_comes_first() -> None:
    pins = {"cloud": HostChoice("pc-2"), "device": HostChoice("pc-1"), "device-3": HostChoice("pc-3")}
    made = placed(FLAT, [host("pc-1", manager=True), host("pc-2"), host("pc-3")], pins=pins)
    assert made.hosts == {
        "cloud": "pc-2",
        "device-0": "pc-1",
        "device-1": "pc-1",
        "device-2": "pc-1",
        "device-3": "pc-3",
    }
    assert made.reasons["device-0"] == "hosts.device: pc-1"
    assert made.reasons["device-3"] == "hosts.device-3: pc-3"


def test_a_label_leaves_a_choice() -> None:
    rack = {"edgebed.rack": "2"}
    hosts = [host("pc-1", 64), host("pc-2", 4, labels=rack), host("pc-3", 4, labels=rack)]
    made = placed(FLAT, hosts, pins={"device": HostChoice("rack", "2")})
    assert made.hosts["cloud"] == "pc-1"
    assert Counter(made.hosts.values()) == {"pc-1": 1, "pc-2": 2, "pc-3": 2}
    assert made.reasons["device-1"] == "hosts.device: rack=2; most cores free"


@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        (
            HostChoice("pi-9"),
            containing(
                "hosts.edge-0: there is no host 'pi-9'",
                "pi-1 with edgebed.hardware=raspberry-pi-4",
            ),
        ),
        (
            HostChoice("rack", "2"),
            containing("hosts.edge-0: no host", "rack=2"),
        ),
    ],
)
def test_a_pin_to_nothing_is_refused(pin: HostChoice, expected: str) -> None:
    with pytest.raises(PlanError) as caught:
        placed(edges(1, 1), [host("pi-1", labels=PI), host("pc-1")], pins={"edge-0": pin})
    assert str(caught.value) == expected


def test_every_board_has_one_node_of_its_class() -> None:
    hosts = [host("pi-2", labels=PI), host("pc-1", manager=True), host("pi-1", labels=PI)]
    made = placed(FLAT, hosts, hardware={"device": HARDWARE["raspberry-pi-4"]})
    assert made.hosts == {
        "cloud": "pc-1",
        "device-0": "pi-1",
        "device-1": "pi-2",
        "device-2": "pc-1",
        "device-3": "pc-1",
    }
    assert made.boards == {"device-0": "raspberry-pi-4", "device-1": "raspberry-pi-4"}
    assert made.reasons["device-0"] == "a real raspberry-pi-4, not emulated"
    assert made.notes == ("device-0, device-1: real raspberry-pi-4; device-2, device-3: emulated ones",)


def test_boards_are_for_their_class_alone() -> None:
    slower = HardwareClass("custom", speed=0.1, cores=4, memory=GIB)  # a changed class is another class
    made = placed(FLAT, [host("pi-1", labels=PI), host("pc-1")], hardware={"device-0": slower})
    assert set(made.hosts.values()) == {"pc-1"}
    assert (made.boards, made.notes) == (
        {},
        (containing("cores", "on pc-1 (4.4 of 4)"),),
    )


def test_a_pin_puts_other_nodes_and_several_nodes_on_boards() -> None:
    pins = {"device": HostChoice("hardware", "raspberry-pi-4"), "cloud": HostChoice("pi-1")}
    hosts = [host("pi-1", labels=PI), host("pi-2", labels=PI), host("pc-1")]
    made = placed(FLAT, hosts, hardware={"device-3": HARDWARE["phone"]}, pins=pins)
    assert [made.hosts[f"device-{each}"] for each in range(4)] == ["pi-2", "pi-1", "pi-2", "pi-1"]
    assert set(made.boards) == set(made.hosts)
    assert made.reasons["device-1"] == "hosts.device: hardware=raspberry-pi-4; a real raspberry-pi-4, not emulated"
    assert made.notes == (
        containing("device-3 on real boards", "raspberry-pi-4"),
        "cloud, device-1, device-3 share the board pi-1",
        "device-0, device-2 share the board pi-2",
    )


def test_an_edge_and_its_devices_stay_together_and_the_largest_group_comes_first() -> None:
    """Groups of 2, 4 and 3 cores: 4 on a, as both hosts are free; 3 on b; 2 where 4 are left, and b has 6 - 3 = 3."""
    made = placed(
        edges(3, [1, 3, 2]), [host("b", 6), host("a", 8), host("m", 1, manager=True)], hardware={"device": ONE_CORE}
    )
    groups = {f"edge-{edge}": {made.hosts[name] for name in made.hosts if f"-{edge}" in name[:8]} for edge in range(3)}
    assert groups == {"edge-0": {"a"}, "edge-1": {"a"}, "edge-2": {"b"}}
    assert made.hosts["cloud"] == "m"
    assert made.reasons["edge-1"] == "most cores free"
    assert made.reasons["device-1-0"] == "with its edge"


def test_a_group_without_room_is_spread() -> None:
    """Nine nodes of one core on two hosts of four: each counts for 4.5, which is not enough for seven devices."""
    made = placed(edges(1, 7), [host("a"), host("b")])
    assert Counter(made.hosts.values()) == {"a": 5, "b": 4}
    assert made.reasons["device-0-3"] == containing("most cores free")
    assert made.notes == (containing("cores", "on a (5 of 4)"),)


def test_where_cores_lack_groups_still_stay_together_and_load_is_even() -> None:
    """Four groups of three cores on two hosts of four: each counts for six."""
    topology = Topology.model_validate({"edges": 4, "devices_per_edge": 2, "cloud": False})
    made = placed(topology, [host("a"), host("b")])
    assert Counter(made.hosts.values()) == {"a": 6, "b": 6}
    assert all(
        made.hosts[f"device-{number // 2}-{number % 2}"] == made.hosts[f"edge-{number // 2}"] for number in range(8)
    )
    assert made.notes == (containing("cores", "on a (6 of 4), b (6 of 4)"),)


def test_devices_follow_an_edge_that_is_pinned() -> None:
    made = placed(edges(1, 2), [host("a", 64), host("b", 8)], pins={"edge-0": HostChoice("b")})
    assert made.hosts["device-0-0"] == made.hosts["device-0-1"] == "b"
    assert made.reasons["device-0-0"] == "with its edge"


def test_an_edge_follows_devices_that_are_pinned() -> None:
    rack = {"edgebed.rack": "2"}
    hosts = [host("a", 64), host("b", 8, labels=rack), host("c", 4, labels=rack)]
    made = placed(edges(1, 2), hosts, pins={"device": HostChoice("rack", "2")})
    assert {made.hosts[name] for name in ("edge-0", "device-0-0", "device-0-1")} == {"b"}
    assert made.reasons["edge-0"] == "with its devices"
    assert made.reasons["device-0-1"] == containing("hosts.device: rack=2; with devices")


def test_a_group_is_not_torn_for_the_last_tenth() -> None:
    """The cloud and 20 groups of six on 8 and 16 cores: even shares are 40.3 and 80.7, whole groups make 43 and 78."""
    made = placed(edges(20, 5), [host("a", 8, 64 * GIB, manager=True), host("b", 16, 64 * GIB)])
    assert all(made.hosts[name] == made.hosts[f"edge-{name.split('-')[1]}"] for name in made.hosts if "device" in name)
    assert Counter(made.hosts.values()) == {"a": 43, "b": 78}


def groups_of(first: float, second: float) -> tuple[Topology, dict[str, HardwareClass]]:
    """Two edges with four devices each. Four nodes of a group need a core, and one the rest of these cores."""
    topology = Topology.model_validate({"edges": 2, "devices_per_edge": 4, "cloud": False})
    rests = {f"device-{edge}-3": cores - 4 for edge, cores in enumerate((first, second))}
    hardware = {name: HardwareClass("custom", cores=rest) for name, rest in rests.items()}
    return topology, {"device": ONE_CORE} | hardware


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [  # on two hosts of five cores
        (5.0, 5.0, True),
        (5.2, 4.8, False),  # all nodes fit, but not this group
        (5.5, 4.7, True),  # each host counts for 5.1, and a group may have a tenth more
        (5.7, 4.5, False),
    ],
)
def test_a_group_may_have_a_tenth_more_than_an_even_share_where_cores_lack(
    first: float, second: float, together: bool
) -> None:
    topology, hardware = groups_of(first, second)
    made = placed(topology, [host("a", 5), host("b", 5)], hardware)
    spread = [node for node, reason in made.reasons.items() if "no host has room" in reason]
    assert bool(spread) != together


def test_nodes_that_are_pinned_use_cores_too() -> None:
    """They use 5 of 10 cores, and the others 5.5: so each host counts for 5.25, and a group may have a tenth more."""
    topology, hardware = groups_of(5.0, 5.5)
    pins = {name: HostChoice("a") for name in ("edge-0", *(f"device-0-{number}" for number in range(4)))}
    made = placed(topology, [host("a", 5), host("b", 5)], hardware, pins)
    assert made.reasons["edge-1"] == "most cores free"
    assert made.reasons["device-1-0"] == "with its edge"


def test_only_a_group_of_several_nodes_can_be_spread() -> None:
    """Three nodes of one core on two hosts of one: each counts for 1.5 and a tenth."""
    hosts = [host("a", 1), host("b", 1)]
    single = placed(Topology.model_validate({"devices": 2, "edges": 0}), hosts)
    assert single.reasons["device-1"] == "most cores free"
    assert placed(edges(1, 1), hosts).reasons["edge-0"].endswith("all of its group")


def test_a_host_may_be_full_to_the_last_byte() -> None:
    """Five nodes, of 300 MB each."""
    assert set(placed(FLAT, [host("a", memory=5 * 300_000_000)]).hosts.values()) == {"a"}
    with pytest.raises(PlanError, match="1 B is missing"):
        placed(FLAT, [host("a", memory=5 * 300_000_000 - 1)])


def test_nodes_that_must_run_on_boards_are_placed_before_those_that_may() -> None:
    boards = HostChoice("hardware", "raspberry-pi-4")
    hosts = [host("pi-1", labels=PI), host("pi-2", labels=PI), host("pc-1")]
    pins = {"device-2": boards, "device-3": boards}
    made = placed(FLAT, hosts, {"device": HARDWARE["raspberry-pi-4"]}, pins)
    assert [made.hosts[f"device-{number}"] for number in range(4)] == ["pc-1", "pc-1", "pi-1", "pi-2"]


def test_boards_without_memory_for_a_node_are_left_out() -> None:
    hosts = [host("pi-1", memory=300_000_000, labels=PI), host("pi-2", labels=PI), host("pc-1")]
    pins = {"device": HostChoice("hardware", "raspberry-pi-4")}
    made = placed(FLAT, hosts, {"device": HARDWARE["phone"]}, pins)
    assert [made.hosts[f"device-{number}"] for number in range(4)] == ["pi-1", "pi-2", "pi-2", "pi-2"]


def test_of_many_hosts_twenty_parts_are_listed() -> None:
    """Of 21, 19 and the number of the others."""
    hosts = [host(f"pc-{number:02}") for number in range(21)]
    with pytest.raises(PlanError, match=r"pc-18 and 2 more\)"):
        placed(FLAT, hosts, pins={"cloud": HostChoice("rack", "2")})
    with pytest.raises(PlanError, match=r"pc-18 \(paused\) and 2 more"):
        place([], {}, {}, [], Inventory((), {}, {facts.name: "paused" for facts in hosts}))


def test_a_slow_node_needs_a_share_of_a_core() -> None:
    """25 nodes of 4 * 0.16 cores are 16 cores."""
    topology = Topology.model_validate({"devices": 25, "edges": 0})
    hardware = {"device": HardwareClass("custom", speed=0.16, cores=4)}
    made = placed(topology, [host("a", 16), host("m", 1, manager=True)], hardware, pins={"device": HostChoice("a")})
    assert made.notes == ()


def test_the_cloud_runs_on_a_manager_if_it_fits() -> None:
    hosts = [host("a", 16, 64 * GIB), host("b", 4, manager=True)]
    made = placed(FLAT, hosts)
    assert (made.hosts["cloud"], made.reasons["cloud"]) == ("b", "a manager, next to the orchestrator")
    assert {made.hosts[f"device-{number}"] for number in range(4)} == {"a"}  # where most cores are free
    large = placed(FLAT, hosts, hardware={"cloud": HARDWARE["edge-server"]} | {"device": ONE_CORE})
    assert (large.hosts["cloud"], large.reasons["cloud"]) == ("a", "most cores free")
    assert placed(FLAT, hosts[1:]).reasons["device-0"] == "most cores free"


@pytest.mark.parametrize(
    ("hosts", "pins", "expected"),
    [
        # Each node needs 300 MB.
        (
            [host("a", memory=1_000_000_000)],
            {},
            containing("hardware.device: device-2 needs 300 MB", "100 MB left: 200 MB"),
        ),
        (
            [host("a", memory=750_000_000), host("b", memory=500_000_000)],
            {},
            containing("hardware.device: device-2 needs 300 MB", "200 MB", "100 MB"),
        ),
        (
            [host("a"), host("b", memory=200_000_000)],
            {"device-1": HostChoice("b")},
            containing("hosts.device-1: device-1 needs 300 MB", "200 MB left: 100 MB"),
        ),
    ],
)
def test_memory_is_never_given_twice(hosts: list[HostFacts], pins: dict[str, HostChoice], expected: str) -> None:
    with pytest.raises(PlanError) as caught:
        placed(FLAT, hosts, hardware={"device": HardwareClass("custom", memory=2 * GIB)}, pins=pins)
    assert str(caught.value) == expected


def test_without_a_general_host_nodes_need_pins() -> None:
    with pytest.raises(PlanError, match=r"^hosts: cloud has no host"):
        placed(FLAT, [host("pi-1", labels=PI)], hardware={"device": HARDWARE["raspberry-pi-4"]})
    with pytest.raises(PlanError, match=r"^hosts: cloud has no host"):
        placed(FLAT, [])


def test_hosts_that_cannot_be_used_are_named_with_the_reason() -> None:
    left_out = {"pc-2": "it has no image", "pc-3": "its state is down"}

    def try_on(hosts: tuple[HostFacts, ...], pins: Mapping[str, HostChoice]) -> Placement:
        on_host = dict.fromkeys((member.name for member in FLAT.members()), HARDWARE["host"])
        return place(FLAT.members(), on_host, pins, [], Inventory(hosts, {}, left_out))

    made = try_on((host("pc-1"),), {})
    assert made.notes[0] == containing("left out", "pc-2 (it has no image)", "pc-3 (its state is down)")
    assert set(made.hosts.values()) == {"pc-1"}
    with pytest.raises(PlanError, match=r"^hosts\.cloud: the host pc-2.*pc-1\)$"):
        try_on((host("pc-1"),), {"cloud": HostChoice("pc-2")})
    with pytest.raises(PlanError) as caught:
        try_on((), {})
    assert str(caught.value) == containing("hosts: no host", "pc-2 (it has no image)", "pc-3 (its state is down)")


WIRE = Underlay(delay=0.0002, rate=1e9, mtu=1500)
APART = {"cloud": HostChoice("a"), "device": HostChoice("b")}


def test_links_between_hosts_are_counted() -> None:
    made = placed(FLAT, [host("a"), host("b")], pins=APART, profile=LinkProfile(latency=0.01, rate=20e6))
    assert made.crossings == (HostCrossing("a", "b", 4, 80e6, None), HostCrossing("b", "a", 4, 80e6, None))
    assert made.crossing_notes() == [containing("measured, a -> b, b ->")]
    assert placed(FLAT, [host("a")], profile=LinkProfile()).crossings == ()


def test_more_rate_than_the_network_has_is_noted() -> None:
    underlay = {("a", "b"): WIRE, ("b", "a"): Underlay(delay=0.0002, rate=None, mtu=1500)}
    profile = LinkProfile(latency=0.01, rate=300e6)
    made = placed(FLAT, [host("a"), host("b")], pins=APART, underlay=underlay, profile=profile)
    assert made.notes == ()
    assert made.crossing_notes() == [containing("more rate", "(1.2 gbit of 1 gbit)")]
    unlimited = placed(FLAT, [host("a"), host("b")], pins=APART, underlay=underlay, profile=LinkProfile(latency=0.01))
    assert [crossing.rate for crossing in unlimited.crossings] == [None, None]
    assert list(crossing_notes([HostCrossing("a", "b", 4, 1e9, WIRE)])) == []  # as much as the network has


def test_a_link_asks_for_the_most_that_it_may_be_given() -> None:
    slow, fast = LinkProfile(rate=1e6), LinkProfile(rate=5e6)
    assert AskedLink("a", "b", "edge-cloud", [slow, fast]).rate == 5e6
    assert AskedLink("a", "b", "edge-cloud", [slow, LinkProfile()]).rate is None
    assert AskedLink("a", "b", "edge-cloud", [LinkProfile(real=True), LinkProfile()]).real
    assert not AskedLink("a", "b", "edge-cloud", [slow, fast]).real


@pytest.mark.parametrize(
    ("delay", "profile", "expected"),
    [
        (0.0002, LinkProfile(latency=0.0003), None),  # the least margin, 0.1 ms
        (
            0.0002,
            LinkProfile(latency=0.00029),
            ("290us one way", "0.2 ms, 0.3 ms"),
        ),
        (0.02, LinkProfile(latency=0.022), None),  # a tenth
        (
            0.02,
            LinkProfile(latency=0.0215),
            ("21.5ms one way", "20 ms, 22 ms"),
        ),
        (0.005, LinkProfile(latency=0.02, jitter=0.005), None),  # 20 - 2.054 * 5 = 9.7 ms
        (
            0.01,
            LinkProfile(latency=0.02, jitter=0.005),
            ("20ms ±5ms, so 9.73 ms", "10 ms, 11 ms"),
        ),
    ],
)
def test_a_link_asks_for_more_delay_than_the_network_has(
    delay: float, profile: LinkProfile, expected: str | None
) -> None:
    topology = Topology.model_validate({"devices": 2, "edges": 0})
    underlay = {("a", "b"): Underlay(delay=delay, rate=None, mtu=1500)}

    def made() -> Placement:
        return placed(topology, [host("a"), host("b")], pins=APART, underlay=underlay, profile=profile)

    if expected is None:
        assert len(made().crossings) == 2
    else:
        with pytest.raises(PlanError) as caught:
            made()
        assert str(caught.value) == containing("links.edge-cloud: cloud -> device-0", *expected, "(1 more")


@pytest.mark.parametrize(
    ("distribution", "least"),
    [
        ("normal", 0.01 - 2.0537 * 0.002),  # the 2% quantile of the normal distribution
        ("uniform", 0.01 - 0.96 * 0.002),  # from -1 to 1
        ("pareto", 0.01 - 0.6577 * 0.002),  # (4/3) (0.98^(-1/3) - 3/2)
    ],
)
def test_jitter_takes_from_the_delay(distribution: str, least: float) -> None:
    profile = LinkProfile(latency=0.01, jitter=0.002, distribution=distribution)
    assert least_delay(profile) == pytest.approx(least, abs=1e-6)
    assert least_delay(LinkProfile(latency=0.001, jitter=0.002)) == 0.0


HARDWARES = st.sampled_from([*HARDWARE.values(), HardwareClass("custom", speed=0.3, cores=2, memory=GIB)])
HOSTS = st.lists(
    st.builds(
        HostFacts,
        name=st.sampled_from([f"host-{each}" for each in range(8)]),
        address=st.just("192.0.2.1"),
        architecture=st.just("amd64"),
        cores=st.sampled_from([0.5, 1.0, 4.0, 6.0, 64.0]),
        memory=st.integers(1, 64).map(lambda number: number * GIB),
        labels=st.sampled_from([{}, {}, {}, *({"edgebed.hardware": board} for board in BOARDS[:3])]),
        manager=st.booleans(),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda each: each.name,
)
TOPOLOGIES = st.one_of(
    st.builds(lambda devices: Topology.model_validate({"devices": devices, "edges": 0}), st.integers(1, 12)),
    st.builds(edges, st.integers(1, 4), st.integers(0, 5)),
)


@given(topology=TOPOLOGIES, hosts=HOSTS, hardware=HARDWARES, edge=HARDWARES, pin=st.booleans(), data=st.data())
def test_all_nodes_are_placed_once_within_memory_whatever_the_order_of_hosts(
    topology: Topology,
    hosts: list[HostFacts],
    hardware: HardwareClass,
    edge: HardwareClass,
    pin: bool,
    data: st.DataObject,
) -> None:
    of_tiers = {"device": hardware, "edge": edge}
    pins = {"cloud": HostChoice(hosts[-1].name)} if pin else {}

    def made(order: Sequence[HostFacts]) -> Placement | str:
        try:
            return placed(topology, order, of_tiers, pins)
        except PlanError as error:
            return str(error)

    first = made(hosts)
    assert made(data.draw(st.permutations(hosts))) == first
    if isinstance(first, str):
        return
    members = {member.name: member for member in topology.members()}
    assert list(first.hosts) == list(first.reasons) == list(members)
    facts = {each.name: each for each in hosts}
    used: defaultdict[str, int] = defaultdict(int)
    for name, where in first.hosts.items():
        own = of_tiers.get(members[name].tier, HARDWARE["host"])
        board = facts[where].hardware
        assert first.boards.get(name) == board
        assert board in (None, own.name) or (pin and name == "cloud")
        used[where] += min(own.memory or MEMORY, MEMORY)
    assert all(total <= facts[where].memory for where, total in used.items())
    shared = Counter(first.hosts[name] for name in first.boards)
    assert set(shared.values()) <= {1}
