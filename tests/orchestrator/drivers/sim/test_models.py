"""Every algorithm with every kind of model: the plan refuses the pair in one sentence, or two clients finish two
rounds. The second round is that in which clients use what they learned from one another in the first."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from node.algorithms.registry import ALGORITHMS, Algorithm
from node.catalogue.datasets import Form
from node.catalogue.sizes import Size
from node.learning.errors import ModelError
from node.learning.models import measured
from node.plugins import with_plugins
from orchestrator.errors import PlanError, ScenarioError
from orchestrator.planning.learning import model_size
from orchestrator.results.traffic import volumes
from tests import user_models
from tests.orchestrator.drivers.sim.harness import Simulated, simulate

ROOT = Path(user_models.__file__).parents[1]
BASELINES = [
    f"edgebed.baselines.{each.stem}"
    for each in sorted(Path(import_module("edgebed.baselines").__path__[0]).glob("*.py"))
    if "PLUGIN" in each.read_text()
]
OF_BASELINES: dict[str, Algorithm] = {
    each.name: each for module in BASELINES for each in import_module(module).PLUGIN.algorithms
}
EVERY = {**ALGORITHMS, **OF_BASELINES}
TORCHVISION = "{name: torchvision, image_size: 32, architecture: %s}"
REPEATED = ["cnn", "resnet18", "transformer"]
"""Models of each kind of layer, which are trained twice to the same record."""
MODELS_TRIED = ["torchvision", *user_models.NAMES]
"""`cnn` and `mlp`, of the same layers as the user's, are the models of each algorithm's own tests."""
TENSORS_ALONE = [
    *("fedavg", "fedprox", "fednova", "hierfavg", "onlyedge", "edgecloud", "sdfeel", "scaffold"),
    *("fedasync", "fedbuff", "masked-sum", *(name for name in EVERY if name.startswith(("top-k-", "qsgd-")))),
]
ALIKE = [
    (TENSORS_ALONE, 10),
    (["feelpgen-minus", "feelpgen", "feelpgen-plus"], 3),
    (["fedavgm", "fedadam", "fedyogi"], 3),
    (["fedproto", "fedtgp", "fedgh", "feddistill"], 4),
    (["lgfedavg", "fedala", "fml", "fedkd"], 4),
    (["hpfl", "fedprox-h", "esperhfl", "phe-fl"], 2),
]
"""Algorithms that do the same with models: each is tried with one in so many of them, and together they have all."""
REFUSED = {
    "featured": {"maps", "whole"},
    "linear": {"maps", "whole", "two-layers", "no-bias", "fedfeat-cnn"},
    "whole": {"stays"},
}
TOPOLOGIES = {  # of two clients each
    ("required", "required"): "edges: 2, devices_per_edge: 1",
    ("required", "none"): "edges: 2, devices_per_edge: 0",
    ("optional", "optional"): "edges: 0, devices: 2",
}
SMALL = {  # less work, of the same kinds
    "fededs": "encryptor_width: 2, encryptor_epochs: 1, model_epochs: 1, epochs_max: 2",
    **dict.fromkeys(["feelpgen-minus", "feelpgen", "feelpgen-plus"], "inner_rounds: 1, generator_steps: 2"),
    "dffke": "first_epochs: 1, epochs: 1, docking_epochs: 1, decoder_epochs: 1, width: 4",
    "fedgen": "generator_steps: 2",
}
QUICK = {"fedavg": ["frozen", "unused"], "scaffold": ["frozen-head", "stays"], "fedala": ["unused"]} | {
    "fednova": ["stays"],
    "fededs": ["two-layers", "whole"],
    "feelpgen": ["two-layers", "frozen-head", "stays"],
    "fedgen": ["transformer", "maps"],
}


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures of 16x16, which every model takes, of three classes."""
    monkeypatch.setenv("EDGEBED_CACHE", str(tmp_path / "cache"))  # other tests never use this file
    random, path = np.random.default_rng(1), tmp_path / "pictures.npz"
    arrays: dict[str, Any] = {
        f"x_{part}": random.integers(0, 256, (45, 16, 16), np.uint8) for part in ("train", "test")
    }
    np.savez(path, **arrays, y_train=np.arange(45) % 3, y_test=np.arange(45) % 3)
    return path


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure plug-ins' models here. A process for each would import torch."""

    def here(plugins: Any, model: str, params: str, form: Form) -> Size:
        try:
            return measured(with_plugins(plugins).models[model], form, json.loads(params))
        except ModelError as error:
            raise PlanError(model_size.MODEL, str(error).removeprefix("model ")) from None

    monkeypatch.setattr(model_size, "measured", here)


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Texts of two authors, whose next characters are the labels."""
    monkeypatch.setenv("EDGEBED_CACHE", str(tmp_path / "cache"))
    (tmp_path / "texts").mkdir()
    for author, words in (("a", "to be or not to be "), ("b", "so it goes and so it went ")):
        (tmp_path / "texts" / f"{author}.txt").write_text(words * 60)
    return f"text:{tmp_path / 'texts'}"


def check_adapters(tmp_path: Path, texts: str, algorithm: Algorithm) -> None:
    """A model of tokens with a frozen base and adapters: the plan refuses it in one sentence, or it trains."""
    lora = "lora: {rank: 2, alpha: 4, targets: [query, classifier]}"
    model = f"{{name: char-transformer, layers: 1, width: 8, {lora}}}"
    refused = any(getattr(algorithm, need) for need in ("featured", "whole", "floats"))
    try:
        personal = ("--set", "data.personalisation=50%") if algorithm.personalises else ()
        done = run(tmp_path, texts, algorithm, model, "--set", "data.samples_per_client=10", *personal)
        found = "finished" if (done.code, done.summary["rounds"]) == (0, 2) else done.errors
    except ScenarioError as error:
        one = f"{algorithm.name} needs " in str(error) and "\n" not in str(error)
        found = "refused" if one else str(error)
    assert found == ("refused" if refused else "finished"), algorithm.name


ADAPTED = ("fedprox", "scaffold", "feddistill")  # each time


def wraps(name: str) -> bool:
    """Whether an algorithm compresses the tensors of another one, but for one of each kind."""
    return name.startswith(("top-k-", "qsgd-")) and name not in ("top-k-hierfavg", "qsgd-fedavg")


def test_tied_weights_and_a_mask(tmp_path: Path, texts: str) -> None:
    done = run(tmp_path, texts, EVERY["scaffold"], "tied", "--set", "data.samples_per_client=10")
    assert (done.code, done.summary["rounds"]) == (0, 2), done.errors


class CausalLM(torch.nn.Module):
    """What a causal language model of transformers has, with tied weights, on bytes as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens, self.lm_head = torch.nn.Embedding(128, 8), torch.nn.Linear(8, 128, bias=False)
        self.q_proj, self.v_proj = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, input_ids: torch.Tensor, *, use_cache: bool) -> Any:
        x = self.embed_tokens(input_ids)
        return SimpleNamespace(logits=self.lm_head(self.v_proj(x) * self.q_proj(x)))


def test_the_guides_model_of_transformers(tmp_path: Path, texts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plug-in and its scenario, with a stand-in for transformers, which CI does not install."""
    page = (ROOT / "docs/guides/language-models.md").read_text()
    (code,) = re.findall(r"\(`causal.py`\).*?^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (scenario,) = re.findall(r"^```yaml\n(plugins.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "causal.py").write_text(code)

    def tokenizer(folder: Path, *, local_files_only: bool) -> Any:
        return lambda text: {"input_ids": list(text.encode())}

    def model(folder: Path, *, local_files_only: bool, dtype: torch.dtype) -> CausalLM:
        return CausalLM().to(dtype)

    stand_in: Any = ModuleType("transformers")
    stand_in.AutoTokenizer, stand_in.AutoModelForCausalLM = (
        SimpleNamespace(from_pretrained=f) for f in (tokenizer, model)
    )
    monkeypatch.setitem(sys.modules, "transformers", stand_in)
    small = ("topology.devices=2", "algorithm.rounds=2", "model.lora.rank=2")
    done = simulate(tmp_path, scenario, *(word for each in small for word in ("--set", each)))
    assert (done.code, done.summary["rounds"]) == (0, 2), done.errors
    assert json.loads((done.directory / "plan.json").read_text())["data"]["classes"] == ord("w") + 1


def test_adapters_of_a_clients_own_rank_travel_to_the_byte(tmp_path: Path, texts: str) -> None:
    lora = "lora: {rank: 2, alpha: 4, targets: [query], ranks: {raspberry-pi-4: 1, jetson-nano: 8}}"
    model = f"{{name: char-transformer, layers: 3, width: 16, {lora}}}"
    hardware = "hardware={device-0: raspberry-pi-4, device-1: jetson-nano}"
    options = ("--set", hardware, "--set", "data.samples_per_client=10", "--set", "compute.precision=bf16")
    done = run(tmp_path, texts, EVERY["flexlora"], model, *options)
    assert (done.code, done.summary["rounds"]) == (0, 2), done.errors
    with done.history() as history:
        sent = {(row.node, row.peer): row.bytes for row in volumes.traffic(history) if row.direction == "sent"}
    more = 2 * 3 * (8 - 1) * (16 + 16) * 2  # rounds, layers, ranks, d_in + d_out, bytes of a value
    for a, b in ((("cloud", "device-0"), ("cloud", "device-1")), (("device-0", "cloud"), ("device-1", "cloud"))):
        assert 0 <= sent[b] - sent[a] - more < 16  # the header has the shapes: a digit may take another byte


@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_models_of_floats_refuse_tokens(tmp_path: Path, texts: str, model: str) -> None:
    with pytest.raises(ScenarioError, match="integer tokens: take char-trans"):
        run(tmp_path, texts, EVERY["fedavg"], model)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each not in ADAPTED)) for each in EVERY if not wraps(each)]
)
def test_every_algorithm_with_adapters_of_a_model_of_tokens(tmp_path: Path, texts: str, name: str) -> None:
    check_adapters(tmp_path, texts, EVERY[name])


def run(tmp_path: Path, data: Path | str, algorithm: Algorithm, model: str, *arguments: str) -> Simulated:
    topology = TOPOLOGIES[algorithm.edges, algorithm.devices]
    plugins = [module for module in BASELINES if algorithm.name in OF_BASELINES]
    params = TORCHVISION % "squeezenet-1.1" if model == "torchvision" else model
    small, dataset = SMALL.get(algorithm.name, ""), data if isinstance(data, str) else f"npz:{data}"
    text = f"""\
plugins: [{", ".join([*plugins, user_models.__file__])}]
algorithm: {{name: {algorithm.name}, rounds: 2{small and f", {small}"}}}
data: {{dataset: "{dataset}", partition: iid, samples_per_client: 18, evaluate_samples: 9}}
model: {params}
topology: {{{topology}, cloud: {str(algorithm.cloud != "none").lower()}}}
"""
    return simulate(tmp_path, text, *arguments)


def check(tmp_path: Path, pictures: Path, algorithm: Algorithm, model: str) -> None:
    refused = any(getattr(algorithm, need) and model in models for need, models in REFUSED.items())
    try:
        done = run(tmp_path, pictures, algorithm, model)
        found = "finished" if (done.code, done.summary["rounds"]) == (0, 2) else done.errors
    except ScenarioError as error:
        sentence = str(error).partition("model: ")[2]
        one = sentence.startswith(f"{algorithm.name} needs ") and f"which {model} lacks: take cnn, " in sentence
        found = "refused" if one and "\n" not in sentence else str(error)
    assert found == ("refused" if refused else "finished"), f"{algorithm.name} with {model}"


@pytest.mark.parametrize("name", QUICK)
def test_pairs_that_differ_most(tmp_path: Path, pictures: Path, name: str) -> None:
    for model in QUICK[name]:
        check(tmp_path, pictures, EVERY[name], model)


def tried(name: str) -> list[str]:
    if EVERY[name].ranked:  # its models have adapters
        return []
    for names, number in ALIKE:
        if name in names:
            return MODELS_TRIED[names.index(name) % number :: number]
    return MODELS_TRIED


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_the_matrix_of_algorithms_and_models(tmp_path: Path, pictures: Path, name: str) -> None:
    for model in tried(name):
        check(tmp_path, pictures, EVERY[name], model)


def test_a_model_with_nothing_to_train_is_refused(tmp_path: Path, pictures: Path) -> None:
    with pytest.raises(ScenarioError, match=r"model: untrainable has no.*requires_grad"):
        run(tmp_path, pictures, ALGORITHMS["fedavg"], "untrainable")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "fededs"])
def test_dropout_gives_one_record_on_any_number_of_workers(tmp_path: Path, pictures: Path, algorithm: str) -> None:
    """The transformer draws from the generators of torch, numpy and Python in each pass of training."""
    settings = [("--workers", "1"), ("--workers", "2"), ("--workers", "2", "--set", "compute.clients_at_once=4")]
    records = [run(tmp_path, pictures, EVERY[algorithm], "transformer", *each).record() for each in settings]
    assert records[0] == records[1]
    same = [[row for row in record["metric"] if "loss" in row] for record in (records[0], records[2])]
    assert same[0] == same[1]
    assert len(same[0]) >= 6


def digests(folder: Path, pictures: Path, workers: str) -> dict[str, str]:
    """A digest of the record of one round with each of these models."""
    found = {}
    for model in REPEATED:
        arguments = ("--set", "algorithm.rounds=1", "--workers", workers)
        record = run(folder, pictures, EVERY["fedavg"], model, *arguments).record()
        found[model] = hashlib.sha256(repr(record).encode()).hexdigest()
    return found


@pytest.mark.slow
def test_models_give_one_record_in_a_fresh_process(tmp_path: Path, pictures: Path) -> None:
    code = "import json, sys; from pathlib import Path; from tests.orchestrator.drivers.sim.test_models import digests;"
    code += "print(json.dumps(digests(Path(sys.argv[1]), Path(sys.argv[2]), '2')))"
    argv, environment = [sys.executable, "-c", code, str(tmp_path), str(pictures)], os.environ | {"PYTHONHASHSEED": "2"}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    assert json.loads(done.stdout.splitlines()[-1]) == digests(tmp_path, pictures, "1")
