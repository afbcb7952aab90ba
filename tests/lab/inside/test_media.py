"""Shared media: what members of a channel get together, and that nothing else changes."""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

import pytest

from netem.measurement.contention import jain
from netem.media.profile import Crossing
from netem.profile import FULL_FRAME, LinkProfile
from orchestrator.errors import FabricError
from orchestrator.fabric.base import ChannelRow, LinkChange, since
from tests.lab.inside.chance import EXACT
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import stream

Ends = tuple[str, str]
Note = Callable[[str, object, object], None]
CELL, LINE, AP = "cell up", "line up", "ap"
RATE = 4e6
MEMBERS = {
    CELL: tuple(f"device-{number}" for number in range(5)),
    LINE: ("device-5", "device-6", "device-7"),
    AP: ("device-8", "device-9"),
}
NAMES = MEMBERS[CELL]
SEGMENT = 1448  # bytes of a full frame of TCP with time stamps
SCENARIO = """\
name: lab
algorithm: {{name: fedavg, rounds: 1}}
topology: {{edges: 0, devices: {devices}}}
links: {{device-cloud: {link}}}
shared:
  cell:
    up: 4mbit
    down: 8mbit
    buffer: 300ms
    members: [device-0, device-1, device-2, device-3, device-4]
  line: {{rate: 4mbit, buffer: 300ms, share: fifo, members: [device-5, device-6, device-7]}}
  ap: {{rate: 4mbit, buffer: 300ms, duplex: half, share: airtime, members: [device-8, device-9]}}
"""


@pytest.fixture(scope="module")
def media(shared: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    devices = sum(map(len, MEMBERS.values()))
    with Stage(devices, tmp_path_factory.mktemp("stage"), "{latency: 10ms}", shared.tried, SCENARIO) as stage:
        for node in stage.plan.nodes:
            stage.attach(node.name)
        yield stage


def transfer(stage: Stage, sizes: Mapping[Ends, int], *, seconds: float = 60.0) -> dict[Ends, tuple[float, int]]:
    """Send so many bytes from each source to its target with TCP, all at the same time. By pair: the seconds from the
    start until the last byte arrived, and the bytes that arrived, in at most so many seconds."""
    with ExitStack() as stack, selectors.DefaultSelector() as ready:
        left = dict(sizes)
        for source, target in sizes:
            server = stack.enter_context(stage.bound(target, socket.SOCK_STREAM))
            server.listen(1)
            sender = stack.enter_context(stage.bound(source, socket.SOCK_STREAM))
            sender.connect(server.getsockname())
            receiver = stack.enter_context(server.accept()[0])
            for each, event in ((sender, selectors.EVENT_WRITE), (receiver, selectors.EVENT_READ)):
                each.setblocking(False)
                ready.register(each, event, (each, (source, target)))
        began, chunk = time.monotonic(), bytes(1 << 16)
        ended = dict.fromkeys(sizes, (0.0, 0))
        while time.monotonic() - began < seconds and any(ended[pair][1] < size for pair, size in sizes.items()):
            for key, events in ready.select(1.0):
                end, pair = key.data
                if events & selectors.EVENT_READ:
                    ended[pair] = time.monotonic() - began, ended[pair][1] + len(end.recv(1 << 16))
                    continue
                with contextlib.suppress(BlockingIOError):
                    left[pair] -= end.send(chunk[: left[pair]])
                if not left[pair]:
                    ready.unregister(end)
    return ended


def up(members: Iterable[str], size: int = 10_000_000) -> dict[Ends, int]:
    return {(name, "cloud"): size for name in members}


def rows(stage: Stage, channel: str) -> dict[str, ChannelRow]:
    """The counters of a channel by member."""
    found = stage.do(stage.fabric.counters()).channels
    return {str(row["member"]): row for row in found if row["channel"] == channel}


def frames(size: float) -> float:
    """The bytes of the frames of so many bytes."""
    return size / SEGMENT * FULL_FRAME


@pytest.mark.parametrize("channel", [CELL, LINE])
def test_together_members_get_the_rate(media: Stage, note: Note, channel: str) -> None:
    members, before = MEMBERS[channel], rows(media, channel)
    size = 2_500_000 // len(members)
    found = transfer(media, up(members, size))
    last, expected = max(at for at, _ in found.values()), 8 * frames(size * len(members)) / RATE
    note(f"{len(members)} uploads over {channel}: the last one (s)", f"{expected:.2f}", f"{last:.2f}")
    after = rows(media, channel)
    assert after.keys() == set(members)
    grown = [since(row, before.get(name)) for name, row in after.items()]
    carried = sum(int(row["bytes"]) for row in grown)
    note(f"{channel}: bytes", f"{frames(size * len(members)):.0f}", carried)
    assert sum(float(row["seconds"]) for row in grown) == pytest.approx(8 * carried / RATE)
    assert last == pytest.approx(expected, rel=0.02)
    assert carried == pytest.approx(frames(size * len(members)), rel=0.02)
    assert {int(row["queued_bytes"]) for row in after.values()} == {0}
    dropped = sum(int(row["overflowed"]) for row in grown)
    note(f"{channel}: packets that a full buffer dropped", "some", dropped)
    assert dropped  # TCP fills the buffer


def test_fair_shares_are_equal(media: Stage, note: Note) -> None:
    found = transfer(media, up(NAMES), seconds=4)
    index = jain(size for _, size in found.values())
    note("five uploads for 4 s, fair: Jain's index", ">= 0.98", f"{index:.4f}")
    assert index >= 0.98


def test_both_directions_share_a_half_duplex_medium(media: Stage, note: Note) -> None:
    one, other = MEMBERS[AP]
    found = transfer(media, {(one, "cloud"): 10_000_000, ("cloud", other): 10_000_000}, seconds=4)
    rates = [8 * frames(size) / at for at, size in found.values()]
    note("an upload and a download, half duplex (Mbit/s)", "nearly 2 each", listed(rates))
    # An acknowledgement has 66 bytes. Without offloading, each of them answers one or two full frames.
    assert sum(rates) == pytest.approx(RATE * (1 - 66 / FULL_FRAME), rel=0.06)
    for rate in rates:  # the one that starts first has some tenths of a second alone
        assert rate == pytest.approx(RATE / 2, rel=0.15)


def test_ipv6_crosses_the_channel(media: Stage) -> None:
    before = rows(media, CELL).get(NAMES[0], {"packets": 0})  # no row without traffic
    with (
        media.bound_to_ipv6("cloud", socket.SOCK_DGRAM) as far,
        media.bound_to_ipv6(NAMES[0], socket.SOCK_DGRAM) as near,
    ):
        for number in range(20):
            near.sendto(bytes([number]), far.getsockname())
            assert far.recv(1) == bytes([number])
    assert int(rows(media, CELL)[NAMES[0]]["packets"]) - int(before["packets"]) == 20


def test_another_medium_is_not_disturbed(media: Stage, note: Note) -> None:
    idle = MEMBERS[LINE][0]
    quiet = stream(media, idle, "cloud", count=100, spacing=0.02).delays
    loading = threading.Thread(target=transfer, args=(media, up(NAMES)), kwargs={"seconds": 3})
    loading.start()
    time.sleep(1)
    loaded = stream(media, idle, "cloud", count=100, spacing=0.02).delays
    loading.join()
    longest = max(loaded)
    note("one way in another medium, while this one is full, the longest (ms)", 10, f"{longest * 1e3:.3f}")
    # A packet that finds a medium idle does not wait for its own rate.
    assert quiet == pytest.approx([0.01] * 100, abs=EXACT)
    assert loaded == pytest.approx([0.01] * 100, abs=EXACT)


def test_a_member_also_has_its_own_link(media: Stage, note: Note) -> None:
    slow, others = (NAMES[0], "cloud"), up(NAMES[1:4])
    media.do(media.fabric.change(*slow, LinkProfile(latency=0.01, rate=5e5, buffer=0.3)))
    try:
        found = transfer(media, {slow: 10_000_000, **others}, seconds=5)
    finally:
        media.do(media.fabric.change(*slow, LinkProfile(latency=0.01)))
    rates = {pair: 8 * frames(size) / at for pair, (at, size) in found.items()}
    note("a member with a link of 0.5 Mbit/s, three others (Mbit/s)", "0.5, 1.17 each", listed(rates.values()))
    assert rates[slow] == pytest.approx(5e5, rel=0.05)
    assert sum(rates.values()) == pytest.approx(RATE, rel=0.03)
    for pair in others:
        assert rates[pair] == pytest.approx((RATE - 5e5) / 3, rel=0.05)


def test_a_change_of_the_rate_acts_at_once(media: Stage, note: Note) -> None:
    planned = media.plan.media[0].channels[CELL]
    media.do(media.fabric.share({CELL: replace(planned, rate=2e6)}))
    try:
        found = transfer(media, up(NAMES[:4]), seconds=4)
    finally:
        media.do(media.fabric.share({CELL: planned}))
    rate = sum(8 * frames(size) / at for at, size in found.values())
    note("four uploads after a degrade to 2 Mbit/s (Mbit/s)", 2, f"{rate / 1e6:.3f}")
    assert rate == pytest.approx(2e6, rel=0.03)


def test_small_packets_fill_the_buffer_by_their_bytes(media: Stage, note: Note) -> None:
    name, planned = MEMBERS[LINE][0], media.plan.media[1].channels[LINE]
    # 300 ms of 0.4 Mbit/s are 15,000 bytes: 147 packets of 102 bytes, or 9 full ones.
    media.do(media.fabric.share({LINE: replace(planned, rate=4e5)}))
    before = int(rows(media, LINE).get(name, {"overflowed": 0})["overflowed"])
    try:
        sent = stream(media, name, "cloud", count=300, spacing=0, size=60)
    finally:
        media.do(media.fabric.share({LINE: planned}))
    arrived = sent.counts()["received"]
    note("300 packets of 102 bytes into 15,000 bytes of a medium", "147..150", arrived)
    assert 147 <= arrived <= 150  # HTB lets the first ones pass at once
    assert int(rows(media, LINE)[name]["overflowed"]) - before == 300 - arrived


def test_a_refused_change_changes_nothing(media: Stage) -> None:
    def settings() -> str:
        commands = ["tc class show dev medium0 classid 10:1", "tc qdisc show dev medium0"]
        shown = "".join(media.do(media.hub.run(command.split())) for command in commands)
        return re.sub(r"direct_packets_stat \d+", "", shown)  # counts packets

    before, planned = settings(), media.plan.media[0].channels[CELL]
    with pytest.raises(FabricError):
        media.do(media.fabric.share({CELL: replace(planned, buffer=1e9)}))  # more bytes than 32 bits can say
    assert settings() == before


def test_a_node_is_handed_over(media: Stage) -> None:
    name, planned = NAMES[0], Crossing(CELL, NAMES[0])
    change = LinkChange(name, "cloud", crossings=(Crossing(LINE, name),))
    assert media.do(media.fabric.alter([change])) == [None]
    before = sum(int(row["packets"]) for member, row in rows(media, LINE).items() if member == name)
    try:
        sent = stream(media, name, "cloud", count=50, spacing=0.01)
    finally:
        assert media.do(media.fabric.alter([replace(change, crossings=(planned,))])) == [None]
    assert sent.lost == 0
    assert 50 <= int(rows(media, LINE)[name]["packets"]) - before <= 52  # ARP may ask again


def test_the_devices_are_in_the_hub_alone(media: Stage) -> None:
    outside = subprocess.run(["ip", "-brief", "link"], check=True, capture_output=True, text=True).stdout
    assert "medium0" in media.do(media.hub.run(["ip", "-brief", "link"]))
    assert "medium" not in outside


def listed(rates: Iterable[float]) -> str:
    return ", ".join(f"{rate / 1e6:.3f}" for rate in rates)
