"""CONTRIBUTING.md stays true: its worked examples run, and the files that it names are there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES = ("netem", "node", "orchestrator")
BLOCK = re.compile(r"^`(\S+)`, (a new file|above|at the end of)(?: `(\w+)`)?:\n\n```python\n(.*?)^```", re.M | re.S)
EXAMPLES = ("Add an algorithm", "Add a model")
CARRIED_OUT = (*EXAMPLES, "Add a data set")


def section(title: str) -> str:
    (text,) = re.findall(rf"^## {title}.*?\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return str(text)


def change(text: str, where: str, name: str, code: str) -> str:
    """A module's text with the code put where the page says."""
    before, start, after = text.partition(f"\n{name}: Mapping[")
    assert start, f"there is no {name}"
    if where == "above":
        return f"{before}\n{code}\n{start}{after}"
    entries, end, rest = after.partition("\n)\n")
    assert end, f"{name} ends otherwise than expected"
    return f"{before}{start}{entries}\n{code.rstrip()}{end}{rest}"


def carry_out(title: str, tree: Path) -> None:
    blocks = BLOCK.findall(section(title))
    assert blocks
    for path, where, name, code in blocks:
        file = tree / path
        if where == "a new file":
            assert not file.exists()
            file.write_text(code)
        else:
            file.write_text(change(file.read_text(), where, name, code))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the packages."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("title", EXAMPLES)
def test_a_worked_example_runs(tree: Path, title: str) -> None:
    carry_out(title, tree)
    (scenario,) = re.findall(r"^```yaml\n(.*?)^```", section(title), re.M | re.S)
    (tree / "example.yaml").write_text(scenario)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "up", "example.yaml", "--driver", "sim", "--workers", "1", "--json"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["rounds"], summary["error"]) == (3, None)
    assert summary["accuracy"]["global"] > 0.3  # ten classes: guessing gives 0.1


@pytest.mark.parametrize("title", CARRIED_OUT)
def test_a_worked_example_is_good_code(tree: Path, title: str) -> None:
    carry_out(title, tree)
    shutil.copy(ROOT / "pyproject.toml", tree)
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "node"],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"`((?:netem|node|orchestrator|tests)/[\w./]+)`", PAGE)) - {"node/algorithms/median.py"}
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_hooks_before_a_commit_are_those_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in hooks] == ["local"]
    entries = [hook["entry"].split()[0] for repository in hooks for hook in repository["hooks"]]
    lint = re.findall(r"^lint: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[0]
    assert entries == [line.split()[0].replace("$(BIN)", ".venv/bin") for line in lint.splitlines()]
