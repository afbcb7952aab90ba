"""Measurements of links that hold for later runs of the same sweep or study.

Each run makes its own links, but the same host, engine and profile make the same link: one measurement stands for the
links of one kind in a run, and here for those of later runs. A measurement is kept only if every value of it is as
configured, which a busy host makes less likely. None is kept after a run in which the host was late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from netem.measurement.probe_plan import ProbePlan
from orchestrator.planning.plan import LinkPlan, NodePlan
from orchestrator.record.rows import ProbeResult
from orchestrator.results.checks.registry import Check
from orchestrator.run.links.measured_values import ProbedPair
from orchestrator.scenario.sections.hardware import HardwareClass

OF_THE_HOST = (
    "links as configured",
    "TCP as configured",
    "losses during the run",
    "rates during the run",
    "compute on time",
    "links on time",
)
"""The checks that fail if a host does not make links as configured, or is too busy for them."""


class End(NamedTuple):
    """What of a node its measured links may depend on."""

    hardware: HardwareClass
    stack: Mapping[str, str]
    image: str | None


@dataclass(frozen=True)
class Conditions:
    """What a measurement depends on. Equal conditions give equal links. ``tcp``: the settings in force on this host.
    ``sending``: what is sent to measure."""

    driver: str
    engine: str
    tcp: Mapping[str, str]
    ends: tuple[End, End]
    directions: tuple[LinkPlan, LinkPlan]
    shared: tuple[object, ...]
    others: tuple[Any, ...]
    sending: ProbePlan

    @classmethod
    def of(
        cls,
        pair: ProbedPair,
        driver: str,
        engine: str,
        tcp: Mapping[str, str],
        sending: ProbePlan,
    ) -> Conditions:
        return cls(
            driver,
            engine,
            dict(tcp),
            ends=(_end(pair.source), _end(pair.target)),
            directions=(_before_training(pair.forward), _before_training(pair.back)),
            shared=pair.shared,
            others=pair.others,
            sending=sending,
        )


def _end(node: NodePlan) -> End:
    return End(node.hardware, dict(node.stack), node.image)


def _before_training(link: LinkPlan) -> LinkPlan:
    """The link as it is measured: no schedule has begun. Its seed only chooses which packets its profile affects."""
    return replace(link, seed=0, schedule=None)


class EarlierMeasurements:
    """The measurements of the runs of one command."""

    def __init__(self) -> None:
        self._kept: list[tuple[Conditions, list[ProbeResult]]] = []

    def under(self, conditions: Conditions) -> Sequence[ProbeResult]:
        """The rows of an earlier run's measurement under these conditions; none without one."""
        for known, rows in self._kept:
            if known == conditions:
                return rows
        return ()

    def keep(self, conditions: Conditions, rows: Iterable[ProbeResult], run: str) -> None:
        """Keep the measurement of a run, if it may stand for later ones."""
        kept = []
        for row in rows:
            if row.verdict != "pass":
                return
            kept.append(row._replace(measured_in=run))
        if kept:
            self._kept.append((conditions, kept))

    def judge(self, checks: Iterable[Check]) -> None:
        """Forget all measurements after a run with these checks if its host was late."""
        for check in checks:
            if check["name"] in OF_THE_HOST and check["verdict"] == "fail":
                self._kept.clear()
                return
