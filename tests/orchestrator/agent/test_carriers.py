"""The container that carries out runs, before it is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orchestrator.agent.carriers import LENT, lend, options
from orchestrator.host.directory import RunDirectory
from orchestrator.host.docker_socket import RUN

IMAGE = {
    "Config": {"Entrypoint": ["python", "-P", "-m", "node"], "Env": ["PATH=/opt/venv/bin", "PYTHONPATH=/opt/edgebed"]}
}


def test_it_has_no_network_and_no_rights_and_writes_to_the_runs_only() -> None:
    made = options(RunDirectory(Path("/volume/mine-1")), Path("/kept"), IMAGE, (1000, 1000), ["module", "pc-1"])
    assert made["entrypoint"] == ["python", "-P", "-m", "module", "pc-1"]
    assert made["environment"]["PYTHONPATH"] == "/edgebed/code.zip:/opt/edgebed:/edgebed/packages"
    assert (made["network_mode"], made["cap_drop"], made["read_only"]) == ("none", ["ALL"], True)
    assert made["user"] == "1000:1000"
    places = {each["Target"]: (each["Source"], each["ReadOnly"]) for each in made["mounts"]}
    assert places == {
        "/edgebed/code.zip": ("/volume/mine-1/code.zip", True),
        "/edgebed/packages": ("/volume/mine-1/packages", True),
        "/edgebed/data": ("/kept", True),
        "/edgebed/runs": ("/volume/mine-1/runs", False),
    }


def test_it_goes_with_the_sweep_and_with_its_input() -> None:
    made = options(RunDirectory(Path("/volume/mine-1")), Path("/kept"), {"Config": {}}, (1000, 1000), ["module"])
    assert made["labels"][RUN] == "mine-1"
    assert made["stdin_open"]
    assert made["auto_remove"]
    assert made["entrypoint"][0] == "python3"  # of an image that does not say how it is started


def test_what_is_lent_can_be_imported_from_there(tmp_path: Path) -> None:
    lend(tmp_path)
    lend(tmp_path)  # again, as by an agent that begins again
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(LENT)
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pydantic, yaml; print(pydantic.__file__)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert Path(said.strip()).is_relative_to(tmp_path)
