from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import RunError
from orchestrator.results.history import History
from orchestrator.results.junit import junit, write_junit
from orchestrator.results.summary import summary
from tests.orchestrator.example_run import Example

ROOT = Path(__file__).parents[3]


def of(tmp_path: Path, example: Example) -> dict[str, Any]:
    """The example's summary, with what its checks could not tell taken as passed."""
    with History.open(example.build(tmp_path / "run")) as history:
        result = summary(history)
    for check in result["checks"]:
        check["verdict"] = "pass" if check["verdict"] == "unknown" else check["verdict"]
    return result


def read(tmp_path: Path, result: dict[str, Any]) -> ET.Element:
    """The suite as a reader gets it from the file."""
    file = tmp_path / "reports" / "edgebed.xml"
    write_junit(result, file)
    root = ET.parse(file).getroot()
    assert root.tag == "testsuites"
    (suite,) = root
    return suite


def test_one_case_for_each_check(tmp_path: Path) -> None:
    result = of(tmp_path, Example())
    suite = read(tmp_path, result)
    assert suite.attrib == {
        "name": "edgebed.dropout",
        "tests": str(len(result["checks"])),
        "failures": "0",
        "errors": "0",
        "skipped": "0",
        "time": "46.900",  # 6.5 s to set up, 10 rounds of 4 s, 0.4 s to end
    }
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [check["name"] for check in result["checks"]]
    assert {case.get("classname") for case in cases} == {"edgebed.dropout"}
    assert [case.findtext("system-out") for case in cases] == [check["detail"] for check in result["checks"]]
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["run"] == str(tmp_path / "run")
    assert properties["ended"] == "rounds"


def test_a_failed_check_is_a_failure_with_its_numbers(tmp_path: Path) -> None:
    suite = read(tmp_path, of(tmp_path, Example(probe_error=0.5)))
    assert suite.get("failures") == "1"
    (failed,) = [case for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failed.get("name") == "links as configured"
    failure = failed.find("failure")
    assert failure is not None
    assert "probes failed" in (failure.get("message") or "")
    assert failure.text == failure.get("message")


def test_a_run_that_failed_fails(tmp_path: Path) -> None:
    suite = read(tmp_path, of(tmp_path, Example(rounds_made=3, ending="failed")))
    messages = {case.get("name"): case.find("failure") for case in suite.iter("testcase")}
    assert messages["finished"] is not None
    assert "cloud ended (exit code 1)" in (messages["finished"].text or "")


@pytest.mark.parametrize("verdict", ["unknown", "modelled"])
def test_what_was_not_judged_is_skipped(tmp_path: Path, verdict: str) -> None:
    result = of(tmp_path, Example())
    result["checks"][1] |= {"verdict": verdict, "detail": "no probe of device-edge"}
    suite = read(tmp_path, result)
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "0")
    (skipped,) = suite.iter("skipped")
    assert skipped.get("message") == "no probe of device-edge"


def test_whatever_a_check_says_it_is_well_formed(tmp_path: Path) -> None:
    result = of(tmp_path, Example())
    result["checks"][0] |= {"verdict": "fail", "detail": "<&\"']]> \x00\x1b[31m \ud800 ünï 🙂"}
    failure = read(tmp_path, result).find("testcase/failure")
    assert failure is not None
    assert failure.text == "<&\"']]> ��[31m � ünï 🙂"


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write .*file/edgebed\.xml \(Not a directory|\(File exists"):
        write_junit(of(tmp_path, Example()), tmp_path / "file" / "edgebed.xml")
    assert junit(of(tmp_path / "other", Example())).tag == "testsuites"


def test_up(tmp_path: Path) -> None:
    file = tmp_path / "edgebed.xml"
    words = ["up", str(ROOT / "scenarios/smoke.yaml"), "--driver", "sim", "--runs", str(tmp_path), "--junit", str(file)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    root = ET.parse(file).getroot()
    assert root.get("failures") == "0"
    skipped = {case.get("name") for case in root.iter("testcase") if case.find("skipped") is not None}
    assert skipped == {
        "links as configured",
        "losses during the run",
        "rates during the run",
        "compute on time",
        "links on time",
    }
