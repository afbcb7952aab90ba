"""Arguments and results of calls on hosts travel, and what does not fit is named."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from netem.profile import GilbertElliott, LinkProfile
from node.errors import WireError
from orchestrator.agent.datasets import DataSets
from orchestrator.agent.files import Files
from orchestrator.agent.host_run import HostRun
from orchestrator.agent.images import Images
from orchestrator.agent.responders import Responders
from orchestrator.agent.worker import Worker
from orchestrator.drivers.base import Driver, RunsPrograms
from orchestrator.drivers.hosts.agents.calls import (
    METHODS,
    PROTOCOLS,
    TIMEOUTS,
    HostLinks,
    arguments_of,
    bound,
    plain,
    result_of,
)
from orchestrator.fabric.base import Counted, Fabric, LinkChange, NodeHandle
from orchestrator.host.kernel.usage import ProcessUsage
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import LinkPlan
from orchestrator.scenario.reading import parse

SCENARIO = """\
algorithm: {name: fedavg, rounds: 1}
topology: {edges: 0, devices: 1}
links: {device-cloud: {latency: 10ms, loss: {gilbert-elliott: {p: 1%, r: 30%}}, rate: 3mbit}}
stack: {device: {retries2: 8}}
"""
PLAN = make_plan(parse(SCENARIO, "one.yaml"), None)
ROW: dict[str, int | float | str] = {"source": "device-0", "target": "cloud", "offered": 1, "asked_loss": 0.5}


def travelled(value: object) -> Any:
    return msgpack.unpackb(msgpack.packb(value, default=plain))


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        (Fabric.attach, (PLAN.node("device-0"), NodeHandle(7, "pc-1"))),
        (HostLinks.shape, (list(PLAN.links),)),
        (HostLinks.alter, ([LinkChange("a", "b", LinkProfile(latency=0.1 + 0.2)), LinkChange("a", "b", cut=True)],)),
        (Driver.start, (PLAN.node("cloud"), Path("nodes/cloud.json"), Path("logs/cloud.log"))),
        (RunsPrograms.release, ("cloud", 0)),
    ],
)
def test_arguments_arrive_as_they_were(method: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    assert isinstance(PLAN.links[0].profile.loss, GilbertElliott)
    assert tuple(arguments_of(method, travelled(bound(method, *arguments))).values()) == arguments


@pytest.mark.parametrize(
    ("method", "result"),
    [
        (Fabric.counters, Counted([ROW], channels=[], forwarded=3, drops={"queue": 1}, sent_to={"cloud": 2})),
        (Fabric.attach, {"tcp_retries2": "8"}),
        (RunsPrograms.usage, {"cloud": ProcessUsage(0.5, 7)}),
        (HostLinks.alter, [None, "no"]),
        (Driver.start, NodeHandle(7)),
    ],
)
def test_results_arrive_as_they_were(method: Callable[..., Any], result: object) -> None:
    assert result_of(method, travelled(result)) == result


@pytest.mark.parametrize(
    ("method", "data", "error"),
    [
        (Fabric.counters, {"links": [{"offered": [1]}]}, r"^links\.0\.offered\.int: Input should be a valid integer$"),
        (Fabric.counters, {"links": [], "late": "much"}, r"^late: Input should be a valid integer, unable to parse"),
        (Fabric.counters, {}, "^links: Field required$"),
        (Fabric.counters, None, "^Input should be a dictionary or an instance of Counted$"),
        (HostLinks.alter, 7, "^Input should be a valid list$"),
        (Driver.start, {"pid": None}, "^pid: Input should be a valid integer$"),
        (RunsPrograms.listening_on, "perhaps", "^Input should be a valid list$"),
    ],
)
def test_what_is_no_result_is_named_with_its_place(method: Callable[..., Any], data: object, error: str) -> None:
    with pytest.raises(WireError, match=error):
        result_of(method, data)


def test_arguments_that_do_not_fit_are_named_with_their_place() -> None:
    link: LinkPlan = PLAN.links[0]
    data = travelled(bound(HostLinks.shape, [link]))
    data["links"][0]["profile"]["latency"] = -1
    with pytest.raises(WireError, match=r"^links\.0\.profile: Value error, latency"):
        arguments_of(HostLinks.shape, data)


@pytest.mark.parametrize("protocol", PROTOCOLS[:6], ids=lambda each: each.__name__)
def test_the_agent_has_each_call_as_it_is_declared(protocol: type) -> None:
    """Those of a run have their own conformance tests."""
    of = dict(zip(PROTOCOLS, (Worker, Files, DataSets, Images, HostRun, Responders), strict=False))
    for name, method in vars(protocol).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            assert _shape(getattr(of[protocol], name)) == _shape(method), method.__qualname__


def _shape(method: Callable[..., Any]) -> Any:
    found = inspect.signature(method)
    return [(each.name, each.annotation) for each in found.parameters.values()], found.return_annotation


def test_each_time_limit_is_of_a_call() -> None:
    assert TIMEOUTS.keys() <= METHODS.keys()
