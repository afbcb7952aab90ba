from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.scenario.schema import json_schema
from orchestrator.scenario.sections.alternatives import listed
from orchestrator.scenario.sections.drivers import DRIVERS, kind_of

ROOT = Path(__file__).parents[4]


def compared(path: Path) -> Iterator[str]:
    """Where a file compares something with the name of a driver."""
    for found in ast.walk(ast.parse(path.read_text())):
        operands = [found.left, *found.comparators] if isinstance(found, ast.Compare) else []
        operands += [found.value] if isinstance(found, ast.MatchValue) else []
        if operands:
            parts = [part for each in operands for part in getattr(each, "elts", [each])]
            words = {part.value for part in parts if isinstance(part, ast.Constant)}
            if words & DRIVERS.keys():
                yield f"{path.relative_to(ROOT)}:{operands[0].lineno}"


def test_no_module_outside_of_the_drivers_compares_their_names() -> None:
    files = [path for path in (ROOT / "orchestrator").rglob("*.py") if "drivers" not in path.relative_to(ROOT).parts]
    assert len(files) > 100
    assert [place for path in files for place in compared(path)] == []


def test_a_comparison_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.orchestrator.scenario.sections.test_drivers.ROOT", tmp_path)
    file = tmp_path / "guilty.py"
    file.write_text(
        'a = driver == "sim"\nb = driver in ("docker", "other")\nmatch driver:\n    case "namespaces": ...\n'
    )
    assert list(compared(file)) == ["guilty.py:1", "guilty.py:2", "guilty.py:4"]


def test_every_driver_may_be_named_and_has_a_module() -> None:
    assert json_schema()["properties"]["driver"]["enum"] == list(DRIVERS)
    for name, kind in DRIVERS.items():
        assert kind.name == name
        importlib.import_module(kind.module)


def test_the_drivers_that_can_something() -> None:
    assert (listed(simulated=True), listed(images=True)) == ("sim", "docker or swarm")
    assert (listed(programs=True), listed(several_hosts=True)) == (
        "namespaces or docker or swarm or virtual",
        "swarm or slurm or kubernetes",
    )


def test_an_unknown_driver_can_do_nothing() -> None:
    assert kind_of("sim") is DRIVERS["sim"]
    unknown = kind_of("of another version")
    assert (unknown.simulated, unknown.images, unknown.several_hosts) == (False, False, False)
