"""The checks of links. Trainings last from 1 s to 20 s."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netem.profile import FULL_FRAME
from orchestrator.record.events.overload import BUSY_MEANWHILE, FULL_BACKLOG, LOAD, Overload, load_remark
from orchestrator.record.rows import ProbeResult
from orchestrator.record.schema import COUNTERS
from orchestrator.results.checks.links import busiest, links_as_configured
from orchestrator.results.checks.registry import Check, checks
from orchestrator.results.history import History
from tests.orchestrator.example_run import Example, plan_of
from tests.orchestrator.results.checks.test_registry import CUT, FAULT, Run
from tests.texts import containing


def test_links_that_differ_from_what_was_configured_fail(tmp_path: Path) -> None:
    history = History.open(Example(probe_error=0.3).build(tmp_path))
    verdict, detail = links_as_configured(history)
    assert verdict == "fail"
    assert detail.startswith("16 of 16 probes failed: ")
    assert "configured" in detail
    assert "processors" not in detail


def test_links_that_were_measured_on_a_busy_host_say_so(tmp_path: Path) -> None:
    """It was busy during one of two failed probes."""
    run = Run(tmp_path)
    for t, detail in ((1.0, "too much"), (2.0, f"too much; {BUSY_MEANWHILE}")):
        row = ("edge-0", "cloud", "edge-cloud", "rtt", 0.04, 0.4, 0.03, 0.05, "fail", detail, "emulated")
        run.record.probe(ProbeResult(t, *row))
    assert run.ended().verdict("links as configured")[1].endswith(f"configured 40 ms; {BUSY_MEANWHILE}")


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ((None, None), "agree with their profiles"),
        ((None, "first"), "agree with their profiles; 1 measured in first, on links with the same settings"),
        (("first", "first"), "agree with their profiles; all measured in first, on links with the same settings"),
    ],
)
def test_links_that_an_earlier_run_measured_name_it(runs: Sequence[str | None], words: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    for link_class, measured_in in zip(("edge-cloud", "device-edge"), runs, strict=True):
        row = ("edge-0", "cloud", link_class, "rtt", 0.04, 0.04, 0.03, 0.05, "pass")
        run.record.probe(ProbeResult(1.0, *row, measured_in=measured_in))
    verdict, detail = run.ended().verdict("links as configured")
    assert (verdict, detail.endswith(words)) == ("pass", True), detail


@pytest.mark.parametrize(
    ("busy", "saturated", "load"),
    [(0.99, True, BUSY_MEANWHILE), (0.37, False, "37% busy at that time"), (None, False, "configured 40 ms")],
)
def test_the_load_of_the_host_is_read_from_its_columns(
    busy: float | None, saturated: bool, load: str, tmp_path: Path
) -> None:
    """Whatever the detail says."""
    run = Run(tmp_path)
    row = ("edge-0", "cloud", "edge-cloud", "rtt", 0.04, 0.4, 0.03, 0.05, "fail", f"too much; {LOAD}elsewhere")
    run.record.probe(ProbeResult(1.0, *row, busy=busy, saturated=saturated))
    assert run.ended().verdict("links as configured")[1].endswith(load)


def test_the_load_of_the_host_is_read_from_the_detail_of_an_older_record(tmp_path: Path) -> None:
    run = Run(tmp_path)
    detail = f"too much; {load_remark(saturated=False, busy=0.37)}"
    run.record.probe(ProbeResult(1.0, "edge-0", "cloud", "edge-cloud", "rtt", 0.04, 0.4, 0.03, 0.05, "fail", detail))
    assert run.ended().verdict("links as configured")[1].endswith("37% busy at that time")


@pytest.mark.parametrize(
    ("measured", "worst"),
    [
        (0.093, "delay of cloud → edge-0 is 42 ms, configured 40 ms"),
        (0.1, "rtt of edge-0 → cloud is 100 ms, expected 92 ms, configured 80 ms"),
    ],
)
def test_a_failed_probe_is_compared_with_what_is_expected(tmp_path: Path, measured: float, worst: str) -> None:
    """Jitter without reordering delays: 80 ms configured are 92 ms expected, of which 93 ms is the smaller error."""
    run = Run(tmp_path)
    trip = ("edge-0", "cloud", "edge-cloud", "rtt", 0.08, measured, 0.09, 0.0925)
    run.record.probe(ProbeResult(0.5, *trip, "fail", expected=0.092))
    run.record.probe(ProbeResult(0.6, "cloud", "edge-0", "edge-cloud", "delay", 0.04, 0.042, 0.0, 0.041, "fail"))
    assert run.verdict("links as configured")[1].endswith(worst)


@pytest.mark.parametrize(
    ("loss", "rtt", "worst"),
    [  # The error of a loss is relative to the configured one, or absolute if that is 0.
        ((0.0, 0.9), (0.1, 0.15), "loss"),  # 0.9 and 0.5
        ((0.0, 0.4), (0.1, 0.15), "rtt"),  # 0.4 and 0.5
        ((0.1, 0.25), (0.1, 0.0), "loss"),  # 1.5 and 1
    ],
)
def test_the_probe_with_the_largest_error_is_named(
    tmp_path: Path, loss: tuple[float, float], rtt: tuple[float, float], worst: str
) -> None:
    """Each with the configured and the measured value."""
    run = Run(tmp_path)
    for quantity, values in (("loss", loss), ("rtt", rtt)):
        run.record.probe(ProbeResult(0.5, "edge-0", "cloud", "edge-cloud", quantity, *values, None, None, "fail"))
    assert f": {worst} of edge-0 → cloud is" in run.verdict("links as configured")[1]


def test_links_that_were_not_probed_are_unknown(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record.probe(ProbeResult(0.5, "edge-0", "cloud", "edge-cloud", "rtt", 0.08, 0.081, 0.07, 0.09, "pass"))
    assert run.verdict("links as configured") == ("unknown", containing("no probe of device-edge: those links"))


def test_a_probe_that_was_uncertain_is_unknown(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record.probe(ProbeResult(0.5, "edge-0", "cloud", "edge-cloud", "rtt", 0.08, 0.081, 0.07, 0.09, "pass"))
    run.record.probe(
        ProbeResult(0.6, "device-0-0", "edge-0", "device-edge", "loss", 0.002, None, None, None, "unknown")
    )
    verdict, detail = run.verdict("links as configured")
    assert verdict == "unknown"
    assert "loss of device-0-0 → edge-0" in detail


def test_a_probe_that_lacks_time_says_how_long_it_needs(tmp_path: Path) -> None:
    run = Run(tmp_path)
    link, detail = (
        ("device-0-0", "edge-0", "device-edge"),
        "0 of 145: too few probes to detect it; 613 probes would take 253 s",
    )
    run.record.probe(ProbeResult(0.5, "edge-0", "cloud", "edge-cloud", "rtt", 0.08, 0.081, 0.07, 0.09, "pass"))
    run.record.probe(ProbeResult(0.6, *link, "loss", 0.01, 0.0, 0.0, 0.04, "unknown", detail))
    verdict, said = run.verdict("links as configured")
    assert verdict == "unknown"
    assert said.endswith(f"loss of device-0-0 → edge-0 ({detail}: allow it with `probe: {{longest: …}}`)")


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (
            "median of 250; this host's processors were 63% busy at that time",
            "configured 14 ms; this host's processors were 63% busy at that time",
        ),
        ("median of 250", "configured 14 ms"),
    ],
)
def test_a_delay_that_fails_by_a_hair_says_how_busy_the_host_was(tmp_path: Path, detail: str, said: str) -> None:
    run = Run(tmp_path)
    row = ("edge-0", "cloud", "edge-cloud", "delay", 0.014, 0.01503, 0.01285, 0.01485, "fail", detail)
    run.record.probe(ProbeResult(0.5, *row))
    assert run.verdict("links as configured")[1].endswith(said)


def test_real_links_are_not_counted_against_anything(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record.probe(ProbeResult(0.5, "edge-0", "cloud", "edge-cloud", "rtt", 0.08, 0.081, 0.07, 0.09, "pass"))
    row = "rtt", None, 0.3, None, None, "measured", "median of 250"
    run.record.probe(ProbeResult(0.6, "device-0-0", "edge-0", "device-edge", *row, kind="real"))
    assert run.verdict("links as configured") == (
        "pass",
        containing("1 probe", "1 link class agree", "1 figure"),
    )


def test_without_real_links_none_are_mentioned(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for ends in (("edge-0", "cloud", "edge-cloud"), ("device-0-0", "edge-0", "device-edge")):
        run.record.probe(ProbeResult(0.5, *ends, "rtt", 0.08, 0.081, 0.07, 0.09, "pass"))
    assert run.verdict("links as configured") == ("pass", containing("2 probes", "2 link classes agree"))


def test_links_that_are_all_real_are_measured(tmp_path: Path) -> None:
    run = Run(tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["links"] = [link | {"profile": {"real": True}} for link in plan["links"]]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    for ends in (("edge-0", "cloud", "edge-cloud"), ("device-0-0", "edge-0", "device-edge")):
        run.record.probe(ProbeResult(0.5, *ends, "rtt", None, 0.3, None, None, "measured", kind="real"))
    assert run.verdict("links as configured") == (
        "measured",
        containing("is real: 2 figures", "2 link"),
    )
    assert run.verdict("losses during the run")[0] == "measured"


OVERLOAD = Overload(
    2.0,
    3.0,
    ("packets left late",),
    "the switch was held up",
    late=30,
    late_max=0.08,
    held_up=0.08,
    processors=0.4,
    switch=0.1,
)
LOST = {"before the switch, from edge-0": 1200}
SATURATED = replace(OVERLOAD, effects=("processors saturated",), late=0, late_max=0.0, held_up=0.0, processors=0.95)

# A training of 19 s in which 10,000 packets were delivered: 1 % are 100 packets, 2 % are 0.38 s.
OVERLOADED: list[tuple[list[Overload], str, str]] = [
    (
        [OVERLOAD],
        "pass",
        containing("30 packets more than 50 ms", "0.30%", "80 ms, 0.4%", "at 1.0 s"),
    ),
    (
        [OVERLOAD, replace(OVERLOAD, start=9.0, end=11.0, late_max=0.4, held_up=0.4, cause="too many packets")],
        "fail",
        containing("60 packets more than 50 ms", "0.60%", "480 ms, 2.5%", "at 8.0 s"),
    ),
    (
        [replace(OVERLOAD, late=100, held_up=0.38)],
        "pass",
        containing("100 packets more than 50 ms", "1.00%", "380 ms, 2.0%", "at 1.0 s"),
    ),
    (
        [replace(OVERLOAD, late=101)],
        "fail",
        containing("101 packets more than 50 ms", "1.01%", "80 ms, 0.4%", "at 1.0 s"),
    ),
    (  # a packet counts twice if it waited to be read and left late; a clock jumped by an hour
        [replace(OVERLOAD, late=20_000, late_max=3600.0, held_up=3600.0)],
        "fail",
        containing("20,000 packets more than 50 ms", "100.00%", "00 min, 100.0%", "at 1.0 s"),
    ),
    (
        [replace(OVERLOAD, late=0, held_up=0.0, lost=LOST)],
        "fail",
        containing("1,200 packets lost beyond", "(1,200 before", "edge-0)", "at 1.0 s"),
    ),
    (
        [replace(SATURATED, lost={FULL_BACKLOG: 3})],
        "unknown",
        containing("3 packets", "this host's backlog, possibly", "host's", "at 1.0 s"),
    ),
    # Recorded in two pieces, it was one stretch; busy processors by themselves harm no packet.
    (
        [SATURATED, replace(SATURATED, start=3.0, end=5.5)],
        "pass",
        containing("host's processors were saturated", "3.5 s"),
    ),
]


@pytest.mark.parametrize(("overloads", "verdict", "detail"), OVERLOADED, ids=range(len(OVERLOADED)))
def test_links_that_were_late(tmp_path: Path, overloads: list[Overload], verdict: str, detail: str) -> None:
    run = Run(tmp_path).rounds().crossed("device-0-0", "edge-0", {2.0: 10_000})
    for each in overloads:
        run.record.event(each.end, None, "overload", None, each.to_json())
    assert run.verdict("links on time") == (verdict, detail)


@pytest.mark.parametrize(("held_up", "verdict"), [(0.1, "pass"), (0.11, "fail")])
def test_packets_may_be_held_up_for_a_tenth_of_a_second_in_a_short_training(
    tmp_path: Path, held_up: float, verdict: str
) -> None:
    """It lasted from 1 s to 3 s, and 2 % of that are 0.04 s."""
    run = Run(tmp_path).crossed("device-0-0", "edge-0", {2.0: 10_000})
    run.record.event(3.0, None, "overload", None, replace(OVERLOAD, held_up=held_up).to_json())
    assert run.verdict("links on time")[0] == verdict


@pytest.mark.parametrize(
    ("trained", "start", "words"),
    [
        (True, 0.5, "at 0.0 s for 2.5 s"),  # it started before the training
        (False, 2.0, "at 2.0 s for 1 s"),  # there was no training
    ],
)
def test_the_time_of_an_overload(tmp_path: Path, trained: bool, start: float, words: str) -> None:
    run = Run(tmp_path, trained=trained)
    run.record.event(3.0, None, "overload", None, replace(OVERLOAD, start=start).to_json())
    assert words in run.verdict("links on time")[1]


def looked(asked: float, measured: float, verdict: str, astray: int = 0) -> dict[str, Any]:
    """What a look at two links finds, of which so many are astray."""
    told = {
        "packets": 10_000,
        "lost": round(10_000 * measured),
        "asked": asked,
        "measured": measured,
        "low": 0.0,
        "high": 0.02,
        "verdict": verdict,
    }
    return {
        "links": 2,
        "packets": 20_000,
        "told": 1,
        "astray_count": astray,
        "astray": [{"link": "device-0-0 → edge-0", **told}][:astray],
        "classes": [{"class": "device-edge", "links": 2, **told}],
    }


LOOKS: list[tuple[list[dict[str, Any]], str, str]] = [
    (
        [looked(0.01, 0.0103, "pass")],
        "pass",
        containing("20,000 packets", "2 link directions: device-edge lost 1.03%", "1 carried"),
    ),
    (
        [looked(0.0, 0.0, "pass")],
        "pass",
        containing("20,000 packets sent over 2 link", "1 carried"),
    ),
    (
        [looked(0.01, 0.03, "fail", 1), looked(0.01, 0.0301, "fail", 1)],
        "fail",
        containing("20,000 packets sent over 2 link", "at 9 s: device-0-0 → edge-0", "10,000, 3.01%"),
    ),
    (
        [looked(0.01, 0.013, "fail")],
        "fail",
        containing("20,000 packets sent over 2 link", "device-edge lost 1.3%"),
    ),
    (
        [
            looked(0.0, 0.0, "pass")
            | {"overflowed": 4292, "most_overflowed": {"link": "device-0 → cloud", "packets": 4292}, "cut_dropped": 3}
        ],
        "pass",
        containing("20,000 packets sent over 2 link", "4,292 packets", "device-0", "3 packets", "1 carried"),
    ),
    (
        [
            looked(0.0, 0.0, "pass")
            | {"nat_expired": 5, "most_nat_expired": {"link": "cloud → device-0", "packets": 3}, "cut_dropped": 0}
        ],
        "pass",
        containing("20,000 packets sent over 2 link", "5 packets", "device-0; 1 carried"),
    ),
    (
        [looked(0.0, 0.0, "pass") | {"too_large": 5, "most_too_large": {"link": "device-0 → cloud", "packets": 5}}],
        "pass",
        containing("20,000 packets sent over 2 link", "5 packets exceeded the drop_above", "device-0"),
    ),
    ([], "unknown", containing("the links were not sampled during")),
]


@pytest.mark.parametrize(("looks", "verdict", "detail"), LOOKS, ids=range(len(LOOKS)))
def test_links_during_the_run(tmp_path: Path, looks: list[dict[str, Any]], verdict: str, detail: str) -> None:
    run = Run(tmp_path).rounds()
    for number, data in enumerate(looks, start=1):
        run.record.event(10.0 * number, None, "links looked at", None, data)
    assert run.verdict("losses during the run") == (verdict, detail)


def test_losses_of_a_run_that_never_trained_have_the_times_of_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, trained=False)
    run.record.event(10.0, None, "links looked at", None, looked(0.01, 0.03, "fail", 1))
    assert "first seen at 10 s" in run.verdict("losses during the run")[1]


@pytest.mark.parametrize(
    ("losses", "worst"),
    [  # configured and measured; the deviation is relative to the configured loss, or to 0.01 % if that is smaller
        ([(0.01, 0.0), (0.1, 0.15)], 0),  # 1 and 0.5
        ([(0.01, 0.0), (0.0, 0.00015)], 1),  # 1 and 1.5
    ],
)
def test_the_link_with_the_largest_deviation_is_named(
    tmp_path: Path, losses: list[tuple[float, float]], worst: int
) -> None:
    astray = [
        {"link": f"link {number}", "packets": 10**6, "lost": round(10**6 * measured), "asked": asked}
        | {"measured": measured}
        for number, (asked, measured) in enumerate(losses)
    ]
    run = Run(tmp_path).rounds()
    look = looked(0.01, 0.03, "fail") | {"astray_count": 2, "astray": astray}
    run.record.event(10.0, None, "links looked at", None, look)
    assert f": link {worst} lost" in run.verdict("losses during the run")[1]


def test_links_were_on_time(tmp_path: Path) -> None:
    assert Run(tmp_path / "never read").verdict("links on time")[0] == "unknown"
    assert Run(tmp_path / "kernel", meta={"engine": "kernel"}).verdict("links on time")[0] == "pass"
    read = Run(tmp_path / "read").crossed("device-0-0", "edge-0", {2.0: 10})
    assert read.verdict("links on time")[0] == "pass"


COURSE = {
    "links": "edge-0 → cloud",
    "count": 1,
    "schedule": "at 1s loss 5%",
    "changes": 99,
    "overtaken": 0,
    "failures": 0,
    "late_p99": 0.004,
    "late_max": 0.02,
}


def scheduled(directory: Path, *courses: dict[str, Any]) -> Run:
    """A run in which one direction of a link changes over time."""
    planned = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False))["links"]
    planned[0] = planned[0] | {"schedule": {"steps": [{"at": "1s", "loss": "5%"}]}}
    run = Run(directory).rounds()
    plan = json.loads((directory / "plan.json").read_text())
    (directory / "plan.json").write_text(json.dumps({**plan, "links": planned}))
    for course in courses:
        run.record.event(20.0, None, "schedule ended", None, COURSE | course)
    return run.ended()


IDLE = {"links": "device-0 → cloud", "changes": 0, "late_p99": 0.0, "late_max": 0.0}
SCHEDULED: list[tuple[list[dict[str, Any]], str, str]] = [
    ([{}], "pass", containing("99 changes", "1 link direction, 99%", "most 4 ms", "20 ms")),
    (
        [{}, IDLE | {"first": 36_000.0}, IDLE | {"links": "edge-1 → cloud", "first": None}],
        "unknown",
        containing("99 changes", "1 link direction, 99%", "most 4 ms", "20 ms", "device-0", "at 10 h 00 min), edge-1"),
    ),
    ([{}, {"changes": 0}], "pass", containing("99 changes", "1 link direction, 99%", "most 4 ms", "20 ms")),
    (
        [{}, {"late_p99": 0.051, "late_max": 0.06}],
        "fail",
        containing("198 changes", "1 link direction, 99%", "most 51 ms", "60 ms, in edge-0"),
    ),
    (
        [{"overtaken": 2}],
        "fail",
        containing("99 changes", "1 link direction, 99%", "most 4 ms", "20 ms"),
    ),
    ([{"late_p99": 0.05}], "pass", containing("99 changes", "1 link direction, 99%", "most 50 ms", "20 ms")),
    ([{"overtaken": 1}], "pass", containing("99 changes", "1 link direction, 99%", "most 4 ms", "20 ms")),
    ([], "unknown", containing("run ended before this was recorded")),
]


@pytest.mark.parametrize(("courses", "verdict", "detail"), SCHEDULED, ids=range(len(SCHEDULED)))
def test_links_over_time(tmp_path: Path, courses: list[dict[str, Any]], verdict: str, detail: str) -> None:
    assert scheduled(tmp_path, *courses).verdict("links over time") == (verdict, detail)


def test_changes_that_could_not_be_made(tmp_path: Path) -> None:
    run = scheduled(tmp_path, {"failures": 3})
    run.record.event(3.0, None, "schedule failed", None, {"link": "edge-0 → cloud", "error": "tc: no such device"})
    assert run.verdict("links over time") == (
        "fail",
        containing("99 changes", "1 link direction, 99%", "most 4 ms", "20 ms; 3 could"),
    )


def test_channels_over_time(tmp_path: Path) -> None:
    run = scheduled(tmp_path, {})
    plan = json.loads((tmp_path / "plan.json").read_text())
    media = [{"name": "cell", "channels": {}, "members": [], "schedules": {"cell up": {}}}]
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "media": media}))
    verdict, detail = run.verdict("links over time")
    assert (verdict, detail.partition(",")[0]) == ("pass", "99 changes of 1 link direction and 1 shared channel")


def test_links_that_were_not_to_change(tmp_path: Path) -> None:
    assert Run(tmp_path).ended().verdict("links over time")[0] == "pass"


def carrying(directory: Path, megabits: Sequence[float], device: str = "device-0-0", **plan: Any) -> Run:
    """Each second, a device sends its edge so many megabits, over a link of 40 mbit."""
    return sending(Run(directory, **plan), [int(number * 1e6 / 8) for number in megabits], device)


def sending(run: Run, sizes: Sequence[int], device: str = "device-0-0") -> Run:
    """Each second, a device sends its edge so many bytes."""
    row = dict.fromkeys(COUNTERS, 0) | {"source": device, "target": "edge-0", "link_class": "device-edge"}
    for second in range(len(sizes) + 1):
        count = sum(sizes[:second])
        run.record.counters(2.0 + second, [row | {"delivered": second, "offered": second, "delivered_bytes": count}])
    return run


def with_links(**profile: str) -> list[dict[str, Any]]:
    """The links of a plan, all with this profile."""
    links = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False))["links"]
    return [link | {"profile": profile} for link in links]


def test_a_link_that_carries_more_than_its_rate_fails(tmp_path: Path) -> None:
    # 5 s of 48 Mbit/s in what may have been 5.5 s: 43.6 Mbit/s at least, where 41.2 are accepted. So 41.2 * 5.5 / 5
    # are accepted in what is read as 5 s, and 3 frames that may have been sent before.
    verdict, detail = carrying(tmp_path, [1, 48, 48, 48, 48, 48, 1]).verdict("rates during the run")
    assert (verdict, detail) == (
        "fail",
        containing("rate: device-0-0 → edge-0 48 mbit", "40 mbit", "45.4 mbit"),
    )


def test_a_full_link_and_a_burst_of_a_second_pass(tmp_path: Path) -> None:
    verdict, detail = carrying(tmp_path, [40] * 8 + [48, 0, 0, 0, 0]).verdict("rates during the run")
    assert verdict == "pass"
    # (4 * 40 + 48) / 5 of 40 Mbit/s; see above for what is accepted
    assert detail.endswith("device-edge 41.6 mbit of 40 mbit (up to 45.4 mbit accepted over 5 s)")


@pytest.mark.parametrize(
    ("engine", "rate", "piece"),
    [
        ("userspace", 1e6, FULL_FRAME),  # a frame takes 12 ms
        ("userspace", 40e6, 3 * FULL_FRAME),  # as many as cross within a millisecond
        ("kernel", 40e6, 65_536),  # a super-packet
    ],
)
@pytest.mark.parametrize("excess", [0, 1])
def test_the_most_bytes_that_a_window_accepts(
    tmp_path: Path, engine: str, rate: float, piece: int, excess: int
) -> None:
    """In 5 s, which may have been 5.5 s: 3 % more than the rate, and a piece that was sent before in part."""
    most = round(1.03 * rate * 5.5 / 8) + piece
    run = Run(tmp_path, meta={"engine": engine})
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["links"] = with_links(rate=f"{rate:.0f}bit")
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    sending(run, [most + excess, 0, 0, 0, 0])
    assert run.verdict("rates during the run")[0] == ("fail" if excess else "pass")


@pytest.mark.parametrize(
    ("seconds", "megabits", "verdict"),
    [  # of 40, of which 41.2 are accepted for 5.5 / 5, 60.5 / 60 and 600.5 / 600 of the time
        (60, 41.6, "fail"),  # 41.5 are accepted
        (59, 41.6, "pass"),
        (600, 41.4, "fail"),  # 41.23 are accepted
        (599, 41.4, "pass"),
    ],
)
def test_long_windows_accept_less(tmp_path: Path, seconds: int, megabits: float, verdict: str) -> None:
    assert carrying(tmp_path, [megabits] * seconds).verdict("rates during the run")[0] == verdict


@pytest.mark.parametrize(("megabits", "verdict"), [(54, "fail"), (53, "pass")])
def test_packets_may_be_closer_together_by_ten_jitters(tmp_path: Path, megabits: float, verdict: str) -> None:
    """5 s may have been 6.5 s with a jitter of 100 ms: 41.2 · 6.5 / 5 = 53.6 Mbit/s are accepted."""
    run = Run(tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["links"] = with_links(rate="40mbit", latency="1s", jitter="100ms")
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    sending(run, [int(megabits * 1e6 / 8)] * 5)
    assert run.verdict("rates during the run")[0] == verdict


@pytest.mark.parametrize(("megabits", "device"), [((30, 20), 0), ((20, 30), 1), ((20, 20), 0)])
def test_the_busiest_link_of_a_class_is_shown(tmp_path: Path, megabits: tuple[int, int], device: int) -> None:
    run = Run(tmp_path)
    for number, rate in enumerate(megabits):
        sending(run, [int(rate * 1e6 / 8)] * 5, f"device-0-{number}")
    (link,) = busiest(history_of(run))
    assert link.link == f"device-0-{device} → edge-0"


def test_rates_that_change_or_were_hardly_used_are_not_judged(tmp_path: Path) -> None:
    fast = [80.0] * 8
    assert "rates during the run" not in {each["name"] for each in said(carrying(tmp_path / "short", [80.0] * 3))}
    links = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False))["links"]
    scheduled = [{**link, "schedule": {}} for link in links]
    run = carrying(tmp_path / "scheduled", fast)
    plan = json.loads((run.directory / "plan.json").read_text())
    (run.directory / "plan.json").write_text(json.dumps({**plan, "links": scheduled}))
    assert "rates during the run" not in {each["name"] for each in said(run)}
    degrade = FAULT | {"action": "degrade", "node": "device-0-0", "at": 2.0, "links": CUT["links"]}
    faults = [degrade | {"profile": {"rate": "100mbit"}}]
    assert "rates during the run" not in {
        each["name"] for each in said(carrying(tmp_path / "degraded", fast, faults=faults))
    }


def said(run: Run) -> list[Check]:
    return checks(history_of(run))


def history_of(run: Run) -> History:
    run.record.close()
    return History.open(run.directory)
