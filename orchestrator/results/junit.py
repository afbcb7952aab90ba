"""A run's checks as JUnit XML, which every CI service reads: one test case per check.

There is no standard; these are the elements that common readers share (Jenkins' junit-10.xsd): ``testsuites``,
``testsuite``, ``properties``, ``testcase`` with ``failure`` or ``skipped``, ``system-out``. Checks with the verdict
unknown, modelled or measured are skipped: they neither passed nor failed.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import RunError
from orchestrator.results.checks.verdicts import NEUTRAL, Verdict

CaseOutcome = Literal["passed", "failure", "skipped"]
SKIPPED: tuple[Verdict, ...] = ("unknown", *NEUTRAL)
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production 2 (Char)


def write_junit(summary: Mapping[str, Any], file: Path) -> None:
    """Write the checks of a run's summary (`orchestrator.results.summary`). RunError if writing fails."""
    write_suites(junit(summary), file)


def write_suites(suites: ET.Element, file: Path) -> None:
    """Write test suites into a file. RunError if writing fails."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        ET.ElementTree(suites).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise RunError(f"cannot write {file} ({error.strerror}): choose another --junit FILE") from None


def junit(summary: Mapping[str, Any]) -> ET.Element:
    """The checks of a run, with its facts as properties."""
    if summary["wall_seconds"] is not None:
        seconds = summary["wall_seconds"]
    else:
        seconds = summary["seconds"]
    properties = {}
    for key in ("run", "driver", "links", "ended", "rounds", "seconds"):
        properties[key] = str(summary[key])
    cases = []
    for check in summary["checks"]:
        outcome: CaseOutcome = "passed"
        if check["verdict"] == "fail":
            outcome = "failure"
        elif check["verdict"] in SKIPPED:
            outcome = "skipped"
        cases.append((check["name"], outcome, check["detail"]))
    return suites_of(f"edgebed.{summary['name']}", cases, seconds, properties)


def suites_of(
    name: str,
    cases: Sequence[tuple[str, CaseOutcome, str]],
    seconds: float,
    properties: Mapping[str, str] | None = None,
) -> ET.Element:
    """One suite of test cases, each with its name, its outcome and a sentence."""
    outcomes = [outcome for _, outcome, _ in cases]
    totals = {
        "tests": str(len(cases)),
        "failures": str(outcomes.count("failure")),
        "errors": "0",
        "skipped": str(outcomes.count("skipped")),
        "time": f"{seconds:.3f}",
    }
    suites = ET.Element("testsuites", totals)
    suite = ET.SubElement(suites, "testsuite", {"name": name, **totals})
    listed = ET.SubElement(suite, "properties")
    for key, value in (properties or {}).items():
        ET.SubElement(listed, "property", name=key, value=_xml(value))
    for label, outcome, sentence in cases:
        detail = _xml(sentence)
        testcase = ET.SubElement(suite, "testcase", classname=name, name=_xml(label), time="0")
        match outcome:
            case "failure":
                ET.SubElement(testcase, "failure", message=detail).text = detail
            case "skipped":
                ET.SubElement(testcase, "skipped", message=detail)
            case "passed":
                ET.SubElement(testcase, "system-out").text = detail
    return suites


def _xml(text: str) -> str:
    """Replace the characters that XML cannot contain, not even escaped."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
