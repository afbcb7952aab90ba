"""Checks whether a run can be trusted. They use only its record, so they can be repeated at any time.

The verdict of a check is pass, fail or unknown. The run's verdict is the worst of them: fail, then unknown, then pass.
"Unknown" means that nothing was measured, or that the check itself failed. "Modelled" is no judgement: a simulation
computes the quantity that the check would measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypedDict, TypeVar

from orchestrator import text
from orchestrator.record.events.run import Checked
from orchestrator.results.checks.expectations import as_expected
from orchestrator.results.checks.failures import no_unplanned_failures
from orchestrator.results.checks.faults import faults_took_effect
from orchestrator.results.checks.learning import learned
from orchestrator.results.checks.links import (
    links_as_configured,
    links_followed,
    links_on_time,
    losses_during_the_run,
    rates_held,
)
from orchestrator.results.checks.network import network_held
from orchestrator.results.checks.nodes import compute_on_time, messages_accepted, nodes_responded, stack_as_configured
from orchestrator.results.checks.participation import participation
from orchestrator.results.checks.programs import all_ended_idle, stopped_rounds
from orchestrator.results.checks.verdicts import NOT_YET, WORST_FIRST, Assessment, Verdict, worst
from orchestrator.results.evaluation.population import clients_available
from orchestrator.results.facts import Facts
from orchestrator.results.history import History
from orchestrator.scenario.sections.expectations import CheckName

F = TypeVar("F", bound=Facts)


class Check(TypedDict):
    """One verdict, with one sentence that gives the numbers."""

    name: str
    verdict: Verdict
    detail: str


def checks(history: Facts) -> list[Check]:
    """The results of all ``CHECKS`` that apply to the run; a check that crashes is unknown. While the run
    continues, the known results of ``SO_FAR``, as if it ended now."""
    assessments: dict[str, Assessment | None]
    of_plugins: list[Check] = []
    if isinstance(history, History) and history.status != "running":
        of_plugins = _of_plugins(history)
        assessments = {name: _assessment(check, history) for name, check in CHECKS.items()}
    else:
        assessments = {name: _assessment(check, history) for name, check in SO_FAR.items()}
    results = []
    for name, assessment in assessments.items():
        if assessment is not None and assessment != NOT_YET:
            verdict, detail = assessment
            results.append(Check(name=name, verdict=verdict, detail=detail))
    return results + of_plugins


def _of_plugins(history: History) -> list[Check]:
    """The results of the checks of plug-ins, which were made and recorded when the run ended."""
    latest: dict[str, Check] = {}
    for recorded in history.recorded(Checked):
        result = recorded.event
        verdict: Verdict = "unknown"
        if result.verdict in WORST_FIRST:
            verdict = result.verdict
        latest[result.name] = Check(name=result.name, verdict=verdict, detail=result.detail)
    return list(latest.values())


def _assessment(check: Callable[[F], Assessment | None], history: F) -> Assessment | None:
    try:
        return check(history)
    except Exception as error:  # a broken check must hide neither the others nor the run
        return "unknown", f"the check itself broke: {type(error).__name__}: {error}"


def overall(results: Iterable[Check]) -> Verdict:
    """The worst verdict: fail, then unknown, then pass; unknown if nothing was checked."""
    return worst(result["verdict"] for result in results)


def finished(history: History) -> Assessment:
    """Check that a stop rule of the scenario ended the run."""
    done = history.rounds_done()
    planned = history.rounds_planned
    if planned is not None:
        rounds = f"{done} of {text.count(planned, 'round')}"
    else:
        rounds = text.count(done, "round")
    led = [round for round in history.rounds() if round.node in history.leaders]
    abandoned = {round.round for round in led if round.abandoned}
    if abandoned:
        rounds += f" ({len(abandoned)} abandoned for lack of answers)"
    remedy = f"; `resume {history.run}` continues from there" if done else ""
    outcome = history.outcome
    if outcome is None:
        return "fail", f"the orchestrator ended without an outcome after {rounds}{remedy}"
    enough: Verdict = "fail"
    if planned is None or done >= planned:
        enough = "pass"
    match outcome.ended:
        case "rounds":
            if done == 0 and planned != 0:
                return "fail", f"the nodes ended without finishing a round ({rounds})"
            return enough, f"{rounds} done"
        case "accuracy":
            return "pass", f"the target accuracy was reached after {rounds}"
        case "target":
            return "pass", f"the target was reached after {rounds}"
        case "programs":
            said = "the programs ended with exit code 0"
            if planned or done:
                said += f" after {rounds}"
            doubt = all_ended_idle(history) or stopped_rounds(history)
            return _without_doubt(enough, said, doubt)
        case "after":
            said = f"the time given was over after {rounds} and {text.duration(outcome.t)}"
            return _without_doubt("pass", said, stopped_rounds(history))
        case "bytes":
            stop = history.plan.get("stop") or {}
            limit = text.size(stop.get("bytes"))
            said = f"the devices had sent and received {limit} after {rounds} and {text.duration(outcome.t)}"
            return _without_doubt("pass", said, stopped_rounds(history))
        case "calibrated":
            return "pass", "the links were measured; there was no training"
        case "interrupted":
            return "fail", f"interrupted after {rounds}{remedy}"
        case _:
            reason = outcome.error or "no reason was recorded"
            return "fail", f"failed after {rounds}: {reason}{remedy}"


def _without_doubt(verdict: Verdict, said: str, doubt: str | None) -> Assessment:
    """The assessment; unknown instead of pass if there is a reason to ``doubt`` that the run did what it should."""
    if doubt is None:
        return verdict, said
    return worst((verdict, "unknown")), f"{said}; {doubt}"


def came_to_what_was_expected(history: History) -> Assessment | None:
    """Check that the run met all expectations of the scenario; None without expectations or training."""

    def verdict(name: CheckName) -> Verdict | None:
        assessment = _assessment(CHECKS[name], history)
        return assessment[0] if assessment else None

    return as_expected(history, verdict)


CHECKS: dict[CheckName | Literal["result as expected", "messages accepted"], Callable[[History], Assessment | None]] = {
    "finished": finished,
    "learned": learned,
    "participation": participation,
    "result as expected": came_to_what_was_expected,
    "links as configured": links_as_configured,
    "TCP as configured": stack_as_configured,
    "faults took effect": faults_took_effect,
    "links over time": links_followed,
    "losses during the run": losses_during_the_run,
    "rates during the run": rates_held,
    "network between hosts": network_held,
    "compute on time": compute_on_time,
    "links on time": links_on_time,
    "clients available": clients_available,
    "nodes responded": nodes_responded,
    "messages accepted": messages_accepted,
    "no unplanned failures": no_unplanned_failures,
}


SO_FAR: dict[str, Callable[[Facts], Assessment | None]] = {
    "links as configured": links_as_configured,
    "TCP as configured": stack_as_configured,
    "faults took effect": faults_took_effect,
    "losses during the run": losses_during_the_run,
    "network between hosts": network_held,
    "compute on time": compute_on_time,
    "links on time": links_on_time,
    "messages accepted": messages_accepted,
    "no unplanned failures": no_unplanned_failures,
}
