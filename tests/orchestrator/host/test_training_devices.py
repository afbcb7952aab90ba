"""Trials of devices, and what is told of them. No test needs a GPU: the trial then says that there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import HostError
from orchestrator.host.training_devices import missing_here, notes, refusals, trial_results, tried_here
from tests.texts import containing

NODES = {"cuda": ["edge-0"], "cuda:1": ["edge-1", "edge-2"]}
FOUND = {"cuda": {"name": "Tesla T4"}, "cuda:1": {"problem": "there is 1 GPU"}}
GPU = torch.cuda.is_available()


@pytest.mark.slow
def test_the_processor_can_be_trained_on() -> None:
    assert tried_here("cpu") == {"name": "cpu"}


@pytest.mark.slow
def test_a_gpu_has_a_name_or_a_problem() -> None:
    found = tried_here("cuda")
    assert found.keys() == ({"name"} if GPU else {"problem"})
    if torch.version.cuda is None and torch.version.hip is None:
        assert found["problem"] == containing(f"torch {torch.__version__} is a build")


def test_a_device_that_does_not_work_is_refused_in_a_sentence() -> None:
    (error,) = refusals(NODES, FOUND)
    assert error.what == containing("edge-1, edge-2 train on cuda:1", "there is 1 GPU")
    assert error.remedy.endswith("train on the processor: compute.device: cpu")
    assert missing_here({"cpu": ["edge-0"]}) == []


def test_the_record_has_the_names_of_gpus() -> None:
    assert notes({"cuda": ["edge-0"]}, FOUND) == ["edge-0 trains on cuda, Tesla T4"]


def test_a_trial_that_says_nothing_is_an_error_with_its_last_line() -> None:
    assert trial_results('warning: slow\n{"cuda": {"name": "Tesla T4"}}\n', "") == {"cuda": {"name": "Tesla T4"}}
    with pytest.raises(HostError, match=r"not be tried: ModuleNotFoundError.*'torch'"):
        trial_results("", "Traceback ...\nModuleNotFoundError: No module named 'torch'\n")
    with pytest.raises(HostError, match="it printed nothing"):
        trial_results("", "")


@pytest.mark.skipif(GPU, reason="this host has a GPU")
@pytest.mark.parametrize("driver", ["sim", "namespaces"])
def test_without_a_gpu_nothing_is_made(driver: str, tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text("algorithm: {name: fedavg, rounds: 1}\nmodel: mlp\ntopology: {edges: 0, devices: 2}\n")
    runs = tmp_path / "runs"
    words = ["up", str(scenario), "--driver", driver, "--device", "cuda", "--runs", str(runs)]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, HostError)
    assert "cloud, device-0, device-1 train on cuda, and " in str(done.exception)
    assert not runs.exists()
