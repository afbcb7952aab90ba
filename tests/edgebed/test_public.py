"""What `import edgebed` promises: these names, at once, without torch."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import edgebed
from edgebed import plugin
from node.learning import aggregation
from orchestrator.sweep.python import SweepRuns
from orchestrator.verbs import python_interface
from orchestrator.verbs.handle import Handle
from orchestrator.verbs.python_interface import Run
from tests.test_readme import ROOT

PUBLIC = [
    "CrossTraffic",
    "Event",
    "Fault",
    "Handle",
    "Link",
    "Medium",
    "Reproduction",
    "Run",
    "Scenario",
    "SweepRuns",
    "__version__",
    "archive",
    "compare",
    "load",
    "plan",
    "plugin",
    "reproduce",
    "runs",
    "start",
    "sweep",
    "up",
    "validate",
]
PLUGIN = [
    "Algorithm",
    "ClientWork",
    "Curves",
    "Dataset",
    "Driver",
    "DriverError",
    "DriverKind",
    "Environment",
    "Exit",
    "HostError",
    "Learner",
    "LocalTraining",
    "Message",
    "MiniBatch",
    "Model",
    "ModelEntry",
    "NodeHandle",
    "NodePlan",
    "Parameters",
    "PartitionParameters",
    "PartitionScheme",
    "Plan",
    "Plugin",
    "Role",
    "RunDirectory",
    "State",
    "algorithm",
    "average",
    "batches",
    "cross_entropy",
    "evaluate",
    "fitting",
    "flag",
    "joined",
    "load_state",
    "loss",
    "number",
    "optimizer",
    "params_at",
    "parted",
    "participants",
    "report_mean",
    "round_of",
    "start_node",
    "state_of",
    "train",
    "unshaped_environment",
    "weighted_mean",
    "whole",
    "with_samples",
    "word",
]
LOADED = "import sys, edgebed; before = set(sys.modules); [getattr(edgebed, name) for name in {names}]; import json;"
LOADED += "print(json.dumps([sorted(before), sorted(sys.modules)]))"


def loaded(names: list[str]) -> list[list[str]]:
    """The modules after the import, and after these names were asked for."""
    argv = [sys.executable, "-c", LOADED.format(names=names)]
    modules: list[list[str]] = json.loads(subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout)
    return modules


def test_the_names() -> None:
    assert edgebed.__all__ == dir(edgebed) == PUBLIC
    assert edgebed.up is python_interface.up
    with pytest.raises(AttributeError, match="'edgebed' has no attribute 'Cloud'"):
        edgebed.Cloud  # noqa: B018
    with pytest.raises(AttributeError, match=r"'edgebed.plugin' has no attribute 'Cloud'"):
        plugin.Cloud  # noqa: B018


def test_the_names_for_plug_ins() -> None:
    assert plugin.__all__ == dir(plugin) == PLUGIN
    assert [getattr(edgebed, name) for name in PLUGIN] == [getattr(plugin, name) for name in PLUGIN]


@pytest.mark.parametrize("name", sorted({*PUBLIC, *PLUGIN} - {"__version__"}))
def test_every_name_has_a_docstring(name: str) -> None:
    found = getattr(edgebed, name)
    if name == "State":  # an alias: its docstring is the text below it
        assert '\nState = dict[str, NDArray[Any]]\n"""' in inspect.getsource(aggregation)
        return
    assert inspect.getdoc(found)
    public = [each for each in vars(found).items() if not each[0].startswith("_")] if inspect.isclass(found) else []
    if found in (Run, SweepRuns, Handle):
        for member, value in public:
            assert inspect.getdoc(value), f"{name}.{member}"


def test_the_version_is_that_of_the_package_and_of_the_changelog() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert edgebed.__version__ == project["version"]
    newest = re.search(r"^## \[([0-9.]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == project["version"]


def test_nothing_is_imported_before_it_is_requested() -> None:
    with_torch = {"Learner", "MiniBatch", "Model", "average", "batches", "evaluate", "fitting", "joined", "load_state"}
    with_torch |= {
        "cross_entropy",
        "loss",
        "optimizer",
        "params_at",
        "parted",
        "participants",
        "report_mean",
        "round_of",
        "state_of",
        "train",
        "with_samples",
    }
    before, after = loaded([name for name in (*PUBLIC, *PLUGIN) if name not in with_torch])
    assert not {"torch", "numpy", "node", "netem", "orchestrator"} & set(before)
    assert "torch" not in after


@pytest.mark.parametrize("package", ["edgebed", "netem", "node", "orchestrator"])
def test_the_packages_are_typed_and_shipped(package: str) -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert (ROOT / package / "py.typed").exists()
    assert "py.typed" in setuptools["package-data"][package]
    assert f"{package}*" in setuptools["packages"]["find"]["include"]


@pytest.mark.slow
def test_the_examples_of_the_page_about_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/reference/python.md").read_text()
    section = page.partition("## A scenario in Python\n")[2].partition("\n## Events\n")[0]
    names: dict[str, object] = {"edgebed": edgebed}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(code, names)
    (run,) = edgebed.runs()
    assert run.verdict == "pass"
    assert [row["action"] for row in run.rows("faults")] == ["pause", "crash", "crash"]
