"""Who used this host's processors during the training, from its recorded load: the run, or other processes."""

from __future__ import annotations

from orchestrator.results.facts import Facts
from orchestrator.results.record.history import History, processor_seconds
from orchestrator.results.record.writer import HOST_LOAD

OTHERS = 0.2  # of the processors' time, from which on other processes explain that steps came late


def slow_because(history: Facts, too_much: str) -> str:
    """Why this host was slow: other processes used its processors, or it is too slow for ``too_much``."""
    own_fault = f"this host is too slow for {too_much}"
    if not isinstance(history, History):  # the load is recorded at the end
        return f"{own_fault}, or other processes used its processors"
    loads = [event.data for event in history.events(HOST_LOAD)]
    seconds, busy, idle, own = (sum(float(load[key]) for load in loads) for key in ("seconds", "busy", "idle", "own"))
    if not loads or seconds <= 0 or busy + idle <= 0:
        return f"{own_fault}, or other processes used its processors"
    used = processor_seconds(history.resources(), history.training_began or 0.0)
    others = max(0.0, busy - own - sum(used.values()))
    if others < OTHERS * (busy + idle):
        return own_fault
    cores = (busy + idle) / seconds
    return f"other processes used {others / seconds:.1f} of this host's {cores:.0f} processors: stop them"
