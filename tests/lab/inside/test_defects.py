"""Known defects and traps of netem and tc, tried out on this kernel: which are here, and that the engine avoids them.

What the engine must avoid on every kernel is asserted. What depends on the kernel is written down (`note`), and
asserted is that the tryout has found out.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from netem.profile import LinkProfile
from orchestrator.errors import HostError
from tests.lab.inside.chance import EXACT
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import stream
from tests.netem.traffic import goodput, transfer

Note = Callable[[str, object, object], None]
UP = ("device-0", "cloud")
DOWN = ("cloud", "device-0")


def test_the_tryout_finds_netem(stage: Stage, note: Note) -> None:
    assert stage.tried["netem"] is True
    assert stage.tried["reason"] == ""
    note("tryout: seed, duplicate_in_tree", "", f"{stage.tried['seed']}, {stage.tried['duplicate_in_tree']}")


def test_a_seed_is_given_and_shown_where_the_kernel_takes_one(stage: Stage) -> None:
    stage.shape(*UP, LinkProfile(loss=0.1))
    first = stage.state(*UP).seed
    stage.shape(*UP, LinkProfile(loss=0.2))
    second = stage.state(*UP).seed
    if stage.tried["seed"]:
        assert first is not None
        assert second is not None
        assert first != second  # a change restarts the draws; from the same seed they would be the same few
    else:
        assert first is second is None
    # What is drawn without one follows from the seed of the guest, so it repeats too.
    assert not any("seed" in text for text in _notes(stage, LinkProfile(loss=0.1)))


def test_duplication_next_to_other_netems(stage: Stage, note: Note) -> None:
    """Linux 6.16 and stable kernels since July 2025 refuse it (ec8e0e3d7ade)."""
    profile = LinkProfile(duplicate=0.5)
    notes = _notes(stage, profile)
    got = stream(stage, *UP, count=200).counts()["duplicated"]
    if stage.tried["duplicate_in_tree"]:
        assert 60 < got < 140
        assert not any("duplicate" in text for text in notes)
    else:
        assert got == 0
        assert any("duplicate on the link from 10.77.0.2" in text for text in notes)
        with pytest.raises(HostError, match="cannot mix duplicating netems"):
            _tc(stage, *f"change dev {stage.interface('cloud')} parent 1:1 handle 2: netem duplicate 50%".split())
    note("duplicate 50 % beside another link, of 200", "noted if not applied", got)


def test_latency_above_the_32_bits_of_nanoseconds(stage: Stage, note: Note) -> None:
    """tc before 6.9 and older kernels keep 32 bits of a delay, 4.29 s: what is taken must also be held."""
    stage.shape(*UP, LinkProfile(latency=4.5))
    (delay,) = stream(stage, *UP, count=1, settle=5.0).delays
    assert delay == pytest.approx(4.5, abs=EXACT)
    note("one way (s)", 4.5, f"{delay:.4f}")


def test_a_fraction_of_a_millisecond_is_kept(stage: Stage, note: Note) -> None:
    """12.05 ms written without padding would be 12.5 ms."""
    stage.shape(*UP, LinkProfile(latency=0.01205))
    delays = stream(stage, *UP, count=60, spacing=0.003).delays
    assert delays == pytest.approx([0.01205] * 60, abs=EXACT)
    note("one way, the longest of 60 (ms)", 12.05, f"{max(delays) * 1000:.4f}")


def test_jitter_alone_reorders_in_netem_and_not_here(stage: Stage, note: Note) -> None:
    stage.shape(*UP, LinkProfile(latency=0.01, jitter=0.003))
    kept = stream(stage, *UP, count=500).counts()["reordered"]
    _tc(stage, *f"change dev {stage.interface('cloud')} parent 1:1 handle 2: netem delay 10ms 3ms rate 0".split())
    bare = stream(stage, *UP, count=500).counts()["reordered"]
    assert kept == 0
    assert bare > 100
    note("reordered of 500 under jitter: as asked, netem left to itself", "0", f"{kept}, {bare}")


def test_no_four_second_spikes_under_jitter(stage: Stage, note: Note) -> None:
    """Linux 4.15 has them (LP#1783822)."""
    stage.shape(*UP, LinkProfile(latency=0.002, jitter=0.004))
    worst = max(stream(stage, *UP, count=800, spacing=0.001).delays)
    assert worst < 0.1
    note("slowest of 800 under latency 2 ms, jitter 4 ms (ms)", "<30", f"{worst * 1000:.1f}")


def test_rate_and_latency_do_not_add_up_for_an_idle_link(stage: Stage, note: Note) -> None:
    stage.shape(*UP, LinkProfile(latency=0.03, rate=1e6))
    delays = stream(stage, *UP, count=60, spacing=0.01, size=83).delays
    assert delays == pytest.approx([0.031] * 60, abs=EXACT)  # 125 bytes take 1 ms
    note("one way, 125 bytes at 1 Mbit/s and 30 ms, the longest of 60 (ms)", 31, f"{max(delays) * 1000:.4f}")


def test_a_change_takes_off_what_it_does_not_name(stage: Stage) -> None:
    """tc leaves rate, corruption and reordering as they were unless a change names them."""
    everything = LinkProfile(latency=0.01, jitter=0.001, loss=0.3, rate=1e5, corrupt=0.3, reorder=0.3, duplicate=0.3)
    stage.shape(*DOWN, everything)
    stage.shape(*DOWN, LinkProfile())
    counts = stream(stage, *DOWN, count=300, spacing=0).counts()
    assert counts == {"sent": 300, "received": 300, "bursts": 0, "duplicated": 0, "reordered": 0}


def test_a_loss_takes_single_packets_of_tcp(shared: Stage, tmp_path: Path, note: Note) -> None:
    """netem loses whole super-packets of up to 64 KB unless the sender makes none."""
    with Stage(1, tmp_path, "{loss: 0.5%}", shared.tried) as stage:
        for node in stage.plan.nodes:
            stage.attach(node.name)
        assert "gso_max_segs 1 " in stage.nodes["device-0"].run("ip", "-d", "link", "show", "data0")
        before = stage.counters(*UP)
        data = Random(1).randbytes(400_000)
        assert transfer(stage, *UP, data) == data
        after = stage.counters(*UP)
        packets = after["offered"] - before["offered"]
        size = (after["delivered_bytes"] - before["delivered_bytes"]) / (after["delivered"] - before["delivered"])
        assert packets > 100
        assert size <= 1514
        note("mean packet of TCP on a lossy link (bytes)", "<=1514", f"{size:.0f}")


def test_tcp_is_not_held_up_by_the_senders_small_queues(stage: Stage, note: Note) -> None:
    """netem on the sender's own device would count packets in flight as not yet sent (tc-netem(8), LIMITATIONS)."""
    stage.shape(*UP, LinkProfile(latency=0.02, rate=10e6, buffer=0.5))
    got = goodput(stage, *UP, seconds=1.6, skip=0.6, window=200_000) * 1514 / 1448
    assert got == pytest.approx(10e6, rel=0.002)
    note("TCP over 10 Mbit/s and 20 ms, headers added (Mbit/s)", 10, f"{got / 1e6:.2f}")


def test_a_long_burst_is_not_let_through_by_htb(stage: Stage, note: Note) -> None:
    """HTB's burst of one second's worth would hide the rate from short transfers."""
    stage.shape(*UP, LinkProfile(rate=2e6, buffer=1.0))
    sent = stream(stage, *UP, count=40, spacing=0, size=1472)
    took = sent.arrivals[-1].time - sent.sent[0]
    assert took == pytest.approx(40 * 1514 * 8 / 2e6, abs=EXACT)
    note("the first 40 full frames over 2 Mbit/s (ms)", "242.2", f"{took * 1000:.1f}")


def test_arp_and_ipv6_do_not_leak(stage: Stage) -> None:
    """What no filter matches goes into a blackhole, not past the shaping."""
    node = stage.nodes["device-0"]
    stranger = "10.77.99.99"
    node.run("ip", "addr", "add", f"{stranger}/16", "dev", "data0")
    try:
        before = stage.counters(*UP)["offered"]
        with node.socket(socket.SOCK_DGRAM, (stranger, 0)) as near, stage.bound("cloud", socket.SOCK_DGRAM) as far:
            far.settimeout(0.2)
            near.sendto(b"?", far.getsockname())
            with pytest.raises(TimeoutError):
                far.recv(10)
        assert stage.counters(*UP)["offered"] == before
    finally:
        node.run("ip", "addr", "del", f"{stranger}/16", "dev", "data0")


def _notes(stage: Stage, profile: LinkProfile) -> list[str]:
    stage.shape(*UP, profile)
    return stage.fabric.notes()


def _tc(stage: Stage, *arguments: str) -> None:
    stage.do(stage.hub.run(["tc", "qdisc", *arguments]))
