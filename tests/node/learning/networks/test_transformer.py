"""The transformer of characters: what it sees, what it costs, and that it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from node.catalogue.datasets import Form
from node.catalogue.models import MODELS
from node.learning.data.datasets import Prepared, prepare
from node.learning.errors import ModelError
from node.learning.local_training import LocalTraining
from node.learning.models import ModelPool, build, measured
from node.learning.networks.zoo import forward_work
from node.learning.together import Crew, Training, hindrance
from node.learning.training import Learner

FORM = Form((12,), 7, True, (12,))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("texts")
    for author, words in (("a", "to be or not to be "), ("b", "so it goes and so it went ")):
        (folder / f"{author}.txt").write_text(words * 100)
    return prepare(f"text:{folder}", tmp_path_factory.mktemp("cache"))


def test_a_token_sees_no_later_one() -> None:
    model, x = build("char-transformer", (12,), 7, 1).eval(), torch.zeros(1, 12, dtype=torch.int32)
    changed = x.clone()
    changed[0, 6] = 3
    before, after = model(x), model(changed)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6], after[:, 6])


def test_operations_worked_example() -> None:
    """Products of matrices of 12 tokens of 32 values in 2 blocks. Embeddings multiply nothing."""
    block = 12 * (4 * 32 * 32 + 2 * 32 * 128) + 2 * 12 * 12 * 32
    size = measured(MODELS["char-transformer"], FORM, {"layers": 2, "width": 32})
    assert size.operations == 2 * block + 12 * 32 * 7
    assert (size.features, size.partial) == (0, False)


@pytest.mark.parametrize("frozen", [False, True])
def test_operations_of_torchs_attention(frozen: bool) -> None:
    """Fused attention counts as well, also in a model with nothing to train."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).requires_grad_(not frozen)
    expected = 10 * (4 * 16 * 16 + 2 * 16 * 32) + 2 * 10 * 10 * 16
    assert forward_work(layer, torch.zeros(1, 10, 16)).operations == expected


def test_perplexity_falls_below_the_unigrams(texts: Prepared) -> None:
    pool = ModelPool(lambda: build("char-transformer", texts.shape, texts.classes, 1, {"layers": 1, "width": 32}))
    learner = Learner(pool, texts, 7, "device-0", np.arange(len(texts.train_labels)))
    shares = np.bincount(texts.array("y_train").ravel()) / texts.array("y_train").size
    unigrams = math.exp(-sum(share * math.log(share) for share in shares if share))
    params = LocalTraining(optimizer="adam", learning_rate=0.01, batch_size=4, epochs=5)
    found = learner.evaluate(learner.train(learner.initial(), params, 1).weights, "global")
    assert found.metrics["perplexity"] == pytest.approx(math.exp(found.loss))
    assert found.metrics["perplexity"] < 0.7 * unigrams
    assert found.accuracy > 0.4


def test_clients_train_together(texts: Prepared) -> None:
    pool = ModelPool(lambda: build("char-transformer", texts.shape, texts.classes, 1, {"layers": 1, "width": 16}))
    assert hindrance(pool.sample, texts) is None
    clients = [Learner(pool, texts, 7, f"device-{k}", np.arange(5 * k, 5 * k + 4 + k)) for k in range(2)]
    w, params = clients[0].initial(), LocalTraining(batch_size=4)
    for client, result in zip(clients, Crew(clients).train([Training(w, params, 1)] * 2), strict=True):
        alone = client.train(w, params, 1)
        assert result.loss == pytest.approx(alone.loss, rel=1e-5)
        for name, values in alone.weights.items():
            np.testing.assert_allclose(result.weights[name], values, atol=1e-5)


def test_a_model_of_floats_takes_no_tokens() -> None:
    with pytest.raises(ModelError, match=r"model.*for tokens \(12,\): RuntimeError"):
        measured(MODELS["mlp"], FORM, {})
    with pytest.raises(ModelError, match=r"char-transformer.*for samples \(12,\): RuntimeError"):
        measured(MODELS["char-transformer"], Form((12,), 7), {})
