"""FedGen: its equations by hand, its rounds, and its reduction to FedAvg."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from edgebed import LocalTraining, MiniBatch, Model, State, state_of
from edgebed.baselines import fedgen
from edgebed.baselines.fedgen import (
    NOISE,
    Distilled,
    FedGen,
    alikeness,
    distilled,
    distilled_work,
    distribution,
    ensemble_loss,
    loaded,
    new_generator,
    shares_of_clients,
    train_generator,
)
from edgebed.testing import Federation, federation, star
from node.parameters import read_parameters
from node.testing import VirtualCompute
from tests.edgebed.baselines.harness import equal

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16, "evaluate_samples": 100}
SLOW = LOCAL | {"learning_rate": 0.02, "epochs": 4, "generator_steps": 10}  # its loss diverges at large learning rates
NOTHING: dict[str, Any] = {"generated_factor": 0.0, "agreement_factor": 0.0, "generator_steps": 2}


def constant(*z: float) -> State:
    """A generator for two labels that gives these features whatever it is asked for."""
    generator = state_of(new_generator(2, len(z), hidden=3))
    zeros = {name: np.zeros_like(generator[name]) for name in ("layers.3.weight",)}
    return generator | zeros | {"layers.3.bias": np.array(z, np.float32)}


def head(weight: list[list[float]]) -> Model:
    """A model whose inputs are its features, and whose classifier has no bias."""
    linear = nn.Linear(len(weight[0]), len(weight), bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(weight))
    return Model(nn.Identity(), linear)


def cloud_learner() -> Any:
    """What `train_generator` needs of a learner. The weights of its model do not matter."""
    return SimpleNamespace(
        model=head([[0, 0], [0, 0]]), random=lambda *_: np.random.default_rng(1), device=torch.device("cpu")
    )


def test_weights_worked_example() -> None:
    """Of label 0 the clients have 3 and 1, of label 1 none and 2: p̂ = (4, 2) / 6. Nobody has label 2."""
    counts = np.array([[3, 0, 0], [1, 2, 0]])
    assert shares_of_clients(counts).tolist() == [[0.75, 0, 0], [0.25, 1, 0]]
    assert distribution(counts).tolist() == pytest.approx([2 / 3, 1 / 3, 0])


def test_the_ensembles_loss_worked_example() -> None:
    """Label 0: logits (ln 3, 0) and (0, 0) say 3/4 and 1/2, weighted by 3/4 and 1/4. Label 1: the first client has none
    of it, and the second's logits (0, ln 3) say 3/4. The mean logits (ln √3, 0) and (ln 9, ln √3) say √3 / (1 + √3) and
    √3 / (9 + √3)."""
    ln3 = math.log(3)
    logits = torch.tensor([[[ln3, 0.0], [4 * ln3, 0.0]], [[0.0, 0.0], [0.0, ln3]]])
    y, shares = torch.tensor([0, 1]), torch.tensor([[0.75, 0.0], [0.25, 1.0]])
    weighted = (0.75 * math.log(4 / 3) + 0.25 * math.log(2) + math.log(4 / 3)) / 2
    assert ensemble_loss(logits, y, shares).item() == pytest.approx(weighted)
    root = math.sqrt(3)
    even = -(math.log(root / (1 + root)) + math.log(root / (9 + root))) / 2
    assert ensemble_loss(logits, y, None).item() == pytest.approx(even)


def test_diversity_worked_example() -> None:
    """Noise (0, 0) and (2, 0) is (4 + 0) / 2 = 2 apart, features (0) and (3) are 3 apart. Of the four pairs two are of
    one sample with itself: exp(-(2 * 3 + 2 * 3) / 4)."""
    noise, z = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([[0.0], [3.0]])
    assert alikeness(noise, z).item() == pytest.approx(math.exp(-3))
    assert alikeness(noise, torch.ones(2, 1)).item() == 1


def test_the_generator_worked_example() -> None:
    """Hidden units: the sum of the noise, 2, plus the weight 3 or 5 of the label, normalised by mean 3 and variance 4:
    1 and 2. The feature is three times that plus 0.5. The authors' generator for MNIST has (32 + 10 + 1) 256
    parameters, 2 x 256 of the norm, and (256 + 1) 32."""
    generator = new_generator(2, 1, hidden=1).eval()
    weight = torch.cat([torch.ones(1, NOISE), torch.tensor([[3.0, 5.0]])], dim=1)
    statistics = {"layers.1.running_mean": torch.tensor([3.0]), "layers.1.running_var": torch.tensor([4.0 - 1e-5])}
    output = {"layers.3.weight": torch.tensor([[3.0]]), "layers.3.bias": torch.tensor([0.5])}
    state = generator.state_dict() | statistics | output
    generator.load_state_dict(state | {"layers.0.weight": weight, "layers.0.bias": torch.zeros(1)})
    found = generator(torch.full((2, NOISE), 2 / NOISE), torch.tensor([0, 1]))
    torch.testing.assert_close(found, torch.tensor([[3.5], [6.5]]))
    parameters = new_generator(10, 32, hidden=256).parameters()
    assert sum(each.numel() for each in parameters) == 43 * 256 + 2 * 256 + 257 * 32


def test_a_generator_follows_its_seed_and_leaves_torchs_random_numbers_alone() -> None:
    before = torch.random.get_rng_state()
    first, again, other = (state_of(new_generator(3, 4, 8, seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert equal(first, again)
    assert not equal(first, other)
    assert equal(state_of(loaded(first)), first)


@pytest.mark.parametrize(("teacher", "sign"), [("losses", -1), ("logits", 1)])
def test_a_step_of_the_generator_worked_example(teacher: str, sign: int) -> None:
    """z = 0, so each client says 1/2, and ∂ℓ/∂z = Wᵀ(−½, ½) for label 0, the only one. W = 1 of the client with 1 of 4
    samples, −½ of the other. Weighted losses: ¼ (−½, ½) + ¾ (¼, −¼) = (1/16, −1/16). Mean logits, with W = ¼:
    (−⅛, ⅛). Adam's first step is the learning rate against the sign."""
    models = [{"classifier.weight": (scale * np.eye(2)).astype(np.float32)} for scale in (1, -0.5)]
    learner = cloud_learner()
    params = FedGen(generator_steps=1, generator_learning_rate=0.5, generator_decay=0.1, generator_teacher=teacher)
    found = train_generator(learner, constant(0, 0), models, np.array([[1, 0], [3, 0]]), params, 2)
    np.testing.assert_allclose(found["layers.3.bias"], [sign * 0.05, -sign * 0.05], rtol=1e-5)


def test_a_generator_learns_from_those_who_have_a_label() -> None:
    """Each client's classifier is right about the label that it has, and takes everything for it."""
    models = [{"classifier.weight": np.array(each, np.float32)} for each in ([[2, 0], [-2, 0]], [[0, -2], [0, 2]])]
    learner = cloud_learner()
    params = FedGen(generator_steps=60, generator_learning_rate=0.02, generated_batch=16)
    first = state_of(new_generator(2, 2, 8, seed=1))
    state = train_generator(learner, first, models, np.array([[5, 0], [0, 5]]), params, 1)
    generator, noise = loaded(state).eval(), torch.rand(100, NOISE, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        zero, one = (generator(noise, torch.full((100,), y)) for y in (0, 1))
    assert (zero[:, 0] > 0.5).all()
    assert (one[:, 1] > 0.5).all()
    assert zero.std(dim=0).max() > 0.01


def test_a_clients_terms_worked_example() -> None:
    """z = (1, 0) and h(z) = (ln 3, 0), so softmax says (3/4, 1/4). All labels y* are 1: ℓ = ln 4. h(x) = (0, 0) says
    (1/2, 1/2): KL = 3/4 ln 3/2 + 1/4 ln 1/2. The gradient of the first term is (3/4, 1/4 − 1) zᵀ. h(z) in KL has none,
    and x has that of q − p = (−1/4, 1/4)."""
    model = head([[math.log(3), 0], [0, 0]])
    logits = torch.zeros(3, 2, requires_grad=True)
    batch = MiniBatch(torch.zeros(3, 2), torch.tensor([0, 1, 0]), logits)
    term = Distilled(constant(1, 0), np.array([0, 1], np.float32), weight=0.5, agreement=2.0, batch=4, seed=1)
    loss = term(model, batch)
    divergence = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert loss.item() == pytest.approx(0.5 * math.log(4) + 2 * divergence)
    weight, x = torch.autograd.grad(loss, [model.get_parameter("classifier.weight"), logits])
    torch.testing.assert_close(weight, 0.5 * torch.tensor([[0.75, 0], [-0.75, 0]]))
    torch.testing.assert_close(x, 2 * torch.tensor([[-0.25, 0.25]]).repeat(3, 1) / 3)
    alone = Distilled(constant(1, 0), np.array([0, 1], np.float32), weight=0.5, agreement=0.0, batch=4, seed=1)
    assert alone(model, batch).item() == pytest.approx(0.5 * math.log(4))


def test_the_factors_worked_example() -> None:
    """Round 3: 10 · 0.98² = 9.604, times 32 / 16 for the generated samples."""
    labels = np.array([0.5, 0.5], np.float32)
    term = distilled({}, labels, FedGen(batch_size=16), 3, 1)
    assert term is not None
    assert [term.weight, term.agreement] == pytest.approx([19.208, 9.604])
    paper = distilled({}, labels, read_parameters(FedGen, {"profile": "paper"}), 3, 1)
    assert paper is not None
    assert (paper.weight, paper.agreement) == (1, 0)
    assert distilled({}, labels, FedGen(**NOTHING), 3, 1) is None
    assert distilled({}, 0 * labels, FedGen(), 1, 1) is None


def pair(folder: Path, rounds: int, **params: Any) -> tuple[Federation, Federation]:
    """FedGen, and FedAvg on the same data."""
    given = LOCAL | params
    found = federation(folder, "edgebed.baselines.fedgen", "fedgen", star(3), params=given, rounds=rounds, model="cnn")
    other, parts = folder / "avg", found.run().partition
    params_of_avg = LocalTraining(**LOCAL)
    avg = Federation(found.data, star(3), "fedavg", params_of_avg, other, partition=parts, rounds=rounds, model="cnn")
    return found, avg.run()


def model_of(run: Federation) -> State:
    state = run.state("cloud")
    return {name.removeprefix("model/"): each for name, each in state.items() if name.startswith("model/")}


@pytest.mark.parametrize(("rounds", "params"), [(3, NOTHING), (1, {})])
def test_without_factors_and_in_the_first_round_it_is_fedavg(
    tmp_path: Path, rounds: int, params: dict[str, Any]
) -> None:
    found, avg = pair(tmp_path, rounds, **params)
    assert equal(model_of(found), avg.state("cloud"))
    first = fedgen.initial_generator(found.roles["cloud"].learner, 256, found.roles["cloud"].seed("generator"))
    assert not np.array_equal(found.state("cloud")["generator/layers.3.weight"], first["layers.3.weight"])


def test_later_rounds_differ_and_learn(tmp_path: Path) -> None:
    found, avg = pair(tmp_path, 3)
    assert not equal(model_of(found), avg.state("cloud"))
    counts = np.bincount(found.data.train_labels, minlength=10)
    np.testing.assert_allclose(found.state("cloud")["labels"], counts / counts.sum(), atol=0.1)


def test_a_crash_of_the_cloud_changes_nothing(tmp_path: Path) -> None:
    """It goes on with the generator and the labels that it kept. A round takes about 1.2 s."""
    edges = star(2, "edge")
    plain, crashed = (
        federation(
            tmp_path / name, "edgebed.baselines.fedgen", "fedgen", edges, params=SLOW, rounds=6, crash=crash
        ).run()
        for name, crash in (("plain", {}), ("crashed", {"cloud": (2.8, 3.1)}))
    )
    assert crashed.journals["cloud"].rounds("resumed") == [2]
    assert equal(crashed.state("cloud"), plain.state("cloud"))
    assert plain.journals["cloud"].series("global")[6] > 0.6


def test_the_parameters_of_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs/papers/baselines.md").read_text()
    table = page.partition("\n## With a generator of features\n")[2].partition("\n## ")[0]
    own = {each.name for each in fields(LocalTraining)}
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([\w.]+)`? \|", table, re.MULTILINE))
    defaults = {each.name: each.default for each in fields(FedGen) if each.name not in own}
    assert rows == {name: each if isinstance(each, str) else f"{each:g}" for name, each in defaults.items()}


def test_the_clients_terms_take_time_on_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second round on, when the generator is trained, a client's 120 samples take as much longer as the terms
    need."""
    samples: list[int] = []
    compute = VirtualCompute.run

    async def noting(clock: VirtualCompute, fn: Any, args: Any, count: int, mode: Any) -> Any:
        samples.extend([count] if fn.fn.__name__ == "train" else [])
        return await compute(clock, fn, args, count, mode)

    monkeypatch.setattr(VirtualCompute, "run", noting)
    run = federation(
        tmp_path, "edgebed.baselines.fedgen", "fedgen", star(1), samples=120, params=LOCAL, rounds=3, model="mlp"
    ).run()
    beside = distilled_work(run.roles["device-0"].learner, cast(FedGen, run.params))
    assert beside > 0.1
    assert samples == [120, *[math.ceil(120 * (1 + beside))] * 2]


def test_classes_that_the_model_excludes_do_not_diverge() -> None:
    """KL of (1/4, 3/4) and (1/2, 1/2), with a third class that both exclude; torch alone computes NaN."""
    logits, target = torch.tensor([[2.0, 2.0, -math.inf]]), torch.tensor([[0.25, 0.75, 0.0]])
    expected = math.log(2) + 0.25 * math.log(0.25) + 0.75 * math.log(0.75)
    assert fedgen.divergence(logits, target).item() == pytest.approx(expected)
