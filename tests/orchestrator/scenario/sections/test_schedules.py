"""Schedules as scenarios write them: every form, every kind of mistake, and what becomes of them in the plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netem.library import PROFILES
from netem.profile import LinkProfile
from netem.schedules.schedule import Schedule, until
from orchestrator.errors import ScenarioError
from orchestrator.fabric.namespaces import wiring
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import LinkPlan
from orchestrator.scenario.reading import load, parse
from orchestrator.scenario.schema import effective, json_schema
from orchestrator.scenario.sections.links import resolve
from tests.orchestrator.scenario.cases import pairs
from tests.texts import containing

TOP = "algorithm: hierfavg\ntopology: {edges: 2, devices_per_edge: 2, mesh: true}\nlinks:\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "up.txt").write_text("10\n20\n")
    (tmp_path / "traces" / "down.txt").write_text("5\n10\n")
    (tmp_path / "drive.csv").write_text("t_s,latency_ms,rate_mbit\n0,20,10\n5,40,2\n")
    return tmp_path


def read(folder: Path, links: str, more: str = "") -> dict[tuple[str, str], LinkPlan]:
    path = folder / "scenario.yaml"
    path.write_text(f"{TOP}{links}{more}")
    return {(link.source, link.target): link for link in make_plan(load(path), None).links}


def schedule(plan: LinkPlan) -> Schedule:
    assert plan.schedule is not None
    return plan.schedule


def mistakes(folder: Path, links: str, more: str = "") -> list[str]:
    path = folder / "scenario.yaml"
    path.write_text(f"{TOP}{links}{more}")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).replace(f"{folder}/", "").splitlines()]


def test_steps_of_a_class(folder: Path) -> None:
    steps = "[{at: 10s, rate: 5mbit}, {at: 20s, profile: 5g, loss: 5%}]"
    links = read(folder, f"  device-edge: {{profile: lte, schedule: {{steps: {steps}}}}}\n")
    up, down = links["device-0-0", "edge-0"], links["edge-0", "device-0-0"]
    assert [(change.at, change.profile) for change in until(schedule(up), up.profile, 60.0)] == [
        (10.0, PROFILES["lte-up"].merged(rate=5e6)),
        (20.0, PROFILES["5g-up"].merged(loss=0.05)),
    ]
    assert until(schedule(down), down.profile, 60.0)[-1].profile == PROFILES["5g"].merged(loss=0.05)
    assert links["edge-0", "cloud"].schedule is None


def test_traces_by_direction_and_relative_to_the_file(folder: Path) -> None:
    text = (
        "  edge-cloud: {latency: 20ms, schedule: {trace: {up: traces/up.txt, down: traces/down.txt}, window: 200ms}}\n"
    )
    links = read(folder, text)
    up, down = links["edge-0", "cloud"], links["cloud", "edge-0"]
    # 20 opportunities in 200 ms, and 40
    assert next(schedule(up).changes(up.profile)).profile == LinkProfile(latency=0.02, rate=20 * 1514 * 8 / 0.2)
    assert next(schedule(down).changes(down.profile)).profile.rate == 40 * 1514 * 8 / 0.2
    assert up.to_json()["schedule"]["trace"] == "traces/up.txt"  # as it was written, wherever the file lies


def test_one_trace_for_both_and_a_table(folder: Path) -> None:
    links = read(
        folder, "  device-edge: {schedule: {trace: traces/up.txt}}\n  edge-edge: {schedule: {csv: drive.csv}}\n"
    )
    assert links["device-0-0", "edge-0"].schedule is not None
    assert links["edge-0", "device-0-0"].schedule is not None
    level = links["edge-0", "edge-1"]
    assert [change.at for change in until(schedule(level), level.profile, 60.0)] == [0.0, 5.0]


def test_a_file_of_measurements_with_names_and_units_of_its_own(folder: Path) -> None:
    (folder / "log.csv").write_text("timestamp;mbps;rtt\n1641763224;0,02;90\n1641763225;0,01;50\n")
    form = (
        "columns: {t: timestamp, rate: mbps}, units: {t: s, rate: mbit, half_rtt: ms}, half_rtt: rtt, start: first-row"
    )
    link = read(folder, f"  edge-cloud: {{rate: 20mbit, schedule: {{csv: log.csv, {form}}}}}\n")["edge-0", "cloud"]
    assert [(each.at, each.profile) for each in schedule(link).changes(link.profile)] == [
        (0.0, LinkProfile(latency=0.045, rate=20e3)),
        (1.0, LinkProfile(latency=0.025, rate=10e3)),
    ]
    assert link.to_json()["schedule"]["start"] == "first-row"


def test_what_is_said_of_two_nodes_replaces_the_schedule_of_their_class(folder: Path) -> None:
    written = (
        "  device-edge: {latency: 5ms, schedule: {steps: [{at: 1s, rate: 1mbit}]}}\n"
        "  device-0-0 <-> edge-0: {latency: 9ms}\n"
        "  device-0-1 <-> edge-0: {schedule: null}\n"
        "  device-1-0 -> edge-1: {profile: wifi}\n"
        "  device-1-1 -> edge-1: {schedule: {handover: [{at: 15s, interruption: 300ms, profile: 5g}]}}\n"
    )
    links = read(folder, written)
    kept = links["device-0-0", "edge-0"]
    assert until(schedule(kept), kept.profile, 9.0)[0].profile == LinkProfile(latency=0.009, rate=1e6)
    assert links["device-0-1", "edge-0"].schedule is None
    assert links["device-1-0", "edge-1"].schedule is None  # a named profile begins from nothing
    assert links["edge-1", "device-1-0"].schedule is not None
    assert schedule(links["device-1-1", "edge-1"]).describe() == "at 15s cut for 300ms, then 9.5ms ±2ms, 129.9mbit"


def test_a_direction_may_have_its_own(folder: Path) -> None:
    own = "up: {schedule: {steps: [{at: 2s, rate: 2mbit}]}}"
    links = read(folder, f"  device-edge: {{schedule: {{steps: [{{at: 1s, rate: 1mbit}}]}}, {own}}}\n")
    assert schedule(links["device-0-0", "edge-0"]).describe() == "at 2s rate 2mbit"
    assert schedule(links["edge-0", "device-0-0"]).describe() == "at 1s rate 1mbit"
    links = read(folder, "  device-edge: {schedule: {steps: [{at: 1s, rate: 1mbit}]}, down: {schedule: null}}\n")
    assert links["edge-0", "device-0-0"].schedule is None


MISTAKES = pairs(
    "edge-cloud: {schedule: {trace: traces/up.txt, start: first-row}}",
    "schedule: columns, units, half_rtt and start",
    "edge-cloud: {schedule: {}}",
    "schedule: say how the link changes",
    "edge-cloud: {schedule: {steps: [{at: 1s, rate: 1mbit}], csv: drive.csv}}",
    "schedule: say how the link changes",
    "edge-cloud: {schedule: {step: [{at: 1s}]}}",
    "schedule.step: unknown key; did you mean",
    "edge-cloud: {schedule: {steps: [{rate: 1mbit}]}}",
    "schedule.steps.0: 'at' is missing",
    "edge-cloud: {schedule: {steps: [{at: 1s}]}}",
    "schedule.steps.0: changes nothing: give it a",
    "edge-cloud: {schedule: {steps: [{at: 1s, rate: 1Mbps}]}}",
    "schedule.steps.0.rate: '1Mbps': the unit 'Mbps' is",
    "edge-cloud: {schedule: {ramp: [{at: 1s, over: 0s, to: lte}]}}",
    "schedule.ramp.0.over: must be above 0, not",
    "edge-cloud: {schedule: {ramp: [{at: 1s, over: 1s, to: {}}]}}",
    "schedule.ramp.0.to: give it a profile or",
    "edge-cloud: {latency: 1ms, schedule: {ramp: [{at: 1s, over: 1s, to: {rate: 1mbit}}]}}",
    "schedule: on the link edge-0 ->",
    "edge-cloud: {schedule: {steps: [{at: 9s, rate: 1mbit}], repeat: 5s}}",
    "schedule.repeat: 5s is over before the",
    "edge-cloud: {schedule: {handover: [{at: 9s}]}}",
    "schedule.handover.0: 'interruption' is missing",
    "edge-cloud: {schedule: {csv: drive.csv, window: 1s}}",
    "schedule.window: goes with trace",
    "edge-cloud: {schedule: {trace: traces/up.txt, repeat: 1s}}",
    "schedule.repeat: a trace repeats by itself",
    "edge-cloud: {schedule: {trace: nowhere.txt}}",
    "schedule.trace: nowhere.txt cannot be read: No",
    "edge-cloud: {schedule: {trace: {up: drive.csv}}}",
    "schedule.trace.up: drive.csv:1: 't_s,latency_ms,rate_mbit' is not a",
    "edge-cloud: {schedule: {csv: traces/up.txt}}",
    "schedule.csv: traces/up.txt:1: '10' is no column",
    "edge-cloud: {schedule: {csv: drive.csv, repeat: 5s}}",
    "schedule.repeat: 5s must be after the",
    "edge-cloud: {schedule: {trace: {file: traces/up.txt, up: traces/up.txt}}}",
    "schedule.trace: name one file, or files",
)


@pytest.mark.parametrize(("link", "expected"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_reported_with_place_and_remedy(folder: Path, link: str, expected: str) -> None:
    (message,) = mistakes(folder, f"  {link}\n")
    assert message.startswith(f"scenario.yaml:4: links.edge-cloud.{expected}")


def test_sides_have_a_meaning_only_between_tiers(folder: Path) -> None:
    sided = "{schedule: {trace: {up: traces/up.txt}}}"
    assert mistakes(folder, f"  edge-edge: {sided}\n  device-0-0 -> edge-0: {sided}\n") == [
        containing("scenario.yaml:4: links.edge-edge: schedule: up and down"),
        containing("scenario.yaml:5: links.device-0-0 -> edge-0"),
    ]
    links = read(folder, f"  device-0-0 <-> edge-0: {sided}\n")
    assert links["device-0-0", "edge-0"].schedule is not None
    assert links["edge-0", "device-0-0"].schedule is None


def test_a_degrade_must_go_with_every_profile_of_the_schedule(folder: Path) -> None:
    links = "  edge-cloud: {rate: 5mbit, schedule: {steps: [{at: 1s, rate: null}]}}\n"
    faults = "faults: [{at: 9s, node: edge-0, action: degrade, buffer: 5ms}]\n"
    assert mistakes(folder, links, faults) == [containing("scenario.yaml:5: faults.0", "link edge-0 ->")]


def test_waiting_includes_the_slowest_moment(folder: Path) -> None:
    links = "  edge-cloud: {latency: 10ms, schedule: {steps: [{at: 1s, latency: 2s}]}}\n"
    assert mistakes(folder, links, "timeouts: {lost_after: 8s}\n") == [
        containing("scenario.yaml:5: timeouts.lost_after: must be above")
    ]
    assert make_plan(parse(f"{TOP}{links}", "f"), None).timeouts.lost_after == 16
    plans = [
        make_plan(
            parse(f"{TOP}  edge-cloud: {{rate: 50mbit, schedule: {{steps: [{{at: 1s, rate: {rate}}}]}}}}", "f"), None
        )
        for rate in ("50mbit", "100kbit")
    ]
    assert plans[0].gathering.deadlines["cloud"] < plans[1].gathering.deadlines["cloud"]


def test_single_packets_count_if_they_ever_will(folder: Path) -> None:
    path = folder / "scenario.yaml"
    path.write_text(f"{TOP}  edge-cloud: {{schedule: {{steps: [{{at: 9s, loss: 1%}}]}}}}\n")
    assert wiring.packet_truth(make_plan(load(path), None)) == {"edge-0", "edge-1", "cloud"}


def test_the_effective_scenario_reads_back(folder: Path) -> None:
    path = folder / "scenario.yaml"
    path.write_text(
        f"{TOP}  device-edge:\n"
        "    schedule: {ramp: [{at: 1s, over: 2s, from: lte, to: {rate: 1mbit}, step: 50ms}]}\n"
        "  edge-cloud: {schedule: {trace: {up: traces/up.txt}}, down: {schedule: {csv: drive.csv, repeat: 9s}}}\n"
        "  edge-edge: {schedule: {handover: [{at: 1s, interruption: 1s}], steps: [{at: 3s, loss: 1%}], repeat: 5s}}\n"
    )
    scenario = load(path)
    written = json.dumps(effective(scenario))
    again = parse(written, str(path))
    assert effective(again) == json.loads(written)
    pairs = scenario.topology.pairs(scenario.mesh)
    assert resolve(again.links, pairs) == resolve(scenario.links, pairs)


def test_overrides_reach_into_schedules(folder: Path) -> None:
    path = folder / "scenario.yaml"
    path.write_text(f"{TOP}  edge-cloud: {{schedule: {{trace: traces/up.txt}}}}\n")
    overrides = ["links.edge-cloud.schedule.window=50ms", "links.edge-cloud.schedule.trace=traces/down.txt"]
    links = make_plan(load(path, overrides), None).links
    described = {link.schedule.describe() for link in links if link.schedule is not None}
    assert described == {"rate by traces/down.txt, 2.42mbit on average, in windows of 50ms; again every 10ms"}


def test_an_override_reaches_below_a_name_that_stands_for_a_profile() -> None:
    text = f"{TOP}  device-edge: {{profile: lte, schedule: {{ramp: [{{at: 1s, over: 1s, to: wifi}}]}}}}\n"
    scenario = parse(text, "f.yaml", ["links.device-edge.schedule.ramp.0.to.latency=5ms"])
    changed = scenario.links["device-edge"].schedule
    assert changed is not None
    assert (changed.ramp[0].to.profile, changed.ramp[0].to.latency) == ("wifi", "5ms")


def test_the_json_schema_knows_them() -> None:
    schema = json_schema()
    found: dict[str, Any] = schema["$defs"]["ScheduleSpec"]["properties"]
    assert set(found) == {"steps", "ramp", "handover", "trace", "csv", "window", "repeat"} | {
        "columns",
        "units",
        "half_rtt",
        "start",
    }
    assert set(schema["$defs"]["RampSpec"]["properties"]) == {"at", "over", "from", "to", "step"}
