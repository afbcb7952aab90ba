"""Measurements of links, made on real ones and written down by hand, and patience with a busy machine."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from netem.measurement.endpoints import probe_arguments, respond_arguments
from netem.measurement.judge import Judgement, judge_direction, judge_rtt
from netem.measurement.probe_plan import Measurement, OneWay, ProbePlan
from netem.profile import GilbertElliott, LinkProfile
from tests.netem.wiring import ROOT, Wiring
from tests.tries import tries

MEASURE = (sys.executable, "-m", "netem.measurement.endpoints")

PERFECT = LinkProfile()
BURSTY = GilbertElliott(p=0.02, r=0.3)


def direction(sent: int, lost: int = 0, **values: Any) -> OneWay:
    return OneWay(sent=sent, received=sent - lost, **values)


def measured(rtt: float | None, samples: int = 250) -> Measurement:
    whole = direction(250)
    return Measurement(rtt_median=rtt, rtt_p99=rtt, rtt_samples=samples if rtt else 0, forward=whole, back=whole)


def measure(lab: Wiring, source: str, target: str, plan: ProbePlan) -> Measurement:
    """As an orchestrator does it: a probe in the source's namespace, a responder in the target's."""
    with subprocess.Popen(
        [*lab.nodes[target].prefix, *MEASURE, *respond_arguments(lab.address(target))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as responder:
        assert responder.stdin is not None
        assert responder.stdout is not None
        ready = json.loads(responder.stdout.readline())
        probe = [*lab.nodes[source].prefix, *MEASURE, *probe_arguments(lab.address(target), ready, plan)]
        output = subprocess.run(probe, capture_output=True, check=True, cwd=ROOT).stdout
        responder.stdin.close()
        assert responder.wait(10) == 0
    return Measurement.from_mapping(json.loads(output))


def judge(
    forward: LinkProfile, back: LinkProfile, plan: ProbePlan, found: Measurement
) -> tuple[list[Judgement], list[Judgement]]:
    """All verdicts on the forward direction (including the round trip) and on the backward direction."""
    there = judge_direction(forward, plan, found.forward, plan.forward)
    return [judge_rtt(forward, back, plan, found), *there], judge_direction(
        back, plan, found.back, plan.back, before=forward
    )


def assert_as_asked(
    lab: Wiring, source: str, target: str, forward: LinkProfile, back: LinkProfile, plan: ProbePlan
) -> None:
    """The link and its return pass every judgement at the latest the sixth time: a busy machine may hold up a probe, or
    disturb a rate that is measured for 0.2 s."""
    for _ in tries(6):
        there, returned = judge(forward, back, plan, measure(lab, source, target, plan))
        if all(verdict.verdict == "pass" for verdict in (*there, *returned)):
            break
    assert {verdict.quantity: verdict.verdict for verdict in there} == dict.fromkeys(
        ("rtt", "delay", "loss", "duplicate", "reorder", "rate", "queue"), "pass"
    ), there
    assert {verdict.verdict for verdict in returned} == {"pass"}, returned


def settled(measure: Callable[[], float], low: float, high: float) -> float:
    """The measured value, within [low, high] at the latest the sixth time: a machine may be busy for a while."""
    values = []
    for _ in tries(6):
        values.append(measure())
        if low <= values[-1] <= high:
            print(f"measured {values[-1]:.6g}, accepted {low:.6g} to {high:.6g}")
            return values[-1]
    pytest.fail(f"measured {values}, none within {low} to {high}")


def wait_until(condition: Callable[[], bool], seconds: float = 2.0) -> None:
    """Look until it is so, for at most that long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not come true within {seconds:.0f} s"
        select.select([], [], [], 0.01)
