from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import ScenarioError
from orchestrator.scenario.reading import load as load_scenario
from orchestrator.sweep.reading import Sweep, assignment, load, parse
from tests.shipped import SWEEPS, read_sweep

SCENARIO = """\
algorithm: {name: hierfavg, rounds: 2}
topology: {edges: 2, devices_per_edge: 1}
links: {device-edge: wifi}
"""


def sweep(tmp_path: Path, text: str, overrides: tuple[str, ...] = ()) -> Sweep:
    (tmp_path / "base.yaml").write_text(SCENARIO)
    file = tmp_path / "my sweep.yaml"
    file.write_text(text)
    return load(file, overrides)


def errors(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        sweep(tmp_path, text)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


def test_the_smallest(tmp_path: Path) -> None:
    read = sweep(tmp_path, "scenario: base.yaml")
    assert (read.name, read.scenario, read.target) == ("my-sweep", tmp_path / "base.yaml", None)
    (only,) = read.combinations
    assert (only.case, only.seed, only.overrides) == ("base", 1, ("seed=1",))


def test_cases_times_varied_values_times_seeds(tmp_path: Path) -> None:
    text = """\
scenario: base.yaml
cases:
  plain: {}
  often: {algorithm.kappa2: 1, links.device-edge.loss: 2%}
vary:
  algorithm.learning_rate: [0.1, 1.0e-05]
  hardware: [{device: raspberry-pi-4}]
seeds: [3, 4]
"""
    read = sweep(tmp_path, text, ("driver=sim",))
    assert [(len(each), case) for case, each in read.cases.items()] == [
        (2, "plain, algorithm.learning_rate=0.1, hardware={device: raspberry-pi-4}"),
        (2, "plain, algorithm.learning_rate=1.0e-05, hardware={device: raspberry-pi-4}"),
        (2, "often, algorithm.learning_rate=0.1, hardware={device: raspberry-pi-4}"),
        (2, "often, algorithm.learning_rate=1.0e-05, hardware={device: raspberry-pi-4}"),
    ]
    references = [each.reference for each in read.combinations[::2]]
    assert references == [None, None, *list(read.cases)[:2]]  # the first case, with the same varied values
    last = read.combinations[-1]
    assert last.overrides[0] == "algorithm.kappa2=1"
    assert (last.scenario.seed, last.scenario.driver) == (4, "sim")
    assert last.scenario.algorithm is not None
    assert last.scenario.algorithm.params == {"kappa2": 1, "learning_rate": 1e-05}
    assert last.scenario.links["device-edge"].profile == "wifi"
    assert last.scenario.hardware["device"].class_ == "raspberry-pi-4"


def test_an_algorithm_without_rounds_keeps_those_of_the_scenario(tmp_path: Path) -> None:
    text = """\
scenario: twelve.yaml
cases:
  plain: {}
  other: {algorithm: {name: onlyedge}}
  word: {algorithm: onlyedge}
  own: {algorithm: {name: onlyedge, rounds: 3}}
  path: {algorithm: {name: onlyedge}, algorithm.rounds: 4}
"""
    (tmp_path / "twelve.yaml").write_text("algorithm: {name: hierfavg, rounds: 12}\n")
    read = sweep(tmp_path, text)
    assert [each.scenario.rounds for each in read.combinations] == [12, 12, 12, 3, 4]
    assert {each.scenario.rounds for each in sweep(tmp_path, text, ("algorithm.rounds=7",)).combinations} == {7}
    varied = sweep(tmp_path, "scenario: twelve.yaml\nvary: {algorithm: [hierfavg, {name: onlyedge, rounds: 5}]}\n")
    assert [each.scenario.rounds for each in varied.combinations] == [12, 5]


def test_targets(tmp_path: Path) -> None:
    of = {}
    for written in ("accuracy: 70%", "accuracy: 70.0%, scope: own", "accuracy: 70%, scope: own, of: edges"):
        target = sweep(tmp_path, f"scenario: base.yaml\ntarget: {{{written}}}").target
        assert target is not None
        of[written] = (target.accuracy, target.judged)
    assert list(of.values()) == [(0.7, "global"), (0.7, "clients"), (0.7, "edges")]


def test_a_target_of_some_nodes(tmp_path: Path) -> None:
    text = "scenario: base.yaml\ntarget: {accuracy: 70%, scope: own, of: [edge-0, cloud]}"
    target = sweep(tmp_path, text).target
    assert target is not None
    assert target.judged == target.nodes == ["edge-0", "cloud"]
    with pytest.raises(ScenarioError) as error:
        sweep(tmp_path, text.replace("cloud", "edge-9"))
    (problem,) = error.value.problems
    assert problem.where.endswith(":2")
    assert problem.path == "target.of.1"
    assert "there is no node 'edge-9'" in problem.message


@pytest.mark.parametrize(
    "value", [1e-5, 3, True, None, "5%", "a: b", "no", "0x1f", "…", {"a": [1, {"b": None}]}, "x" * 300]
)
def test_an_assignment_is_read_back_as_it_was(value: Any) -> None:
    path, _, written = assignment("a.b", value).partition("=")
    assert path == "a.b"
    assert yaml.safe_load(written) == value
    assert "\n" not in written


def test_what_is_wrong_is_reported_once_with_its_place_in_the_sweep(tmp_path: Path) -> None:
    text = """\
scenario: base.yaml
cases:
  one: {algorithm.kapa2: 1}
  two: {links.device-edge.loss: 5}
vary: {topology.edges: [1, 2]}
seeds: [1, 2]
"""
    found = errors(tmp_path, text)
    assert len(found) == 2
    assert found[0].startswith("my sweep.yaml:3: algorithm.kapa2: in case 'one, topology.edges=1': unknown parameter")
    assert found[1].startswith("my sweep.yaml:4: links.device-edge.loss: in case 'two, topology.edges=1': 5 has no")


def test_a_combination_that_makes_no_sense_together(tmp_path: Path) -> None:
    (found,) = errors(tmp_path, "scenario: base.yaml\ncases: {flat: {algorithm: {name: fedavg, rounds: 2}}}")
    assert found.startswith("base.yaml:2: topology: in case 'flat': fedavg")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scenarios: base.yaml", "my sweep.yaml:1: scenarios: unknown key; did you mean 'scenario'?"),
        ("scenario: nope.yaml", "my sweep.yaml:1: scenario: "),
        ("scenario: base.yaml\nseeds: [1, 1]", "my sweep.yaml:2: seeds.1: the seed 1"),
        ("scenario: base.yaml\nseeds: [a]", "my sweep.yaml:2: seeds.0: write a whole"),
        ("scenario: base.yaml\nvary: {model: []}", "my sweep.yaml:2: vary.model: give at least"),
        ("scenario: base.yaml\nvary: {model: [a, b, a]}", "my sweep.yaml:2: vary.model.2: this value is"),
        (
            f"scenario: base.yaml\nvary: {{a: &a {[*range(60)]}, b: *a, c: *a}}",
            "my sweep.yaml:2: vary: these are",
        ),
        ("scenario: base.yaml\ncases: {a: {seed: 1}}", "my sweep.yaml:2: cases.a.seed: write seeds under"),
        (
            "scenario: base.yaml\ntarget: {accuracy: 70}",
            "my sweep.yaml:2: target.accuracy: 70 has no",
        ),
        ("scenario: base.yaml\ntarget: {accuracy: 70%, scope: mine}", "my sweep.yaml:2: target.scope: 'mine' is not"),
        ("scenario: [", "my sweep.yaml:1: not readable as YAML"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, expected: str) -> None:
    assert any(found.startswith(expected) for found in errors(tmp_path, text)), errors(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"^\S+nope\.yaml: cannot be read.*directory$"):
        load(tmp_path / "nope.yaml")


def test_a_scenario_is_a_sweep_of_one_run(tmp_path: Path) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text(SCENARIO + "seed: 7\n")
    (one,) = load(file, ["driver=sim"]).combinations
    assert (one.case, one.seed, one.scenario.seed, one.scenario.driver) == ("hello", 7, 7, "sim")
    assert parse(SCENARIO, Path("no-file.yaml")).text == SCENARIO


def test_the_scenario_is_kept_as_it_was_read(tmp_path: Path) -> None:
    read = sweep(tmp_path, "# Why?\nscenario: base.yaml")
    (tmp_path / "base.yaml").write_text("changed while the sweep runs")
    assert (read.text, read.source) == (SCENARIO, "# Why?\nscenario: base.yaml")


def test_seeds_are_the_sweeps_own(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"^--set seed=5: seed: write.*'seeds'"):
        sweep(tmp_path, "scenario: base.yaml", ("seed=5",))


def test_a_scenario_is_distinguished_from_a_sweep(tmp_path: Path) -> None:
    scenario, sweep = tmp_path / "scenario.yaml", tmp_path / "sweep.yaml"
    scenario.write_text("algorithm: {name: hierfavg, rounds: 2}\nseeds: [1]\n")
    sweep.write_text("scenario: scenario.yaml\nseeds: [1]\n")
    with pytest.raises(ScenarioError, match=r"scenario\.yaml:2: seeds: in case 'scenario': unknown key"):
        load(scenario)
    with pytest.raises(ScenarioError, match=r"sweep\.yaml.*a sweep, .*: use `sweep`$"):
        load_scenario(sweep)


@pytest.mark.parametrize("path", SWEEPS)
def test_shipped_sweeps_are_valid_and_start_with_their_question(path: Path) -> None:
    assert path.read_text().splitlines()[0].endswith("?")
    if "\nscenario:" in path.read_text():
        assert read_sweep(path).combinations
