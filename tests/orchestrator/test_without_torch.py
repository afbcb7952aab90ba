"""edgebed without the extra `learning`: everything but training works, and training refuses in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from node.extras import install_command
from orchestrator.verbs import doctor
from tests.e2e.harness import ROOT
from tests.orchestrator.example_run import Example

pytestmark = pytest.mark.slow  # each command starts Python anew

INSTALL = install_command("learning")
WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('torch', 'torchvision', 'PIL')));"  # their import fails
COMMAND = f"{WITHOUT} from edgebed.command import main; main()"
TRAINS = "algorithm: {name: fedavg, rounds: 1}\nmodel: mlp\ntopology: {edges: 0, devices: 2}\n"
PLUGIN = """\
import edgebed
from node.extras import install_command


class Of(edgebed.Parameters):
    pass


PLUGIN = edgebed.Plugin(models=[edgebed.ModelEntry("little", params=Of, build=lambda *_: None)])
"""


def edgebed(*words: str | Path, code: str = COMMAND) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(TRAINS)
    return tmp_path / "s.yaml"


def test_scenarios_are_checked_and_planned(scenario: Path) -> None:
    done = edgebed("validate", scenario)
    assert (done.returncode, done.stdout) == (0, f"{scenario}: valid (3 nodes)\n")
    plan = edgebed("plan", scenario, "--json")
    assert [node["name"] for node in json.loads(plan.stdout)["nodes"]] == ["cloud", "device-0", "device-1"]
    assert edgebed("validate", ROOT / "scenarios" / "mqtt.yaml").returncode == 0


def test_results_are_read(tmp_path: Path) -> None:
    run = Example().build(tmp_path / "run")
    assert "verdict" in edgebed("report", run).stdout
    assert edgebed("export", "--run", run, "--to", "csv", tmp_path / "tables").returncode == 0
    assert edgebed("compare", run, run, "--json").returncode == 0


@pytest.mark.parametrize(
    "words", [["--driver", "sim"], ["--driver", "namespaces"], ["--driver", "sim", "--device=cuda"]]
)
def test_training_is_refused_before_anything_starts(words: list[str], scenario: Path, tmp_path: Path) -> None:
    done = edgebed("up", scenario, "--runs", tmp_path / "runs", *words)
    assert (done.returncode, done.stderr) == (1, f"error: training needs PyTorch: {INSTALL}\n")
    assert not (tmp_path / "runs").exists()


def test_a_models_size_that_is_measured_needs_it(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    scenario.write_text(TRAINS.replace("mlp", "little") + "plugins: [mine.py]\n")
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "torch.py").write_text("raise ModuleNotFoundError('absent', name='torch')\n")  # for the child process
    done = edgebed("validate", scenario, code=f"import sys; sys.path.insert(0, {str(blocked)!r}); {COMMAND}")
    assert done.stderr.endswith(f"little needs PyTorch: {INSTALL}\n")
    (tmp_path / "mine.py").write_text(f"import torch\n{PLUGIN}")
    done = edgebed("validate", scenario)
    assert done.stderr.endswith(f"mine.py:1: needs PyTorch: {INSTALL}\n")


def test_pictures_need_pillow(scenario: Path, tmp_path: Path) -> None:
    for part in ("train", "test"):
        for kind in ("cats", "dogs"):
            folder = tmp_path / "photos" / part / kind
            folder.mkdir(parents=True)
            (folder / "a.png").write_bytes(b"")
    scenario.write_text(f"{TRAINS}data: {{dataset: 'images:photos'}}\n")
    done = edgebed("validate", scenario)
    assert done.stderr.endswith(f"data.dataset: {tmp_path}/photos needs Pillow: {INSTALL}\n")


def test_from_python() -> None:
    done = edgebed(code=f"{WITHOUT} import edgebed; print(edgebed.Run, edgebed.State); edgebed.average")
    assert done.stderr.splitlines()[-1] == f"ImportError: edgebed.average needs PyTorch: {INSTALL}"
    assert "Run" in done.stdout
    done = edgebed(code=f"{WITHOUT} from edgebed.testing import star")
    assert done.stderr.splitlines()[-1] == f"ImportError: edgebed.testing needs PyTorch: {INSTALL}"


def test_doctor_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done = edgebed(code=f"{WITHOUT} from orchestrator.verbs import doctor; print(doctor._accelerator().detail)")
    assert done.stdout.endswith("PyTorch is not installed\n")
    monkeypatch.setattr(doctor, "LEARNING_PACKAGES", ("numpy", "edgebed-torch"))
    found = doctor._learning()
    assert (found.ok, found.detail, found.commands) == (None, "missing: edgebed-torch", (INSTALL,))
