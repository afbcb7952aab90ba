"""Low-rank adapters: which weights change, what travels, and how they learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from node.catalogue.datasets import Form
from node.catalogue.models import MODELS
from node.learning.data.datasets import Prepared
from node.learning.errors import ModelError
from node.learning.local_training import LocalTraining
from node.learning.models import Model, ModelPool, build, measured
from node.learning.networks.lora import Adapted, adapt
from node.learning.together import Crew, Training
from node.learning.training import Learner
from node.messaging.wire import Message, encode

TEXT = Form((16,), 11, True, (16,))
LORA: dict[str, Any] = {"rank": 4, "alpha": 8, "targets": ["query", "value"]}


def test_only_adapters_travel_to_the_byte() -> None:
    params = {"layers": 3, "width": 32, "lora": LORA}
    model = build("char-transformer", TEXT.shape, TEXT.classes, 1, params)
    _, body = encode(Message("model", "cloud", 0, {}, model.get()))
    adapters = 3 * 2 * 4 * (32 + 32)  # layers, targets, rank, d_in + d_out
    assert sum(map(len, body)) == 4 * adapters
    assert measured(MODELS["char-transformer"], TEXT, params).bytes == 4 * adapters
    whole = build("char-transformer", TEXT.shape, TEXT.classes, 1, {"layers": 3, "width": 32}).eval()
    x = torch.arange(32).reshape(2, 16) % 11
    assert torch.equal(model.eval()(x), whole(x))  # adapters start at zero


def test_adapters_of_gemma_3_270m_are_as_large_as_measured() -> None:
    """EdgeFlowerTune (arXiv 2605.08636) measured 2.949 to 2.961 MB in a client's upload. The model has 18 layers of
    640 values, 4 heads of 256, and one for keys and values."""
    with torch.device("meta"):
        sides = {"q_proj": (640, 1024), "k_proj": (640, 256), "v_proj": (640, 256), "o_proj": (1024, 640)}
        layers = [nn.ModuleDict({name: nn.Linear(*each) for name, each in sides.items()}) for _ in range(18)]
        model = Model(nn.Sequential(*layers), nn.Identity(), frozen_travels=False)
        adapt(model, 16, 32, ["q_proj", "v_proj"])
    state = {name: np.zeros(shape, np.float32) for name, shape in model.shapes.items()}
    header, body = encode(Message("update", "device-0", 1, {"samples": 8}, state))
    assert sum(map(len, body)) == 4 * 18 * 16 * (640 + 1024 + 640 + 256) == 2_949_120
    assert len(header) + sum(map(len, body)) < 2_961_000


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_frozen_weights_are_bit_identical_after_training(digits: Prepared, optimizer: str) -> None:
    def made() -> Model:
        return build("mlp", digits.shape, 10, 3, {"lora": {"rank": 2, "alpha": 2, "targets": ["1", "classifier"]}})

    pool = ModelPool(made)
    clients = [Learner(pool, digits, 7, f"device-{k}", np.arange(17 * k, 17 * k + 17)) for k in range(2)]
    params, w = LocalTraining(optimizer=optimizer, learning_rate=0.01, weight_decay=0.1, epochs=3), clients[0].initial()
    assert set(w) == {f"{layer}.{part}.weight" for layer in ("extractor.1", "classifier") for part in ("down", "up")}
    together = Crew(clients).train([Training(w, params, 1)] * 2)
    for client, result in zip(clients, together, strict=True):
        alone = client.train(w, params, 1)
        assert all((result.weights[name] != values).any() for name, values in w.items() if "up" in name)
        for name in w:
            np.testing.assert_allclose(result.weights[name], alone.weights[name], atol=1e-5)
    start, end = made().state_dict(), pool.model.state_dict()
    assert all(torch.equal(end[name], start[name]) for name in start if name not in w)


def test_full_rank_learns_as_the_whole_layer(digits: Prepared) -> None:
    """Softmax regression on the pixels. With A = 16 I and α / r = 1/16, a step of B is that of the whole layer, and A
    hardly moves."""

    def learner(adapted: bool) -> Learner:
        def made() -> Model:
            layer = nn.Linear(64, 10, bias=False)
            nn.init.zeros_(layer.weight)
            if not adapted:
                return Model(nn.Flatten(), layer)
            adapter = Adapted(layer.requires_grad_(False), 64, 4)
            adapter.down.weight.data.copy_(16 * torch.eye(64))
            return Model(nn.Flatten(), adapter)

        return Learner(ModelPool(made), digits, 7, "device-0", np.arange(400))

    curves = []
    for each in (learner(False), learner(True)):
        w, losses = each.initial(), []
        for round in range(20):
            w = each.train(w, LocalTraining(learning_rate=0.01, batch_size=100), round).weights
            losses.append(each.evaluate(w, "global").loss)
        curves.append(losses)
    assert curves[0][-1] < 0.7 * curves[0][0]
    np.testing.assert_allclose(curves[1], curves[0], rtol=0.01)


def test_targets_that_are_no_linear_layers() -> None:
    with pytest.raises(ModelError, match="no linear layer is named 'keys'"):
        build("char-transformer", (16,), 11, 1, {"lora": LORA | {"targets": ["query", "keys"]}})


def test_a_rank_above_that_of_a_layer() -> None:
    with pytest.raises(ModelError, match="rank: 12 is more"):
        build("char-transformer", (16,), 11, 1, {"lora": LORA | {"rank": 12, "targets": ["query", "classifier"]}})


@pytest.mark.parametrize("target", ["out_proj", "linear1"])
def test_layers_that_torch_does_not_call(target: str) -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32), nn.Linear(16, 4))
    with pytest.raises(ModelError, match=f"no linear layer is named '{target}'"):
        adapt(model, 2, 4, [target])
