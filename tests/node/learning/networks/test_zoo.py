from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from node.catalogue.models import BACKBONES, MODEL_GROUPS, MODELS, model_of
from node.learning.errors import ModelError
from node.learning.models import build
from node.learning.networks.zoo import Scaled, forward_work, saved_values


@pytest.mark.slow
@pytest.mark.parametrize("architecture", BACKBONES)
def test_sizes_of_torchvisions_networks_are_the_catalogues(architecture: str) -> None:
    params = {"architecture": architecture, "image_size": 64}
    size = MODELS["torchvision"].size((1, 28, 28), 10, params)
    model = build("torchvision", (1, 28, 28), 10, 0, params)
    assert sum(p.numel() for p in model.parameters()) == size.parameters
    assert sum(t.numel() * t.element_size() for t in model.state_dict().values()) == size.bytes
    features = model.eval().extractor(torch.rand(2, 1, 28, 28))
    assert features.shape == (2, size.features)
    assert model.classifier(features).shape == (2, 10)
    # The catalogue scales the work of 128 pixels; the smallest pictures keep more of it than that.
    work = forward_work(model, torch.zeros(1, 1, 28, 28))
    assert size.layers == work.layers
    assert work.operations == pytest.approx(size.operations, rel=0.2)
    assert work.values == pytest.approx(size.values, rel=0.1)
    assert work.widest == pytest.approx(size.widest, rel=0.1)
    assert saved_values(model, torch.zeros(4, 1, 28, 28), 4) == pytest.approx(size.saved, rel=0.15)


def test_resnet18_is_the_published_one() -> None:
    """torchvision's documentation: 11,689,512 parameters with 1,000 classes."""
    assert MODELS["torchvision"].size((3, 32, 32), 1000).parameters == 11_689_512


def test_pictures_are_scaled_and_grey_gets_three_channels() -> None:
    grey = torch.arange(4.0).reshape(1, 1, 2, 2)
    scaled = Scaled(4)(grey)
    assert scaled.shape == (1, 3, 4, 4)
    # Bilinear, corners not aligned: the new pixels lie at -1/4 (held at 0), 1/4, 3/4 and 5/4 (held at 1) of the old.
    torch.testing.assert_close(scaled[0, 2, 0], torch.tensor([0.0, 0.25, 0.75, 1.0]))
    colours = torch.rand(1, 3, 2, 2)
    assert not torch.equal(Scaled(4)(colours)[0, 0], Scaled(4)(colours)[0, 1])


def test_a_group_gives_each_client_its_member() -> None:
    assert [model_of("small", {}, client)[0] for client in (0, 1, 5, 6)] == ["cnn", "mlp", "cnn", "mlp"]
    own = {"image_size": 64, "features": None, "architecture": "vit-tiny"}
    assert model_of("htfe-10", {"image_size": 64}, 9) == ("torchvision", own)
    assert {model_of("htfe-1", {}, client)[1]["architecture"] for client in range(4)} == {"resnet18"}
    assert model_of("mlp", {"hidden": 8}, 3) == ("mlp", {"hidden": 8})


def test_the_size_of_a_group_is_its_largest_members() -> None:
    assert MODEL_GROUPS["small"].size((1, 28, 28), 10) == MODELS["mlp"].size((1, 28, 28), 10)
    assert MODEL_GROUPS["htfe-5"].size((3, 32, 32), 10).features == 2048  # ResNet-50's, which is not the largest
    assert MODEL_GROUPS["htfe-2"].size((3, 32, 32), 10).parameters == 21_284_672 + 513 * 10
    with pytest.raises(ValueError, match="unknown parameter 'imagesize'; did you mean 'image_size'"):
        MODEL_GROUPS["htfe-1"].size((3, 32, 32), 10, {"imagesize": 64})


def test_what_a_network_cannot_take_is_refused() -> None:
    with pytest.raises(ModelError, match=r"model torchvision: takes images.*three"):
        build("torchvision", (3, 128), 6, 0)
    with pytest.raises(ModelError, match=r"image_size: 100 is no.*vit-tiny's"):
        build("torchvision", (3, 32, 32), 10, 0, {"architecture": "vit-tiny", "image_size": 100})


def test_operations_worked_example() -> None:
    """A 3x3 convolution of 2 into 4 channels on 5x5 pictures, 3x3 results: 4·9·18; then 36 into 7: 252."""
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 7))
    assert forward_work(network, torch.zeros(1, 2, 5, 5)).operations == 4 * 9 * 18 + 252


@pytest.mark.parametrize("architecture", ["resnet18", "vit-tiny"])
def test_operations_are_those_of_torchs_counter(architecture: str) -> None:
    model = build("torchvision", (3, 32, 32), 10, 0, {"architecture": architecture, "image_size": 32})
    with sdpa_kernel(SDPBackend.MATH), torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model.eval()(torch.zeros(1, 3, 32, 32))
    assert forward_work(model, torch.zeros(1, 3, 32, 32)).operations == counter.get_total_flops() // 2


@pytest.mark.slow
def test_counting_loads_no_compiler() -> None:
    """It would take a second in each process."""
    counted = "from node.learning.networks import zoo; zoo.forward_work(nn.Linear(2, 2), torch.zeros(1, 2))"
    code = f"import sys, torch; from torch import nn; {counted}; print('torch._dynamo' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
