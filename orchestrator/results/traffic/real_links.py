"""What was measured of the real links of a run, for the summary. Nothing was asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator import text
from orchestrator.results.checks.network import real_networks
from orchestrator.results.record.history import History

_ENDS = ("source", "target", "link_class")


def real_links(history: History) -> dict[str, Any] | None:
    """None if there are none. Keys: before [{source, target, link_class, and a figure of each quantity}], of probes;
    networks [{hosts, links, round_trip, echoes, lost, sent, missing}], between hosts during the run."""
    if not (networks := real_networks(history)):
        return None
    before: dict[tuple[str, str], dict[str, Any]] = {}
    for probe in history.probes():
        if probe.kind == "real":
            ends = {key: getattr(probe, key) for key in _ENDS}
            before.setdefault((probe.source, probe.target), ends)[probe.quantity] = probe.measured
    return {"before": list(before.values()), "networks": [network.to_json() for network in networks]}


def sentences(real: Mapping[str, Any]) -> Iterator[str]:
    """The figures of each link before the run. The check "network between hosts" has those during it."""
    for link in real["before"]:
        figures = (f"{key} {text.quantity(key, value)}" for key, value in link.items() if key not in _ENDS)
        yield f"{link['source']} → {link['target']}, measured: {', '.join(figures)}"
