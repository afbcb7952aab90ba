"""`init` writes a project that runs at once: its scenario, its tests, its workflow."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from node.extras import requirement
from orchestrator.cli.main import cli
from orchestrator.errors import PlaceError
from orchestrator.scenario.schema import json_schema
from orchestrator.verbs.init import FILES, SCHEMA, TEMPLATE, make_build_folder, make_project
from tests import tutorial
from tests.images.test_dockerfiles import IMAGES, arguments
from tests.orchestrator.drivers.sim.harness import simulate

ROOT = Path(__file__).parents[3]


def test_the_files(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["init", str(tmp_path / "lab")])
    assert done.exit_code == 0
    assert sorted(done.stdout.split()) == sorted(str(tmp_path / "lab" / place) for place in (*FILES.values(), SCHEMA))
    assert {path.name for path in TEMPLATE.iterdir() if path.is_file()} == set(FILES)


def test_its_algorithm_is_the_pages(tmp_path: Path) -> None:
    tutorial.lay_out(tmp_path)
    assert (TEMPLATE / "fedavgm.py").read_text() == (tmp_path / "fedavgm.py").read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PlaceError, match="is not empty: name a new"):
        make_project(tmp_path)
    with pytest.raises(PlaceError, match="is there already"):
        make_project(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_it_runs(tmp_path: Path) -> None:
    make_project(tmp_path / "lab")
    done = simulate(tmp_path, tmp_path / "lab" / "scenario.yaml")
    assert done.code == 0, done.errors
    assert done.summary["verdict"] == "pass"


@pytest.mark.slow
def test_its_tests_pass(tmp_path: Path) -> None:
    make_project(tmp_path)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_its_workflow_has_commands_and_options_that_exist(tmp_path: Path) -> None:
    make_project(tmp_path)
    steps = yaml.safe_load((tmp_path / FILES["edgebed.yml"]).read_text())["jobs"]["edgebed"]["steps"]
    commands = [shlex.split(step["run"]) for step in steps if step.get("run", "").startswith("edgebed ")]
    assert [words[1] for words in commands] == ["doctor", "up", "up"]
    for _, verb, *words in commands:
        known = {option for parameter in cli.commands[verb].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known
    (upload,) = [step for step in steps if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] == "always()"
    assert "reports/" in upload["with"]["path"]


def test_its_workflow_is_the_pages() -> None:
    page = (ROOT / "docs/guides/ci.md").read_text()
    assert (TEMPLATE / "edgebed.yml").read_text() in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_editors_find_the_schema(tmp_path: Path) -> None:
    make_project(tmp_path)
    first, *_ = (tmp_path / "scenario.yaml").read_text().splitlines()
    assert first == f"# yaml-language-server: $schema={SCHEMA}"
    assert json.loads((tmp_path / SCHEMA).read_text()) == json_schema()


def test_it_installs_this_version(tmp_path: Path) -> None:
    make_project(tmp_path)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == [requirement("learning", importlib.metadata.version("edgebed"))]
    assert project["dependency-groups"]["dev"] == ["pytest"]


def files(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_it_has_what_the_dockerfiles_copy(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    done = CliRunner().invoke(cli, ["image", str(folder)])
    assert done.exit_code == 0, done.output
    nodes, agents = done.stderr.splitlines()
    assert nodes.startswith(f"next: cd {folder} && docker build --file images/node/Dockerfile --tag ")
    assert agents.startswith("for runs on several hosts: docker")
    for name in ("edgebed", "images", "netem", "node"):
        assert files(folder / name) == files(ROOT / name)
    for name in ("agent", "host", "planning"):  # verbs/ has a link, which the folder has not
        assert files(folder / "orchestrator" / name) == files(ROOT / "orchestrator" / name)
    assert not list(folder.rglob("__pycache__"))
    for copy in (each for image in IMAGES for each in arguments(image, "COPY") if "--from" not in each):
        assert any(list(folder.glob(source)) for source in copy.split()[:-1])


def test_no_build_folder_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PlaceError, match="is not empty: name a new"):
        make_build_folder(tmp_path)
    (tmp_path / "empty").mkdir()
    make_build_folder(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaceError, match="cannot be made"):
        make_build_folder(tmp_path / "file" / "below")
