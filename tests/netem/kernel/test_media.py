"""Commands for channels of shared media, and their counters."""

from __future__ import annotations

import json
import operator

import pytest

from netem.errors import TcError
from netem.kernel import filters, media
from netem.kernel.filters import Match
from netem.kernel.media import CommonQueue, Offered, Queue
from netem.media.profile import ChannelProfile

FAIR = ChannelProfile(20e6, "fair", 0.2)  # 500 kB
FIFO = ChannelProfile(20e6, "fifo", 0.2)


def words(commands: list[list[str]]) -> list[str]:
    return [" ".join(command) for command in commands]


def test_a_class_for_each_member_that_only_borrows() -> None:
    assert words(media.channel_commands("medium0", FAIR)) == [
        "tc qdisc add dev medium0 root handle 10: htb default 1",
        "tc class add dev medium0 parent 10: classid 10:1 htb rate 20mbit ceil 20mbit burst 10000b cburst 10000b"
        " quantum 1514",
    ]
    assert words(media.member_commands("medium0", FAIR, 9, members=10)) == [
        "tc class replace dev medium0 parent 10:1 classid 10:b htb rate 8bit ceil 32gbit burst 1b cburst 40000000b"
        " quantum 1514",
        "tc qdisc replace dev medium0 parent 10:b handle 1b: bfifo limit 50000b",
    ]


def test_fifo_has_one_queue() -> None:
    assert words(media.channel_commands("medium1", FIFO))[2:] == [
        "tc qdisc add dev medium1 parent 10:1 handle 11: bfifo limit 500000b"
    ]
    assert media.member_commands("medium1", FIFO, 9, members=10) == []
    assert {media.class_of(FIFO, number) for number in range(3)} == {"10:1"}


def test_senders_detach_their_packets() -> None:
    assert " ".join(media.detach_command("data0")) == ("tc qdisc replace dev data0 root netem limit 100000 rate 32gbit")


def test_a_change_names_the_rate_once_and_every_queue() -> None:
    slower = ChannelProfile(2e6, "fair", 0.2)
    changes = words(media.change_commands("medium0", slower, numbers=3, members=2))
    assert changes[0].startswith("tc class change dev medium0 parent 10: classid 10:1 htb rate 2mbit ")
    assert [change.partition(" handle ")[2] for change in changes[1:]] == [
        f"1{minor}: bfifo limit 25000b" for minor in (2, 3, 4)
    ]
    assert len(media.change_commands("medium0", FIFO, numbers=3, members=2)) == 2


@pytest.mark.parametrize(
    ("profile", "members", "part"), [(FAIR, 0, 500_000), (FAIR, 3, 166_667), (FAIR, 1000, 2 * 1514), (FIFO, 4, 500_000)]
)
def test_the_part_of_the_buffer(profile: ChannelProfile, members: int, part: int) -> None:
    assert media.queue_limit(profile, members) == part


def test_packets_are_redirected_by_their_target() -> None:
    assert words(media.redirect_commands("v1.1")) == [
        "tc qdisc add dev v1.1 ingress",
        "tc filter add dev v1.1 parent ffff: protocol ip prio 1 handle 2: u32 divisor 256",
        "tc filter add dev v1.1 parent ffff: protocol ip prio 1 u32 ht 800:: match u32 0 0 at 0"
        " hashkey mask 0x000000ff at 16 link 2:",
        "tc filter add dev v1.1 parent ffff: protocol ipv6 prio 2 handle 3: u32 divisor 256",
        "tc filter add dev v1.1 parent ffff: protocol ipv6 prio 2 u32 ht 801:: match u32 0 0 at 0"
        " hashkey mask 0x000000ff at 36 link 3:",
    ]
    then = "action skbedit priority 10:2 pipe action mirred egress redirect dev medium0 index 7"
    # 10.77.0.1 is 0x0a4d0001, 10.77.2.31 is 0x0a4d021f
    assert words(filters.flow_commands("v1.1", Match("10.77.0.1", "10.77.2.31", "10:2", 7, "medium0"))) == [
        "tc filter replace dev v1.1 parent ffff: protocol ip prio 1 handle 2:1f:da7 u32 ht 2:1f:"
        f" match ip src 10.77.0.1/32 match ip dst 10.77.2.31/32 {then}",
        "tc filter replace dev v1.1 parent ffff: protocol ipv6 prio 2 handle 3:1f:da7 u32 ht 3:1f:"
        f" match u32 0x0a4d0001 0xffffffff at 20 match u32 0x0a4d021f 0xffffffff at 36 {then}",
    ]
    stopped = [*filters.stop_flow_commands("v1.1", "10.77.2.31"), media.stop_redirecting_command("v1.1")]
    assert words(stopped) == [
        "tc filter del dev v1.1 parent ffff: protocol ip prio 1 handle 2:1f:da7 u32",
        "tc filter del dev v1.1 parent ffff: protocol ipv6 prio 2 handle 3:1f:da7 u32",
        "tc qdisc del dev v1.1 ingress",
    ]


def test_queues_are_read_by_class() -> None:
    shown = [
        {"kind": "htb", "handle": "10:", "root": True, "bytes": 144, "packets": 3, "drops": 0},
        {"kind": "bfifo", "parent": "10:2", "bytes": 144, "packets": 3, "drops": 1, "backlog": 96, "qlen": 2},
    ]
    assert media.parse_queues(json.dumps(shown)) == {"10:2": Queue(3, 144, 1, 2, 96)}
    with pytest.raises(TcError, match="cannot read the output of tc"):
        media.parse_queues("[{}]")


def test_what_was_redirected_counts_with_its_ethernet_header() -> None:
    stats = {"bytes": 100, "packets": 2, "drops": 0}
    actions = [{"kind": "skbedit", "index": 7, "stats": stats}, {"kind": "mirred", "index": 7, "stats": stats}]
    shown = [{"kind": "u32"}, {"kind": "u32", "options": {"actions": actions}}]
    assert media.parse_redirected(json.dumps(shown)) == {7: Offered(2, 128)}
    with pytest.raises(TcError, match="cannot read the output of tc"):
        media.parse_redirected("[1]")


def test_a_common_queue_that_is_empty_is_attributed_exactly() -> None:
    queue = CommonQueue()
    assert queue.add(Queue(), {}) == {}
    first = queue.add(Queue(30, 30_000), {"a": Offered(10, 5_000), "b": Offered(20, 25_000)})
    assert first == {"a": Queue(10, 5_000), "b": Queue(20, 25_000)}
    assert queue.add(Queue(40, 40_000), {"a": Offered(10, 10_000)}) == {"a": Queue(20, 15_000), "b": Queue(20, 25_000)}


def test_what_waits_and_what_was_dropped_is_attributed_by_what_was_offered() -> None:
    queue = CommonQueue()
    offered = {"a": Offered(100, 100_000), "b": Offered(300, 300_000)}
    assert queue.add(Queue(200, 200_000, 80, 120, 120_000), offered) == {
        "a": Queue(50, 50_000, 20, 30, 30_000),
        "b": Queue(150, 150_000, 60, 90, 90_000),
    }
    last = queue.add(Queue(320, 320_000, 80), {})
    assert last == {"a": Queue(80, 80_000, 20), "b": Queue(240, 240_000, 60)}
    assert queue.add(Queue(321, 321_000, 80), {}) == {"a": Queue(80, 80_500, 20), "b": Queue(241, 240_500, 60)}


def test_no_packet_of_a_common_queue_is_lost_between_its_members() -> None:
    queue, before = CommonQueue(), dict[str, Queue]()
    for turn in range(1, 8):
        now = Queue(10 * turn, 1_003 * turn, 2 * turn, waiting=5, waiting_bytes=501)
        found = queue.add(now, {member: Offered(1, 100) for member in "abcdefg"[:turn]})
        assert tuple(map(sum, zip(*found.values(), strict=True))) == now
        for member, counts in before.items():
            assert all(map(operator.ge, found[member][:3], counts[:3]))
        before = found
