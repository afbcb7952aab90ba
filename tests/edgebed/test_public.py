"""What `import edgebed` promises: these names, at once, without torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib

import pytest

import edgebed
from orchestrator.verbs import runs
from tests.test_readme import ROOT

PUBLIC = [
    *(
        "Algorithm",
        "ClientWork",
        "Dataset",
        "Event",
        "Learner",
        "LocalTraining",
        "Message",
        "MiniBatch",
        "Model",
        "ModelEntry",
    ),
    *("Parameters", "PartitionParameters", "PartitionScheme", "Plugin", "Role", "Run", "State"),
    "SweepRuns",
    *(
        "__version__",
        "algorithm",
        "average",
        "batches",
        "compare",
        "evaluate",
        "fitting",
        "flag",
        "joined",
        "load",
        "load_state",
    ),
    *(
        "number",
        "optimizer",
        "parted",
        "participants",
        "report_mean",
        "round_of",
        "state_of",
        "sweep",
        "train",
        "up",
        "weighted_mean",
    ),
    *("whole", "with_samples", "word"),
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
    assert edgebed.up is runs.up
    with pytest.raises(AttributeError, match=r"'edgebed' has no attribute 'Cloud'; it has Algorithm, "):
        edgebed.Cloud  # noqa: B018


def test_the_version_is_that_of_the_package_and_of_the_changelog() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert edgebed.__version__ == project["version"]
    newest = re.search(r"^## \[([0-9.]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == project["version"]


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    with_torch = {"Learner", "MiniBatch", "Model", "average", "batches", "evaluate", "fitting", "joined", "load_state"}
    with_torch |= {
        "optimizer",
        "parted",
        "participants",
        "report_mean",
        "round_of",
        "state_of",
        "train",
        "with_samples",
    }
    before, after = loaded([name for name in PUBLIC if name not in with_torch])
    assert not {"torch", "numpy", "node", "netem", "orchestrator"} & set(before)
    assert "torch" not in after


@pytest.mark.parametrize("package", ["edgebed", "netem", "node", "orchestrator"])
def test_the_packages_are_typed_and_shipped(package: str) -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert (ROOT / package / "py.typed").exists()
    assert "py.typed" in setuptools["package-data"][package]
    assert f"{package}*" in setuptools["packages"]["find"]["include"]
