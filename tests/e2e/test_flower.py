"""Flower as programs: the scenario that ships, shortened, with the Flower of PyPI in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from tests.e2e.harness import ROOT, traces_of, up
from tests.programs import give_up

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FLOWER = "flwr==1.41.0"
CLIENTS, ROUNDS = 2, 2
TIMEOUT = 30.0  # s: Flower itself gives up a crashed client after up to 60 s
CONTROL = (
    "sh -c 'cp flower/connection.toml $FLWR_HOME/config.toml && exec flwr run flower --stream"
    f' --run-config "clients={CLIENTS} rounds={ROUNDS} timeout={TIMEOUT}"\''
)
SHORTER = {
    "topology.devices": CLIENTS,
    "stop.rounds": ROUNDS,
    "programs.control.command": CONTROL,
    "faults": "[{round: 2, node: device-0, action: crash, for: 1s},"
    " {round: 2, node: device-1, action: disconnect, for: 2s}]",
}


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment with Flower, which finds the rest where this process finds it."""
    folder = tmp_path_factory.mktemp("flower")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "later.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # Without --no-compile it would compile some thousand modules more than are imported.
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    install = [*pip, "install", "--quiet", "--no-compile", FLOWER, "scikit-learn"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        give_up(f"{FLOWER} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return folder / "bin"


def test_its_rounds_survive_a_crash_and_a_disconnection(
    flower: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # each process would compile Flower again
    monkeypatch.setenv("PATH", f"{flower}:{os.environ['PATH']}")
    settings = [word for key, value in SHORTER.items() for word in ("--set", f"{key}={value}")]
    shutil.copytree(ROOT / "scenarios" / "flower", tmp_path / "flower")
    result = up(tmp_path, (ROOT / "scenarios" / "flower.yaml").read_text(), *settings, timeout=300)
    summary = result.summary
    assert result.code in (0, 3), result.errors  # 3: a host that is busy with something else
    assert {each["name"]: each["detail"] for each in summary["checks"] if each["verdict"] == "fail"} == {}
    assert (summary["ended"], summary["rounds"]) == ("rounds", ROUNDS)
    assert summary["verdict"] != "fail"  # a probe may give no clear result on a busy host
    assert [fault["action"] for fault in summary["faults"] if fault["at"] is not None] == ["crash", "disconnect"]
    assert summary["bytes"]["device-cloud"] > 0
    run = RunDirectory(Path(summary["run"]))
    with History.open(run.path) as history:
        accuracies = {each.round: each.value for each in history.metrics("accuracy", "global")}
    assert list(accuracies) == [1, 2]
    assert max(accuracies.values()) > 0.3  # a guess is right in one case of ten
    assert list(home.iterdir()) == []
    assert traces_of(run.run) == []
