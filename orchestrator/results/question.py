"""The question that a run is to answer."""

from __future__ import annotations

from node.files import read_untrusted
from orchestrator.record.schema import LONGEST_DOCUMENT
from orchestrator.results.history import History
from orchestrator.scenario.language.files import first_comment


def question(history: History) -> str:
    """The first comment of the run's scenario. Empty if there is none."""
    try:
        scenario = read_untrusted(history.directory / "scenario.yaml", LONGEST_DOCUMENT)
    except OSError:
        return ""
    return first_comment(scenario.decode("utf-8", errors="replace"))
