"""`list`: every name that a scenario may use is there, with its values."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from click.testing import CliRunner

from netem import library
from netem.media.library import MEDIA
from node.algorithms.registry import ALGORITHMS
from node.catalogue.datasets import DATASET_PATHS, DATASETS
from node.catalogue.models import MODEL_GROUPS, MODELS
from orchestrator.cli.catalogue import KINDS
from orchestrator.cli.main import cli
from orchestrator.errors import HostError
from orchestrator.layout import PROSE
from orchestrator.results.checks.registry import CHECKS
from orchestrator.scenario.sections import hardware
from orchestrator.verbs import catalogue
from orchestrator.verbs.catalogue import entries

NAMES: dict[str, list[str]] = {
    "algorithms": list(ALGORITHMS),
    "baselines": [
        *(f"{kind}-{base}" for kind in ("top-k", "qsgd") for base in ("fedavg", "fedprox", "fednova", "hierfavg")),
        *("fedala", "fedasync", "fedbuff", "feddistill", "fedgen", "fedgh", "fedkd", "fedavgm", "fedadam", "fedyogi"),
        *("fedproto", "fedtgp", "fml", "fedprox-h", "hpfl", "esperhfl", "lgfedavg", "masked-sum", "scaffold", "sdfeel"),
    ],
    "models": [*MODELS, *MODEL_GROUPS],
    "datasets": [*DATASETS, *(f"{form}PATH" for form in DATASET_PATHS)],
    "profiles": list(library.PROFILES),
    "media": list(MEDIA),
    "hardware": list(hardware.HARDWARE),
    "checks": list(CHECKS),
}


def listed(kind: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in entries(kind)}


def test_the_kinds_of_the_command_are_those_that_can_be_listed() -> None:
    assert list(KINDS) == list(catalogue.KINDS) == list(NAMES)


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_is_listed_and_printed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each["name"] for each in entries(kind)] == NAMES[kind]
    assert all(each[next(reversed(each))] or kind == "models" for each in entries(kind))
    assert json.loads(CliRunner().invoke(cli, ["list", kind, "--json"]).output) == {kind: entries(kind)}
    monkeypatch.setenv("COLUMNS", "120")
    table = CliRunner().invoke(cli, ["list", kind]).output
    assert [name for name in NAMES[kind] if f"\n{name} " not in table] == []


def test_values_are_written_as_in_a_scenario() -> None:
    lte = listed("profiles")["lte-up"]
    assert (lte["latency"], lte["jitter"], lte["rate"]) == ("10.5ms", "3ms", "7.6mbit")
    assert "Ofcom" in lte["source"]
    board = listed("hardware")["raspberry-pi-4"]
    assert (board["speed"], board["cores"], board["memory"]) == (0.16, 4, "4gib")
    assert listed("algorithms")["fedprox"]["parameters"] == {"participation": 1.0, "mu": 0.1}
    yogi = listed("baselines")["fedyogi"]
    assert (yogi["plugins"], yogi["parameters"]["beta2"]) == ("edgebed.baselines.fedopt", 0.99)
    assert listed("algorithms")["onlyedge"]["tiers"] == "(cloud), edges, devices"
    assert listed("datasets")["mnist"]["sample"] == "1x28x28"


def test_baselines_need_the_extra_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        if name == "edgebed.baselines.feddistill":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return import_module(name)

    monkeypatch.setattr(catalogue, "import_module", missing)
    with pytest.raises(HostError, match=r"list of baselines needs PyTorch: .*learning"):
        entries("baselines")


def test_every_profile_and_every_class_has_its_source() -> None:
    assert {name.removesuffix("-up") for name in library.PROFILES} == set(library.SOURCES)
    assert set(hardware.HARDWARE) == set(hardware.SOURCES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_in_a_pipe_is_as_wide_as_a_page(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    printed = CliRunner().invoke(cli, ["list", kind]).output
    assert max(map(len, printed.splitlines())) <= PROSE
