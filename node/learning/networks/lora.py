"""Low-rank adapters (E. Hu et al., ICLR 2022, arXiv 2106.09685): W x + (α / r) B A x with a frozen W. B starts at zero,
A as torch's linear layers. Only A and B are trained and sent."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from node.learning.errors import ModelError

FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""Modules that use the weights of their layers, but do not call the layers."""


class Adapted(nn.Module):
    """A linear layer with an adapter: `down` is A (r, d_in), `up` is B (d_out, r)."""

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.layer = layer
        self.scale = alpha / rank
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        frozen: Tensor = self.layer(x)  # first: gradients of x are added in the order of the calls
        adapter: Tensor = self.up(self.down(x))
        return frozen + self.scale * adapter


def adapt(
    model: nn.Module,
    rank: int,
    alpha: float,
    targets: Sequence[str],
) -> None:
    """Freeze a model, and add an adapter to each linear layer in ``targets``, by its name or the end of its name.
    Raises ModelError for a target that is no linear layer, and for a rank that is too high for a layer."""
    model.requires_grad_(False)
    layers = _linear_layers(model)
    chosen: dict[str, nn.Linear] = {}
    for target in targets:
        of_target = {}
        for name, layer in layers.items():
            if f".{name}".endswith(f".{target}"):
                of_target[name] = layer
        if not of_target:
            own_names = dict.fromkeys(name.rpartition(".")[2] for name in layers)
            known = ", ".join(own_names) or "none"
            raise ModelError(f"lora: targets: no linear layer is named {target!r}; the model has {known}")
        chosen.update(of_target)
    for name, layer in chosen.items():
        parent, _, own = name.rpartition(".")
        full = min(layer.in_features, layer.out_features)
        if rank > full:
            raise ModelError(f"lora: rank: {rank} is more than the rank of {own}, {full}: lower it, or leave out {own}")
        adapted = Adapted(layer, rank, alpha)
        setattr(model.get_submodule(parent), own, adapted)


def _linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers by name that can have an adapter."""
    layers = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        parent = name.rpartition(".")[0]
        if not isinstance(model.get_submodule(parent), FUSED):
            layers[name] = module
    return layers
