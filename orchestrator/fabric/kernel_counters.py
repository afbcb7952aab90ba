"""The kernel engine's counters of links, from what tc shows of an interface. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from netem import tc

# drawn: packets whose loss netem has decided; the other offered packets came during a cut.
_COUNTERS = ("offered", "offered_bytes", "delivered", "delivered_bytes", "lost", "cut_dropped", "drawn")


def read(shown: str) -> dict[int, dict[str, int]]:
    """Counters of the qdiscs of an interface, by the index of the link."""
    counted = {index: counts(state) for index, state in tc.parse_qdiscs(shown).items()}
    return counted | {index: cut_off(packets) for index, packets in tc.parse_cuts(shown).items()}


def counts(state: tc.KernelLinkState) -> dict[str, int]:
    """Counters from netem's sent, queued and dropped packets; netem does not report the cause of a drop."""
    drawn = state.packets + state.dropped + state.backlog_packets
    return {
        "offered": drawn,
        "drawn": drawn,
        "offered_bytes": state.sent_bytes + state.backlog,
        "delivered": state.packets,
        "delivered_bytes": state.sent_bytes,
        "lost": state.dropped,
    }


def cut_off(packets: int) -> dict[str, int]:
    """Counters of a link that is cut."""
    return {"offered": packets, "cut_dropped": packets}


def added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in _COUNTERS}
