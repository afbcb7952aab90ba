from __future__ import annotations

from orchestrator.fabric.namespaces import tcp

LINUX = {**tcp.SETTINGS, "tcp_fastopen_key": "00112233-44556677-8899aabb-ccddeeff", "tcp_sack": "1"}


def test_settings_are_recorded_without_the_key_of_fast_open() -> None:
    assert tcp.known(LINUX) == {**tcp.SETTINGS, "tcp_sack": "1"}


def test_refused_settings_are_noted() -> None:
    assert tcp.notes(LINUX) == tcp.notes({}) == []
    note, other = tcp.notes({**tcp.SETTINGS, "tcp_congestion_control": "bbr", "tcp_rmem": "4096 131072 33554432"})
    assert "tcp_congestion_control bbr and not cubic" in note
    assert "tcp_rmem 4096 131072 33554432 and not 4096 131072 6291456" in other


def test_a_kernel_without_cubic_keeps_its_own() -> None:
    assert tcp.congestion(tcp.SETTINGS) == "cubic"
    assert tcp.congestion({**tcp.SETTINGS, "tcp_congestion_control": "reno"}) is None


def test_hosts_that_differ_are_named() -> None:
    hosts = {"pc-1": {"tcp_sack": "1", "tcp_ecn": "2"}, "pi-1": {"tcp_sack": "0", "tcp_ecn": "2"}}
    assert tcp.of_hosts(hosts) == {"tcp_sack": "1 on pc-1, 0 on pi-1", "tcp_ecn": "2"}
    assert tcp.of_hosts({}) == {}
