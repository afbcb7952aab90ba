"""What the record gets of a link that was measured on a saturated host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netem.measurement.probe_plan import Measurement, OneWay
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.hosts_network import HostsNetwork
from orchestrator.planning.making import make_plan
from orchestrator.record.rows import ProbeResult
from orchestrator.results.checks.registry import Check
from orchestrator.run.context import RunContext
from orchestrator.run.links.earlier_measurements import EarlierMeasurements
from orchestrator.run.links.link_measurement import STARTING, one_of_each_kind, planned, probe_links, seconds_of_probes
from orchestrator.run.nodes.session import Session
from orchestrator.scenario.reading import parse
from tests.fakes.link_prober import FakeProber
from tests.orchestrator.run.links.test_repetition import TOOK, OneProcessor

TEXT = """\
algorithm: fedavg
topology: {edges: 0, devices: 1}
links: {device-cloud: {latency: 10ms}}
"""


class LateWhileSaturated(FakeProber):
    """A link of 20 ms there and back, on which echoes are late while the processor is saturated."""

    def __init__(self, processor: OneProcessor) -> None:
        super().__init__()
        self.processor = processor

    def result(self, arguments: Sequence[str], plan: dict[str, Any]) -> dict[str, Any]:
        late = 0.03 if self.processor.now < self.processor.free else 0.0
        self.processor.now += TOOK
        way = OneWay(sent=plan["count"], received=plan["count"], delay=0.01 + late / 2)
        trip = 0.02 + late
        found = Measurement(rtt_median=trip, rtt_p99=trip, rtt_samples=plan["count"], forward=way, back=way)
        return asdict(found)


class Recorder:
    """A run that keeps what is recorded and shown."""

    def __init__(self, text: str = TEXT, name: str = "run") -> None:
        self.plan = make_plan(parse(text, "f.yaml"), None)
        self.directory = SimpleNamespace(run=name)
        self.probes: list[ProbeResult] = []
        self.notes: list[str] = []
        self.lines: list[str] = []
        self.record = SimpleNamespace(probe=self.probes.append)
        self.view = SimpleNamespace(line=self.lines.append)

    def clock(self) -> float:
        return 1.0

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    async def measure(
        self,
        free: float = 0.0,
        network: HostsNetwork | None = None,
        earlier: EarlierMeasurements | None = None,
        quick: bool = True,
    ) -> set[str]:
        """Measure on a processor that is saturated until the time ``free``; the verdicts that failed."""
        processor = OneProcessor(free)
        handles = {node.name: NodeHandle(place) for place, node in enumerate(self.plan.nodes, start=1)}
        nodes = {name: SimpleNamespace(handle=handle) for name, handle in handles.items()}
        await probe_links(
            cast(RunContext, self),
            cast(Session, SimpleNamespace(nodes=nodes, moves=SimpleNamespace(elsewhere=()))),
            LateWhileSaturated(processor),
            "kernel",
            network,
            host=processor.host,
            earlier=earlier,
            quick=quick,
        )
        return {probe.quantity for probe in self.probes if probe.verdict == "fail"}


async def test_a_link_that_failed_on_a_saturated_host_passes_when_the_host_has_processors_left() -> None:
    run = Recorder()
    assert await run.measure(free=TOOK) == set()
    assert {probe.measured for probe in run.probes if probe.quantity == "rtt"} == {0.02}
    (note,) = run.notes
    assert "again (1 of at most 3" in note
    assert "not counted: rtt 50 ms" in note


async def test_the_figures_of_a_host_that_stays_saturated_say_so() -> None:
    run = Recorder()
    assert await run.measure(free=1e6) == {"rtt", "delay"}
    assert run.notes == []
    assert all("saturated at that time" in probe.detail for probe in run.probes if probe.verdict == "fail")


async def test_between_hosts_nothing_is_repeated_and_the_load_of_this_host_is_reported() -> None:
    run = Recorder()
    network = cast(HostsNetwork, SimpleNamespace(first=SimpleNamespace(pairs=[])))
    assert await run.measure(TOOK, network) == {"rtt", "delay"}
    assert run.notes == []
    assert all("saturated at that time" in probe.detail for probe in run.probes if probe.verdict == "fail")


def runs_named(run: Recorder) -> set[str | None]:
    """The earlier runs in which its links were measured; None for those that it has measured itself."""
    return {probe.measured_in for probe in run.probes}


async def test_a_later_run_has_the_values_of_the_first_one_and_names_it() -> None:
    first, second, third = Recorder(name="first"), Recorder(name="second"), Recorder(name="third")
    earlier = EarlierMeasurements()
    await first.measure(earlier=earlier)
    await second.measure(earlier=earlier)
    await third.measure(earlier=earlier)
    assert [runs_named(run) for run in (first, second, third)] == [{None}, {"first"}, {"first"}]
    assert third.probes == second.probes == [probe._replace(measured_in="first") for probe in first.probes]
    assert third.lines == ["the link cloud - device-0 was measured in first"]


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("10ms", "10ms, jitter: 1ms"),
        f"{TEXT}stack: {{device: {{congestion: reno}}}}\n",
        f"{TEXT}hardware: {{device: jetson-nano}}\n",
    ],
)
async def test_other_conditions_are_measured_again(text: str) -> None:
    first, second = Recorder(), Recorder(text)
    earlier = EarlierMeasurements()
    await first.measure(earlier=earlier)
    await second.measure(earlier=earlier)
    assert runs_named(second) == {None}


async def test_another_seed_is_no_other_condition() -> None:
    first, second = Recorder(), Recorder(f"seed: 7\n{TEXT}")
    earlier = EarlierMeasurements()
    await first.measure(earlier=earlier)
    await second.measure(earlier=earlier)
    assert runs_named(second) == {"run"}


async def test_a_long_measurement_and_one_between_hosts_are_never_replaced() -> None:
    network = cast(HostsNetwork, SimpleNamespace(first=SimpleNamespace(pairs=[])))
    earlier = EarlierMeasurements()
    await Recorder().measure(earlier=earlier)
    long, between = Recorder(), Recorder()
    await long.measure(earlier=earlier, quick=False)
    await between.measure(network=network, earlier=earlier)
    assert runs_named(long) == runs_named(between) == {None}


async def test_a_measurement_that_failed_is_not_kept() -> None:
    earlier = EarlierMeasurements()
    assert await Recorder().measure(free=1e6, earlier=earlier)
    later = Recorder()
    await later.measure(earlier=earlier)
    assert runs_named(later) == {None}


@pytest.mark.parametrize(("check", "kept"), [("links on time", False), ("finished", True)])
async def test_nothing_is_kept_after_a_run_with_a_late_host(check: str, kept: bool) -> None:
    earlier = EarlierMeasurements()
    await Recorder().measure(earlier=earlier)
    earlier.judge([Check(name=check, verdict="fail", detail="")])
    later = Recorder()
    await later.measure(earlier=earlier)
    assert runs_named(later) == ({"run"} if kept else {None})


SLOW = """\
algorithm: fedavg
topology: {edges: 0, devices: 2}
links: {device-cloud: lora-gateway}
"""


def test_the_time_of_the_probes_of_a_slow_link_is_known_before_the_run() -> None:
    """50 probes 0.413 s apart, two waits of 1.755 s, and in each direction 4.48 s of datagrams and their queue."""
    plan = make_plan(parse(SLOW, "f.yaml"), None)
    assert seconds_of_probes(plan) == pytest.approx(STARTING + 50 * 0.4133 + 2 * 1.755 + 2 * 4.475, abs=0.02)


def test_the_time_of_a_shared_medium_counts() -> None:
    shared = SLOW + "shared: {air: {profile: lora-gateway, members: [device-*]}}\n"
    alone, together = (seconds_of_probes(make_plan(parse(text, "f.yaml"), None)) for text in (SLOW, shared))
    assert together > alone + 5.0


def test_a_train_is_as_long_as_the_scenario_allows() -> None:
    lossy = SLOW.replace("lora-gateway", "{profile: lora-gateway, loss: 1%}")
    for probe, count in (("", 145), ("probe: {longest: 5min}\n", 613)):
        plan = make_plan(parse(lossy + probe, "f.yaml"), None)
        (pair,) = one_of_each_kind(plan, [node.name for node in plan.nodes])
        assert planned(pair, plan).count == count


def test_datagrams_fit_into_the_mtu_of_their_link() -> None:
    text = """\
algorithm: fedavg
topology: {edges: 0, devices: 2}
links: {device-cloud: {rate: 50mbit}, device-0 <-> cloud: {mtu: 1280}}
"""
    plan = make_plan(parse(text, "f.yaml"), None)
    pairs = one_of_each_kind(plan, [node.name for node in plan.nodes])
    sizes = []
    for pair in pairs:
        saturation = planned(pair, plan, 1450).forward
        assert saturation is not None
        sizes.append(saturation.size)
    assert sorted(sizes) == [1280 - 28, 1450 - 28]  # less the headers of IPv4 and UDP


async def test_probes_that_take_long_are_announced() -> None:
    run = Recorder()
    run.plan = make_plan(parse(SLOW, "f.yaml"), None)
    await run.measure(free=0.0)
    assert run.lines[0] == "measuring 1 kind of links, which takes about 33.6 s"
