"""The action runs a scenario as its steps say, and shows each failed check as an annotation."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Command

from orchestrator.cli.main import cli
from orchestrator.drivers.virtual.kernel import INSTALL, fingerprint
from tests.texts import containing

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".github/annotations.py"
functions = runpy.run_path(str(SCRIPT))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step}
SHELL = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]  # GitHub's `shell: bash`

SUMMARY: dict[str, Any] = {
    "run": "/runs/mine-1",
    "name": "mine",
    "driver": "sim",
    "verdict": "fail",
    "checks": [
        {"name": "finished", "verdict": "pass", "detail": "2 of 2 rounds done"},
        {"name": "learned", "verdict": "fail", "detail": "accuracy 9% | a:\n<guess>"},
        {"name": "participation", "verdict": "unknown", "detail": "device-0-1 was away"},
        {"name": "links as configured", "verdict": "modelled", "detail": "nothing was measured"},
    ],
    "rounds": 2,
    "seconds": 0.25,
    "accuracy": {"global": 0.09, "edge": {}},
    "nodes": 3,
    "error": None,
}


def test_failed_checks_are_errors_and_unknown_ones_warnings() -> None:
    assert functions["annotate"](SUMMARY) == [
        "::error title=edgebed mine%3A learned::accuracy 9%25 | a:%0A<guess>",
        "::warning title=edgebed mine%3A participation::device-0-1 was away",
    ]


def test_the_error_of_a_run_is_an_annotation() -> None:
    failed = SUMMARY | {"checks": [], "error": "no space left"}
    assert functions["annotate"](failed) == ["::error title=edgebed mine::no space left"]


def test_the_page_has_the_figures_and_a_row_for_each_check() -> None:
    page = functions["page"](SUMMARY)
    assert page.startswith("### ❌ edgebed mine: fail\n\nsim driver, 3 nodes, 2 rounds, 0.2 s, global accuracy 9.0%\n")
    assert "| ❌ | learned | accuracy 9% \\| a:<br>&lt;guess> |\n" in page
    assert page.count("\n| ") == 1 + len(SUMMARY["checks"])
    without = functions["page"](SUMMARY | {"seconds": None, "accuracy": {"global": None}})
    assert "sim driver, 3 nodes, 2 rounds\n" in without


def show(tmp_path: Path, result: Path) -> str:
    """The output of the script, run as the action runs it."""
    env = {"PATH": os.environ["PATH"], "GITHUB_STEP_SUMMARY": f"{tmp_path}/page", "GITHUB_OUTPUT": f"{tmp_path}/output"}
    done = subprocess.run([sys.executable, SCRIPT, result], env=env, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("text", [None, ""])
def test_a_run_without_result_is_an_error(tmp_path: Path, text: str | None) -> None:
    result = tmp_path / "result.json"
    if text is not None:
        result.write_text(text)
    assert show(tmp_path, result) == containing("::error title=edgebed::there is no result")


def test_the_summary_and_the_outputs_are_files_of_github(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    result.write_text(json.dumps(SUMMARY))
    assert show(tmp_path, result).count("::") == 4
    assert (tmp_path / "page").read_text() == functions["page"](SUMMARY)
    assert (tmp_path / "output").read_text() == "verdict=fail\nrun=/runs/mine-1\n"


def test_the_action_names_inputs_that_it_has_and_options_that_up_has() -> None:
    text = (ROOT / "action.yml").read_text()
    for name in ACTION["inputs"]:
        assert f"${{{{ inputs.{name} }}}}" in text
    up: Command = cli.commands["up"]
    assert {"--driver", "--junit", "--json"} <= {option for each in up.params for option in each.opts}


def program(folder: Path, name: str, script: str) -> None:
    """An executable shell script in the place of a program of the runner."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_the_key_of_the_cached_kernel_names_its_source_and_what_is_built(tmp_path: Path) -> None:
    """A newer source, another configuration or another change of the source needs another kernel."""
    program(tmp_path / "bin", "sudo", "true")
    program(tmp_path / "bin", "apt-cache", "echo 'Package: linux-source'; echo 'Version: 6.8.0-90.91'")
    program(tmp_path / "edgebed/bin", "python", f'exec {sys.executable} "$@"')
    env = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "EDGEBED_CACHE": f"{tmp_path}/cache",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": f"{tmp_path}/output",
    }
    subprocess.run([*SHELL, STEPS["Find the kernel of virtual time"]["run"]], env=env, cwd=tmp_path, check=True)
    outputs = dict(line.split("=") for line in (tmp_path / "output").read_text().splitlines())
    assert outputs == {
        "folder": f"{tmp_path}/cache/kernel",
        "key": f"edgebed-kernel-6.8.0-90.91-{fingerprint()}",
    }


def test_a_kernel_is_restored_or_built_only_for_the_driver_virtual() -> None:
    names = ("Find the kernel of virtual time", "Restore the kernel", "Build the kernel")
    for name in names:
        assert "inputs.driver == 'virtual'" in STEPS[name]["if"]
    restored = STEPS["Restore the kernel"]
    assert "steps.kernel.outputs.key" in restored["with"]["key"]
    assert f"steps.{restored['id']}.outputs.cache-hit != 'true'" in STEPS["Build the kernel"]["if"]
    packages = set(STEPS["Build the kernel"]["run"].split())
    assert set(INSTALL.split()) <= packages | {"apt-get", "install"}
    order = [name for name in STEPS if name in (*names, "Run the scenario")]
    assert order == [*names, "Run the scenario"]


@pytest.mark.slow
def test_the_steps_run_a_scenario(tmp_path: Path) -> None:
    """As GitHub runs them, with an edgebed that is installed already."""
    commands = tmp_path / "edgebed/bin"
    commands.mkdir(parents=True)
    (commands / "edgebed").symlink_to(Path(sys.executable).parent / "edgebed")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": f"{tmp_path}/page",
        "GITHUB_OUTPUT": f"{tmp_path}/output",
        "ACTION": str(ROOT),
        "SCENARIO": str(ROOT / "scenarios/smoke.yaml"),
        "DRIVER": "sim",
        "ARGUMENTS": "--set algorithm.rounds=3 --workers 1",
        "JUNIT": "reports/edgebed.xml",
    }
    for name in ("Run the scenario", "Show the result"):
        subprocess.run([*SHELL, STEPS[name]["run"]], env=env, cwd=tmp_path, check=True)
    assert "verdict=pass\n" in (tmp_path / "output").read_text()
    assert ", 3 rounds, " in (tmp_path / "page").read_text()
    assert (tmp_path / "reports/edgebed.xml").is_file()
