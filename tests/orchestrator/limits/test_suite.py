"""The runs of the thirteen faults, from the file of a study."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.limits.faults import NAMES
from orchestrator.limits.suite import Suite, load_suite

SERVICE = """\
topology: {cloud: true, edges: 0, devices: 2}
links: {device-cloud: {latency: 5ms}}
programs:
  cloud: {command: serve}
  watcher: {on: cloud, command: watch}
  device: {command: ask}
"""
TRAINING = """\
algorithm: {name: hierfavg, rounds: 4}
data: {dataset: digits, samples_per_client: 40}
topology: {edges: 1, devices_per_edge: 2}
"""


def suite(folder: Path, study: str, scenario: str = SERVICE) -> Suite:
    (folder / "base.yaml").write_text(scenario)
    file = folder / "study.yaml"
    file.write_text(f"scenario: base.yaml\n{study}")
    return load_suite(file)


def rules(suite: Suite) -> dict[str, dict[str, object]]:
    """The only fault of each run, by its name in the suite."""
    written = {}
    for combination in suite.sweep.combinations:
        for fault in combination.scenario.faults:
            dumped = fault.model_dump(mode="json", by_alias=True, exclude_none=True)
            written[combination.case] = dumped
    return written


def test_every_fault_but_idle_has_a_run(tmp_path: Path) -> None:
    tasks = suite(tmp_path, "faults: {}\n").tasks
    assert [task.fault for task in tasks] == [name for name in NAMES if name != "idle"]
    assert {(task.client, task.server) for task in tasks} == {("device-1", "cloud")}


def test_idle_is_tried_with_its_changes(tmp_path: Path) -> None:
    read = suite(tmp_path, "faults: {also: {idle: {programs.watcher.command: sleep 9}}}\n")
    assert read.tasks[-1].fault == "idle"
    assert read.sweep.combinations[-1].scenario.programs["watcher"].command == ["sleep", "9"]
    assert read.sweep.combinations[0].scenario.programs["watcher"].command == ["watch"]


def test_faults_of_programs_begin_with_their_event(tmp_path: Path) -> None:
    written = rules(suite(tmp_path, "faults: {program: cloud}\n"))
    begins = {"event": "fault may begin"}
    assert written["cut-5"] == {"action": "disconnect", "node": "device-1", "for": "5s", **begins}
    assert written["one-way-60"]["direction"] == "down"
    assert written["gone"] == {"action": "power-off", "node": "device-1", **begins}
    assert written["killed"] == {"action": "crash", "node": "device-1", **begins}
    restart = {"action": "crash", "node": "cloud", "program": "cloud", "for": "10s", **begins}
    assert written["server-restart"] == restart


def test_the_server_of_a_device_is_its_edge(tmp_path: Path) -> None:
    read = suite(tmp_path, "faults: {}\n", TRAINING)
    assert (read.tasks[0].client, read.tasks[0].server) == ("device-0-1", "edge-0")
    assert rules(read)["loss-60"]["node"] == "edge-0"
    assert rules(read)["loss-60"]["round"] == 2


def test_each_case_has_all_faults_and_each_seed_a_run(tmp_path: Path) -> None:
    read = suite(tmp_path, "faults: {}\nrepeat: 2\ncases: {plain: {}, far: {links.device-cloud.latency: 1s}}\n")
    assert len(read.tasks) == 2 * 2 * (len(NAMES) - 1)
    names = [combination.case for combination in read.sweep.combinations[:3]]
    assert names == ["plain: none", "plain: none", "plain: cut-5"]
    assert [combination.seed for combination in read.sweep.combinations[:3]] == [1, 2, 1]


def test_a_scenario_is_a_suite_with_defaults(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE)
    read = load_suite(file)
    assert read.sweep.name == "service-faults"
    assert len(read.tasks) == len(NAMES) - 1


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ("faults: {client: device-7}\n", "device-7"),
        ("faults: {also: {cut-50: {}}}\n", "there is no fault 'cut-50' in this suite; did you mean 'cut-5'?"),
        ("faults: {starts: {round: two}}\n", "round"),
        ("faults: {program: broker}\n", "broker"),
    ],
)
def test_mistakes_are_refused(tmp_path: Path, study: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=r"study\.yaml|--set") as refusal:
        suite(tmp_path, study)
    assert said in str(refusal.value)
