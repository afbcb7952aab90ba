"""`edgebed kernel`, and the option that boots it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.drivers.virtual import kernel
from orchestrator.drivers.virtual.kernel import BUILD
from orchestrator.errors import HostError
from tests.orchestrator.cli.test_main import SCENARIO, verb

BUILT = Path("/cache/kernel/6.12-0123/linux")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(tell: Callable[[str], object]) -> Path:
        tell("building")
        return BUILT

    monkeypatch.setattr(kernel, "needed_kernel", lambda: BUILT)
    monkeypatch.setattr(kernel, "build", build)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("words", ["kernel", "kernel build"])
def test_the_path_of_the_kernel_is_printed(words: str) -> None:
    shown = verb(*words.split())
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, str(BUILT))
    assert json.loads(verb(*words.split(), "--json").stdout) == {"kernel": str(BUILT)}


@pytest.mark.usefixtures("built")
def test_json_belongs_after_the_name_of_the_command() -> None:
    refused = verb("kernel", "--json", "build")
    assert refused.exit_code == 2
    assert "--json after build" in refused.stderr


def test_without_a_kernel_its_build_is_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "PACKAGE", "no_such_package_of_a_kernel")
    monkeypatch.setenv("EDGEBED_CACHE", str(tmp_path))
    error = verb("kernel").exception
    assert isinstance(error, HostError)
    assert error.commands == (BUILD,)


def test_virtual_is_a_driver(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text(SCENARIO)
    plans = [verb("plan", scenario, *option, "--json").output for option in (["--virtual"], ["--driver", "virtual"])]
    assert json.loads(plans[0])["driver"] == "virtual"
    assert plans[0] == plans[1]
