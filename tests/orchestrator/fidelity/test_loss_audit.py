"""Losses of the links of a run, counted against what was asked."""

from __future__ import annotations

from orchestrator.fabric.base import ChannelRow, LinkRow
from orchestrator.fidelity.loss_audit import MOST, look

CLASSES = {("a", "b"): "device-edge", ("b", "a"): "device-edge", ("b", "c"): "edge-cloud", ("c", "b"): "edge-cloud"}


def row(source: str, target: str, packets: int, lost: int, loss: float, **more: int) -> LinkRow:
    asked = packets * loss
    losses = {"asked_lost": asked, "asked_variance": asked * (1 - loss)}
    return {"source": source, "target": target, "drawn": packets, "lost": lost, **losses, **more}


def test_links_as_asked() -> None:
    one_class = [row("a", "b", 20_000, 210, 0.01), row("b", "a", 100, 2, 0.01)]
    other = [row("b", "c", 5000, 0, 0.0), row("c", "b", 0, 0, 0.5)]
    found = look([*one_class, *other], CLASSES)
    assert (found.links, found.packets, found.told, found.astray_count) == (3, 25_100, 2, 0)
    device_edge, edge_cloud = found.classes
    counts = {key: device_edge[key] for key in ("class", "links", "packets", "lost")}
    assert counts == {"class": "device-edge", "links": 2, "packets": 20_100, "lost": 212}
    assert (device_edge["verdict"], device_edge["asked"]) == ("pass", 0.01)
    assert device_edge["low"] < 0.01 < device_edge["high"]
    assert (edge_cloud["verdict"], edge_cloud["low"], edge_cloud["high"]) == ("pass", 0.0, 0.0)


def test_a_link_astray_is_named() -> None:
    found = look([row("a", "b", 10_000, 300, 0.01), row("b", "c", 10_000, 1, 0.0)], CLASSES)
    assert found.astray_count == 2
    assert [(each["link"], each["lost"]) for each in found.astray] == [("a → b", 300), ("b → c", 1)]
    assert {each["verdict"] for each in found.classes} == {"fail"}


def test_what_a_full_buffer_drops_is_not_counted_against_a_link() -> None:
    found = look([row("a", "b", 10_000, 105, 0.01, overflowed=900)], CLASSES)
    assert found.astray_count == 0
    assert found.overflowed == 900


def test_every_packet_that_disappears_is_counted() -> None:
    full = row("a", "b", 8668, 0, 0.0, overflowed=4292)
    cut = row("b", "c", 100, 0, 0.0, overflowed=8, cut_dropped=7)
    found = look([full, cut], CLASSES)
    assert (found.overflowed, found.cut_dropped) == (4300, 7)
    assert found.most_overflowed == {"link": "a → b", "packets": 4292}
    assert look([row("a", "b", 100, 0, 0.0)], CLASSES).most_overflowed is None


def test_what_finds_no_room_was_sent_too() -> None:
    """The kernel engine's buffer comes before its losses, that of the userspace engine behind them."""
    kernel = row("a", "b", 16, 0, 0.0, overflowed=24, offered=40)
    userspace = row("b", "c", 40, 0, 0.0, overflowed=24, offered=40)
    assert look([kernel, userspace], CLASSES).packets == 80


def test_what_media_drop_is_counted() -> None:
    channels: list[ChannelRow] = [{"channel": "cell up", "member": name, "overflowed": 4} for name in ("a", "b")]
    found = look([row("a", "b", 100, 0, 0.0, overflowed=7)], CLASSES, channels)
    assert found.overflowed == 15
    assert found.most_overflowed == {"link": "cell up", "packets": 8}


def test_what_nats_drop_is_counted() -> None:
    found = look([row("a", "b", 100, 0, 0.0, nat_expired=2), row("b", "c", 100, 0, 0.0, nat_expired=3)], CLASSES)
    assert (found.nat_expired, found.most_nat_expired) == (5, {"link": "b → c", "packets": 3})
    assert look([row("a", "b", 100, 0, 0.0)], CLASSES).most_nat_expired is None


def test_packets_above_a_limit_are_no_random_losses() -> None:
    found = look([row("a", "b", 100, 90, 0.0, too_large=90), row("b", "c", 100, 7, 0.0, too_large=7)], CLASSES)
    assert found.astray_count == 0
    assert (found.too_large, found.most_too_large) == (97, {"link": "a → b", "packets": 90})
    assert look([row("a", "b", 100, 91, 0.0, too_large=90)], CLASSES).astray_count == 1


def test_a_link_without_loss_that_loses_packets_fails() -> None:
    assert look([row("a", "b", 800, 306, 0.0)], CLASSES).astray_count == 1


def test_very_many_astray_are_counted() -> None:
    classes = {(f"d{number}", "e"): "device-edge" for number in range(100)}
    found = look([row(*pair, 1000, 500, 0.0) for pair in classes], classes)
    assert (found.astray_count, len(found.astray)) == (100, MOST)


def test_a_run_without_packets() -> None:
    assert look([], {}).links == 0
