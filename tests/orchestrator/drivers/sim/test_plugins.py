"""The tutorial's plug-ins under the driver `sim`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from node.plugins import find, with_plugins
from orchestrator.cli.main import cli
from orchestrator.drivers.sim import codec
from orchestrator.errors import RunError, ScenarioError
from orchestrator.report.page import figures_of
from orchestrator.results.traffic import volumes
from orchestrator.verbs.python_interface import Run
from tests import tutorial
from tests.orchestrator.drivers.sim.harness import simulate


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavgm", "topk", "tanh", "waves", "sensors", "masked", "writers", "fair"])
def test_the_tutorial_learns(tmp_path: Path, name: str) -> None:
    done = simulate(tmp_path, tutorial.lay_out(tmp_path)[name])
    assert done.code == 0, done.errors
    assert done.summary["verdict"] == "pass"
    assert (done.directory / "plugins" / f"{name}.py").exists()


def test_the_results_of_a_check_and_a_figure_are_kept(tmp_path: Path) -> None:
    """The plug-in is not needed to read them."""
    done = simulate(tmp_path, tutorial.lay_out(tmp_path)["fair"])
    (tmp_path / "fair.py").unlink()
    run = Run(done.directory)
    (check,) = [row for row in run.rows("checks") if row["name"] == "fair"]
    last = [row["value"] for row in run.rows("accuracy") if (row["scope"], row["round"]) == ("own", 8)]
    assert len(last) == 4
    assert check["verdict"] == ("pass" if min(last) >= 0.5 else "fail")
    assert f"{min(last):.0%}" in check["detail"]
    with done.history() as history:
        figure = figures_of(history)["plugin-0"]
    (line,) = figure["marks"]
    assert (figure["title"], line["x"], line["y"][-1]) == ("The worst device", list(range(1, 9)), min(last))
    assert "The worst device" in run.report.read_text()


def test_a_check_decides_the_verdict_and_a_broken_one_is_unknown(tmp_path: Path) -> None:
    scenario = tutorial.lay_out(tmp_path)["fair"]
    code = (tmp_path / "fair.py").read_text()
    (tmp_path / "fair.py").write_text(code.replace("value >= 0.5", "value > 1"))
    assert simulate(tmp_path, scenario, "--set", "algorithm.rounds=1").code == 3
    broken = code.replace("    lowest = worst(rows)\n    if", "    1 / 0\n    if").replace(
        '"round", "accuracy", {', '3, None, {"a": 1} or {'
    )
    (tmp_path / "fair.py").write_text(broken)
    done = simulate(tmp_path, scenario, "--set", "algorithm.rounds=1")
    line = 1 + broken.splitlines().index("    1 / 0")
    (check,) = [row for row in Run(done.directory).rows("checks") if row["name"] == "fair"]
    assert check["verdict"] == "unknown"
    assert f"fair.py:{line}: ZeroDivisionError" in check["detail"]
    assert (done.code, done.summary["verdict"]) == (0, "unknown")
    with done.history() as history:
        assert "plugin-0" not in figures_of(history)
        assert any("the figure worst" in note.data["text"] for note in history.events("note"))


def test_a_sparse_update_is_as_large_as_the_page_says(tmp_path: Path) -> None:
    done = simulate(tmp_path, tutorial.lay_out(tmp_path)["topk"])
    with done.history() as history:
        sent = [row for row in volumes.traffic(history) if row.kind == "sparse" and row.direction == "sent"]
    size = sum(row.bytes for row in sent) / sum(row.messages for row in sent)
    assert "1,208 bytes and a header" in tutorial.PAGE
    assert 1208 < size < 1208 + 300


@pytest.mark.slow
def test_one_record_on_any_number_of_workers(tmp_path: Path) -> None:
    """The plug-in's functions cross to the workers by name."""
    scenario = tutorial.lay_out(tmp_path)["topk"]
    one, two = (simulate(tmp_path, scenario, "--workers", workers) for workers in ("1", "2"))
    assert one.record() == two.record()


def test_a_role_that_raises_ends_the_run_at_once_with_its_line(tmp_path: Path) -> None:
    scenario = tutorial.lay_out(tmp_path)["fedavgm"]
    file = tmp_path / "fedavgm.py"
    code = file.read_text()
    line = "            await edgebed.evaluate(self, w, t)\n"
    file.write_text(code.replace(line, f"{line}            assert t < 2, 'enough'\n"))
    place = 1 + file.read_text().splitlines().index("            assert t < 2, 'enough'")
    done = simulate(tmp_path, scenario)
    assert done.code == 1
    assert f"error: cloud failed: fedavgm.py:{place}: AssertionError: enough" in done.errors
    assert done.summary["rounds"] == 1


def test_a_run_is_continued_with_the_same_plug_in_only(tmp_path: Path) -> None:
    scenario = tutorial.lay_out(tmp_path)["fedavgm"]
    file = tmp_path / "fedavgm.py"
    broken = file.read_text().replace(
        "async for t in self.rounds():", "async for t in self.rounds():\n            1 / (3 - t)"
    )
    file.write_text(broken)
    failed = simulate(tmp_path, scenario)
    assert "ZeroDivisionError" in failed.errors
    words = ["resume", failed.directory.name, "--runs", str(tmp_path / "runs")]
    file.write_text(broken.replace("3 - t", "7 - t"))
    other = CliRunner().invoke(cli, words)
    assert isinstance(other.exception, RunError)
    assert "makes another plan of its scenario" in str(other.exception)
    file.write_text(broken)
    again = CliRunner().invoke(cli, words)
    assert "ZeroDivisionError" in again.stderr
    with failed.history() as history:
        assert [event.round for event in history.events("continued")] == [2]


def test_a_data_set_and_a_partition_of_ones_own(tmp_path: Path) -> None:
    done = simulate(tmp_path, tutorial.lay_out(tmp_path)["waves"])
    assert done.code == 0, done.errors
    plan = json.loads((done.directory / "plan.json").read_text())
    assert (plan["data"]["dataset"], plan["data"]["classes"], plan["data"]["used_samples"]) == ("waves", 3, 480)
    assert plan["data"]["partition_params"]["width"] == 20
    assert [node["samples"] for node in plan["nodes"]] == [0, 120, 120, 120, 120]


def test_a_data_set_of_torch_with_test_samples_of_each_client(tmp_path: Path) -> None:
    """24 writers at 8 devices, 30 training and 10 test samples of each writer."""
    done = simulate(tmp_path, tutorial.lay_out(tmp_path)["writers"], "--set", "algorithm.rounds=1")
    assert done.code == 0, done.errors
    plan = json.loads((done.directory / "plan.json").read_text())
    devices = [node for node in plan["nodes"] if node["tier"] == "device"]
    assert [(node["samples"], sum(node["test_counts"])) for node in devices] == [(3 * 30, 3 * 10)] * 8
    with np.load(done.directory / "shards.npz") as shards:
        for name in (node["name"] for node in devices):
            assert set(shards[f"{name}.train"] // 30) == set(shards[f"{name}.test"] // 10)
    with done.history() as history:
        own = [metric.value for metric in history.metrics("accuracy") if metric.scope == "own"]
    assert len(own) == 8
    assert [value * 30 for value in own] == pytest.approx([round(value * 30) for value in own])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"y_test": y[480:]', '"y": y', "data.dataset: data set waves (waves.py): no array 'y_test'"),
        ("random = np", "missing\n    random = np", "waves (waves.py) cannot be read: NameError"),
        ("range(clients)]", "range(1)]", "data.partition: stripes made 1 parts for 4 clients"),
        (
            "% clients == k",
            "% clients >= k",
            "data.partition: stripes: each sample, 0",
        ),
        ("clients = sum(groups)", "clients = 1 // 0", "data.partition: stripes: ZeroDivisionError"),
    ],
)
def test_mistakes_in_them(tmp_path: Path, old: str, new: str, message: str) -> None:
    scenario = tutorial.lay_out(tmp_path)["waves"]
    code = (tmp_path / "waves.py").read_text()
    assert old in code
    (tmp_path / "waves.py").write_text(code.replace(old, new, 1))
    done = CliRunner().invoke(cli, ["up", str(scenario), "--runs", str(tmp_path / "runs"), "--driver", "sim"])
    assert isinstance(done.exception, ScenarioError)
    assert message in str(done.exception)
    assert not (tmp_path / "runs").exists()


RESULT = """\
from dataclasses import dataclass
import edgebed

@dataclass(frozen=True)
class Result:
    value: int
    {property}

def build(shape, classes, params):
    return Result(1)

PLUGIN = edgebed.Plugin(models=[edgebed.ModelEntry("mine", build=build)])
"""


def test_a_changed_plug_in_is_read_by_its_new_class(tmp_path: Path) -> None:
    memory, seen = memoryview(bytearray(1 << 12)), []
    for name in ("old", "new"):
        (tmp_path / "results.py").write_text(RESULT.format(property=f"name = {name!r}"))
        catalogue = with_plugins([find("results.py", tmp_path)])
        build: Any = catalogue.models["mine"].build
        written = codec.write(build((), 1, None), memory, catalogue.sources)
        seen.append(codec.read(memory, written, copy=True).name)
    assert seen == ["old", "new"]


def test_cases_of_a_sweep_may_have_different_plug_ins(tmp_path: Path) -> None:
    """All cases are read before the first one runs."""
    tutorial.lay_out(tmp_path)
    cases = "cases:\n  momentum: {}\n  sparse: {plugins: [topk.py], algorithm: {name: top-k, rounds: 1},"
    cases += " topology: {edges: 1, devices_per_edge: 2}}\n"
    (tmp_path / "s.yaml").write_text(f"# Both?\nscenario: fedavgm.yaml\n{cases}seeds: [1]\ntarget: {{accuracy: 10%}}\n")
    words = ["sweep", str(tmp_path / "s.yaml"), "--driver", "sim", "--runs", str(tmp_path / "runs")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
