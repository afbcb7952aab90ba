"""A run's checks as JUnit XML, which every CI service reads: one test case per check.

There is no standard; these are the elements that common readers share (Jenkins' junit-10.xsd): ``testsuites``,
``testsuite``, ``properties``, ``testcase`` with ``failure`` or ``skipped``, ``system-out``. Checks with the verdict
unknown, modelled or measured are skipped: they neither passed nor failed.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import RunError
from orchestrator.results.checks.verdicts import NEUTRAL, Verdict

SKIPPED: tuple[Verdict, ...] = ("unknown", *NEUTRAL)
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production 2 (Char)


def write_junit(summary: Mapping[str, Any], file: Path) -> None:
    """Write the checks of a run's summary (`orchestrator.results.summary`). Raises RunError if writing fails."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        ET.ElementTree(junit(summary)).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise RunError(f"cannot write {file} ({error.strerror}): choose another --junit FILE") from None


def junit(summary: Mapping[str, Any]) -> ET.Element:
    name = f"edgebed.{summary['name']}"
    checks = summary["checks"]
    verdicts = [check["verdict"] for check in checks]
    if summary["wall_seconds"] is not None:
        seconds = summary["wall_seconds"]
    else:
        seconds = summary["seconds"]
    totals = {
        "tests": str(len(checks)),
        "failures": str(verdicts.count("fail")),
        "errors": "0",
        "skipped": str(sum(verdict in SKIPPED for verdict in verdicts)),
        "time": f"{seconds:.3f}",
    }
    suites = ET.Element("testsuites", totals)
    suite = ET.SubElement(suites, "testsuite", {"name": name, **totals})
    properties = ET.SubElement(suite, "properties")
    for key in ("run", "driver", "links", "ended", "rounds", "seconds"):
        ET.SubElement(properties, "property", name=key, value=_xml(str(summary[key])))
    for check in checks:
        testcase = ET.SubElement(suite, "testcase", classname=name, name=check["name"], time="0")
        detail = _xml(check["detail"])
        if check["verdict"] == "fail":
            ET.SubElement(testcase, "failure", message=detail).text = detail
        elif check["verdict"] in SKIPPED:
            ET.SubElement(testcase, "skipped", message=detail)
        else:
            ET.SubElement(testcase, "system-out").text = detail
    return suites


def _xml(text: str) -> str:
    """Replace the characters that XML cannot contain, not even escaped."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
