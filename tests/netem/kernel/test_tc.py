"""Commands for the kernel, and what the kernel says back.

The JSON is what `tc -j -s qdisc show` of iproute2 6.1 printed on Linux 6.1 after the commands of this module, shortened
to some of the links.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from netem.errors import TcError
from netem.kernel import batch, tc
from netem.kernel.police import bucket_of, making, sizing
from netem.profile import GilbertElliott, LinkProfile

OLD = tc.Capabilities()
NEW = tc.Capabilities(seed=True, duplicate_in_tree=True)

WAN = LinkProfile(latency=0.04, jitter=0.005, rate=50e6, loss=0.005)
BURSTY = LinkProfile(
    latency=0.02,
    loss=GilbertElliott(p=0.02, r=0.3, loss_good=0.01, loss_bad=0.9),
    corrupt=0.001,
    reorder=0.05,
    rate=5470.0,
)
SHORT = LinkProfile(latency=0.01205, jitter=0.00025)

COUNTERS = '"overlimits":0,"requeues":0'
LINE = '"packetoverhead":0,"cellsize":0,"celloverhead":0'
QDISCS = f"""[
{{"kind":"htb","handle":"1:","root":true,"refcnt":2,"options":{{"r2q":10,"default":"0xffff","direct_packets_stat":0,
 "direct_qlen":1000}},"bytes":184235934,"packets":122053,"drops":24,{COUNTERS},"backlog":0,"qlen":0}},
{{"kind":"blackhole","handle":"8001:","parent":"1:ffff","options":{{}},
 "bytes":0,"packets":0,"drops":11,{COUNTERS},"backlog":0,"qlen":0}},
{{"kind":"netem","handle":"3:","parent":"1:2","options":{{"limit":100000,
 "delay":{{"delay":0.04,"jitter":0.005,"correlation":0}},"loss-random":{{"loss":0.005,"correlation":0}},
 "rate":{{"rate":6250000,{LINE}}},"ecn":false,"gap":0}},
 "bytes":5325403,"packets":3583,"drops":11,{COUNTERS},"backlog":3028,"qlen":2}},
{{"kind":"netem","handle":"5:","parent":"1:4","options":{{"limit":100000,
 "delay":{{"delay":0.02,"jitter":0,"correlation":0}},"loss-gemodel":{{"p":0.02,"r":0.3,"1-h":0.9,"1-k":0.01}},
 "reorder":{{"reorder":0.05,"correlation":0}},"corrupt":{{"corrupt":0.001,"correlation":0}},
 "rate":{{"rate":683,{LINE}}},"ecn":false,"gap":1}},
 "bytes":0,"packets":0,"drops":0,{COUNTERS},"backlog":0,"qlen":0}},
{{"kind":"netem","handle":"8:","parent":"1:7","options":{{"limit":100000,
 "delay":{{"delay":0.012049,"jitter":0.000249,"correlation":0}},
 "rate":{{"rate":4000000000,{LINE}}},"ecn":false,"gap":0}},
 "bytes":4900,"packets":50,"drops":0,{COUNTERS},"backlog":0,"qlen":0}},
{{"kind":"netem","handle":"b:","parent":"1:a","options":{{"limit":100000,"ecn":false,"gap":0}},
 "bytes":4900,"packets":50,"drops":0,{COUNTERS},"backlog":0,"qlen":0}}]"""


def link(index: int, profile: LinkProfile, address: str | None = None) -> tc.KernelLink:
    address = address or f"10.9.0.{index + 1}"
    return tc.KernelLink(index=index, address=address, profile=profile, seed=1000 + index, policer=2 * index - 1)


def made(index: int, profile: LinkProfile) -> str:
    policer = 2 * index - 1
    return " ".join(sizing(policer + 1, profile.drop_above) + making(policer, bucket_of(profile)))


def netem_of(command: list[str]) -> str:
    return " ".join(command[command.index("netem") + 1 :])


def test_the_tree_of_a_device() -> None:
    lines = batch.lines(tc.setup_commands("data0", [link(1, WAN), link(10, LinkProfile())], OLD)).splitlines()
    rate = "rate 32gbit ceil 32gbit burst 40000000b cburst 40000000b quantum 65536"
    assert lines == [
        "qdisc add dev data0 root handle 1: htb default ffff",
        f"class add dev data0 parent 1: classid 1:1 htb {rate}",
        "qdisc add dev data0 parent 1:1 handle 2: netem limit 100000 delay 40ms 5ms distribution normal "
        "loss random 0.5% rate 50mbit",
        f"class add dev data0 parent 1: classid 1:a htb {rate}",
        "qdisc add dev data0 parent 1:a handle b: netem limit 100000",
        f"class add dev data0 parent 1: classid 1:ffff htb {rate}",
        "qdisc add dev data0 parent 1:ffff blackhole",
        # 10.9.0.2 and 10.9.0.11, see tests/netem/kernel/test_filters.py; policers in tests/netem/kernel/test_police.py
        f"filter add dev data0 parent 1: protocol ip prio 1 u32 match ip src 10.9.0.2/32 {made(1, WAN)} flowid 1:1",
        "filter add dev data0 parent 1: protocol ip prio 1 u32 match ip src 10.9.0.11/32 "
        f"{made(10, LinkProfile())} flowid 1:a",
        "filter add dev data0 parent 1: protocol ipv6 prio 2 u32 match u32 0x0a090002 0xffffffff at 20 "
        "action police index 2 action police index 1 flowid 1:1",
        "filter add dev data0 parent 1: protocol ipv6 prio 2 u32 match u32 0x0a09000b 0xffffffff at 20 "
        "action police index 20 action police index 19 flowid 1:a",
    ]


def test_what_another_host_has_shaped_passes_and_is_counted() -> None:
    lines = batch.lines(tc.setup_commands("data0", [], OLD, ["10.9.0.7"])).splitlines()
    assert lines[3].startswith("class add dev data0 parent 1: classid 1:fffe htb")
    assert lines[4:] == [
        "qdisc add dev data0 parent 1:fffe pfifo limit 1000",
        "filter add dev data0 parent 1: protocol ip prio 1 u32 match ip src 10.9.0.7/32 flowid 1:fffe",
        "filter add dev data0 parent 1: protocol ipv6 prio 2 u32 match u32 0x0a090007 0xffffffff at 20 flowid 1:fffe",
    ]
    leaf = {"kind": "pfifo", "handle": "8003:", "parent": "1:fffe", "packets": 12}
    assert tc.parse_passed(json.dumps([*json.loads(QDISCS), leaf])) == 12
    assert tc.parse_passed("[]") == 0
    with pytest.raises(TcError):
        tc.parse_passed("{")


def test_a_real_link_is_not_shaped() -> None:
    real, unimpaired = (link(1, profile) for profile in (LinkProfile(real=True), LinkProfile()))
    assert tc.setup_commands("v1", [real], OLD) == tc.setup_commands("v1", [unimpaired], OLD)
    assert tc.change_command("v1", real, OLD) == tc.change_command("v1", unimpaired, OLD)


def test_links_to_several_nodes_differ_in_their_targets() -> None:
    links = [
        tc.KernelLink(index=index, address="10.9.0.2", profile=WAN, seed=1, target=f"10.9.1.{index}")
        for index in (1, 2)
    ]
    filters = [command for command in tc.setup_commands("trunk", links, OLD) if "filter" in command]
    assert [command.count("match") for command in filters] == [2, 2, 2, 2]  # source and target, of IPv4 and of IPv6
    with pytest.raises(TcError, match="one index or one address"):
        tc.setup_commands("trunk", [links[0], replace(links[0], index=3)], OLD)
    with pytest.raises(TcError, match="'pi' is not an IPv4 address"):
        replace(links[0], target="pi")


def test_commands_are_argument_lists() -> None:
    commands = tc.setup_commands("data0", [link(1, WAN)], OLD)
    assert all(command[0] == "tc" and " " not in "".join(command) for command in commands)


@pytest.mark.parametrize(
    ("profile", "options"),
    [
        (LinkProfile(latency=0.01205), "delay 12.05ms"),
        (LinkProfile(latency=5.5), "delay 5500ms"),
        (LinkProfile(latency=1e-6), "delay 0.001ms"),
        (SHORT, "delay 12.05ms 0.25ms distribution normal rate 32gbit"),
        (LinkProfile(latency=0.1, jitter=0.01, distribution="uniform"), "distribution uniform rate 32gbit"),
        (BURSTY, "delay 20ms loss gemodel 2% 30% 90% 1% corrupt 0.1% reorder 5% rate 5.47kbit"),
        (LinkProfile(rate=1e6), "rate 1mbit"),
        (LinkProfile(rate=3.0), "rate 8bit"),
    ],
)
def test_options_of_netem(profile: LinkProfile, options: str) -> None:
    leaf = tc.setup_commands("data0", [link(1, profile)], OLD)[2]
    assert netem_of(leaf).endswith(options)


def test_a_chain_starts_in_either_state_as_often_as_it_is_there() -> None:
    """netem starts it in what it takes for the good state; the loss in it comes last (tc-netem(8))."""
    chain = GilbertElliott(p=0.1, r=0.3, loss_good=0.01, loss_bad=0.9)
    options = [
        netem_of(tc.change_command("v1", replace(link(1, LinkProfile(loss=chain)), seed=seed), OLD))
        for seed in range(1000)
    ]
    good = sum("gemodel 10% 30% 90% 1%" in each for each in options)
    bad = sum("gemodel 30% 10% 1% 90%" in each for each in options)
    assert good + bad == 1000
    assert bad == pytest.approx(250, abs=45)  # p / (p + r); 45 are three standard deviations and more


def test_a_chain_that_starts_in_its_bad_state_is_the_same() -> None:
    (leaf,) = [qdisc for qdisc in json.loads(QDISCS) if qdisc["handle"] == "5:"]
    leaf["options"]["loss-gemodel"] = {"p": 0.3, "r": 0.02, "1-h": 0.01, "1-k": 0.9}
    assert tc.compare(BURSTY, tc.parse_qdiscs(json.dumps([leaf]))[4]) == []
    leaf["options"]["loss-gemodel"] = {"p": 0.3, "r": 0.02, "1-h": 0.9, "1-k": 0.01}
    assert len(tc.compare(BURSTY, tc.parse_qdiscs(json.dumps([leaf]))[4])) == 1


def test_a_change_is_in_place_and_names_every_setting() -> None:
    command = tc.change_command("data0", link(3, LinkProfile()), OLD)
    assert command[:9] == ["tc", "qdisc", "change", "dev", "data0", "parent", "1:3", "handle", "4:"]
    # Rate and corruption stay as they were unless named (sch_netem.c, netem_change).
    assert netem_of(command) == "limit 100000 delay 0ms corrupt 0% rate 0bit"


def test_a_cut_stops_the_link_before_it_takes_its_place() -> None:
    commands = [tc.stop_command("data0", link(1, WAN)), tc.cut_command("data0", link(1, WAN))]
    assert batch.lines(commands).splitlines() == [
        "qdisc add dev data0 parent 2:1 blackhole",
        "qdisc replace dev data0 parent 1:1 blackhole",
    ]


def test_a_restored_link_is_shaped_again() -> None:
    shape = tc.restore_command("data0", link(1, WAN.merged(duplicate=0.1)), NEW)
    assert shape[:9] == ["tc", "qdisc", "replace", "dev", "data0", "parent", "1:1", "handle", "2:"]
    assert "duplicate 10%" in netem_of(shape)


def test_what_cuts_have_dropped_is_read() -> None:
    leaf = {"kind": "blackhole", "handle": "8002:", "parent": "1:1f", "drops": 4}
    # The blackhole of class ffff takes what has no link.
    assert tc.parse_cuts(json.dumps([*json.loads(QDISCS), leaf])) == {0x1F: 4}
    # One below netem, whose handle is one more than the link's index, is of a link that was only stopped.
    below = {"kind": "blackhole", "handle": "8003:", "parent": "20:1", "drops": 5}
    assert tc.parse_cuts(json.dumps([leaf, below])) == {0x1F: 4}
    assert tc.parse_stops(json.dumps([leaf, below])) == {0x1F: 5}
    for parse in (tc.parse_cuts, tc.parse_stops):
        with pytest.raises(TcError, match="cannot read"):
            parse("[3]")


def test_seeds_do_not_come_again() -> None:
    seeds = [7]
    while len(seeds) < 1000:
        seeds.append(tc.next_seed(seeds[-1]))
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_seed_is_given_where_the_kernel_takes_one() -> None:
    assert netem_of(tc.change_command("data0", link(7, WAN), NEW)).endswith("seed 1007")
    assert "seed" not in tc.change_command("data0", link(7, WAN), OLD)


def test_what_the_kernel_cannot_do_is_left_out_and_said() -> None:
    links = [link(1, WAN.merged(duplicate=0.01)), link(2, LinkProfile())]
    assert not any("duplicate" in command for command in tc.setup_commands("data0", links, OLD))
    seed, duplicate = tc.not_applied(links, OLD, alone=False)
    assert seed.startswith("seed:")
    assert duplicate.startswith("duplicate on the link from 10.9.0.2")
    assert tc.not_applied(links, NEW, alone=False) == []


def test_a_kernel_that_repeats_its_random_numbers_needs_no_seed() -> None:
    links = [link(1, WAN)]
    (note,) = tc.not_applied(links, OLD, alone=True)
    assert note.startswith("seed:")
    assert tc.not_applied(links, replace(OLD, repeats=True), alone=True) == []


def test_what_is_requested_of_the_kernel_is_what_it_can_do() -> None:
    profile = WAN.merged(duplicate=0.1)
    assert tc.applied(profile, OLD, alone=False) == WAN
    assert tc.applied(profile, OLD, alone=True) == tc.applied(profile, NEW, alone=False) == profile


def test_a_rate_beyond_the_kernels_is_no_limit() -> None:
    """`engine: auto` may lead such a link here. It is noted and not refused: no error ends the plan or the run."""
    fast = LinkProfile(latency=0.01, rate=40e9, buffer_bytes=1 << 20)
    assert tc.applied(fast, NEW, alone=True) == LinkProfile(latency=0.01)
    assert "rate" not in netem_of(tc.setup_commands("data0", [link(1, fast)], NEW)[2])
    (note,) = tc.not_applied([link(1, fast)], NEW, alone=True)
    assert note.startswith("rate on the link from 10.9.0.2")


def test_a_lone_link_can_always_duplicate() -> None:
    links = [link(1, LinkProfile(duplicate=0.01))]
    assert "duplicate" in tc.setup_commands("data0", links, OLD)[2]
    assert "duplicate" in tc.change_command("data0", links[0], OLD, alone=True)
    assert [message for message in tc.not_applied(links, OLD, alone=True) if "duplicate" in message] == []


def test_nothing_random_needs_no_seed() -> None:
    assert tc.not_applied([link(1, LinkProfile(latency=0.1, rate=1e6))], OLD, alone=True) == []


def test_few_links_need_no_hash() -> None:
    commands = tc.setup_commands("data0", [link(index, WAN) for index in range(1, 33)], OLD)
    assert not any("divisor" in command for command in commands)
    commands = tc.setup_commands("data0", [link(index, WAN) for index in range(1, 34)], OLD)
    assert any("divisor" in command for command in commands)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"index": 0}, "index 0 is not between 1"),
        ({"index": 0xFFFF}, "index 65535"),
        ({"address": "fd00::1"}, "'fd00::1' is not an IPv4 address"),
    ],
)
def test_links_that_tc_cannot_express(changes: dict[str, object], message: str) -> None:
    values: dict[str, object] = {"index": 1, "address": "10.9.0.2", "profile": WAN, "seed": 1}
    with pytest.raises(TcError, match=message):
        tc.KernelLink(**(values | changes))  # type: ignore[arg-type]


def test_one_address_belongs_to_one_link() -> None:
    with pytest.raises(TcError, match=r"data0: two links.*index.*address"):
        tc.setup_commands("data0", [link(1, WAN), link(2, WAN, "10.9.0.2")], OLD)


def test_a_jitter_that_netem_would_cut_is_refused() -> None:
    """A change that no plan knows of, such as a manual fault."""
    with pytest.raises(TcError, match=r"jitter: netem's.*most 2\.147 s"):
        tc.change_command("v1", link(1, LinkProfile(latency=10.0, jitter=3.0)), NEW)


def test_reading_back() -> None:
    states = tc.parse_qdiscs(QDISCS)
    assert list(states) == [2, 4, 7, 10]
    wan = states[2]
    assert wan.profile == WAN
    assert (wan.limit, wan.seed) == (100_000, None)
    assert (wan.packets, wan.sent_bytes, wan.dropped, wan.backlog, wan.backlog_packets) == (3583, 5325403, 11, 3028, 2)
    assert states[4].profile.loss == BURSTY.loss
    assert states[7].profile.rate is None  # the rate that keeps order is no rate of the link
    assert states[10].profile == LinkProfile()


@pytest.mark.parametrize(("index", "profile"), [(2, WAN), (4, BURSTY), (7, SHORT), (10, LinkProfile())])
def test_what_was_configured_is_found(index: int, profile: LinkProfile) -> None:
    assert tc.compare(profile, tc.parse_qdiscs(QDISCS)[index]) == []


def test_differences_are_named() -> None:
    asked = WAN.merged(latency=0.041, loss=GilbertElliott(p=0.1, r=0.5), rate=None, duplicate=0.1)
    found = {difference.partition(":")[0] for difference in tc.compare(asked, tc.parse_qdiscs(QDISCS)[2])}
    assert found == {"latency", "loss", "rate", "duplicate"}
    # A million packets a second for 2.02 s, and a buffer of two latencies at 1 Gbit/s in frames of 42 bytes.
    (limit,) = tc.compare(WAN.merged(latency=2.0, rate=1e9), tc.parse_qdiscs(QDISCS)[2])[-1:]
    assert limit.startswith("limit: configured 13924762")
    shorter = BURSTY.merged(loss=GilbertElliott(p=0.02, r=0.4, loss_good=0.01, loss_bad=0.9))
    (difference,) = tc.compare(shorter, tc.parse_qdiscs(QDISCS)[4])
    assert "loss: configured GilbertElliott(p=0.02, r=0.4" in difference


def test_a_reorder_left_over_from_before_a_change_is_off() -> None:
    (leaf,) = [qdisc for qdisc in json.loads(QDISCS) if qdisc["handle"] == "5:"]
    leaf["options"]["gap"] = 0
    assert tc.parse_qdiscs(json.dumps([leaf]))[4].profile.reorder == 0.0


@pytest.mark.parametrize(
    "text", ["", "qdisc netem 2: parent 1:1", '{"a": 1}', "3", '[{"kind": "netem"}]', '[{"handle": "1:"}]']
)
def test_output_that_cannot_be_read(text: str) -> None:
    with pytest.raises(TcError, match="cannot read the output of tc"):
        tc.parse_qdiscs(text)
