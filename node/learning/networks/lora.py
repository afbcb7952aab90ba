"""Low-rank adapters (E. Hu et al., ICLR 2022, arXiv 2106.09685): W x + (α / r) B A x with a frozen W. B starts at zero,
A as torch's linear layers. Only A and B are trained and sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from node.learning.errors import ModelError

FUSED = (
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
)  # they use the weights of their layers, but do not call the layers


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
        return cast(Tensor, self.layer(x) + self.scale * self.up(self.down(x)))


def adapt(
    model: nn.Module,
    rank: int,
    alpha: float,
    targets: Sequence[str],
) -> None:
    """Freeze a model, and add an adapter to each linear layer in ``targets``, by its name or the end of its name.
    Raises ModelError for a target that is no linear layer, and for a rank that is too high for a layer."""
    model.requires_grad_(False)
    layers = {
        name: each
        for name, each in model.named_modules()
        if isinstance(each, nn.Linear) and not isinstance(model.get_submodule(name.rpartition(".")[0]), FUSED)
    }
    of_targets = {target: [name for name in layers if f".{name}".endswith(f".{target}")] for target in targets}
    for target, names in of_targets.items():
        if not names:
            known = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in layers))
            raise ModelError(f"lora: targets: no linear layer is named {target!r}; the model has {known or 'none'}")
    for name in dict.fromkeys(name for names in of_targets.values() for name in names):
        parent, _, own = name.rpartition(".")
        if rank > (full := min(layers[name].in_features, layers[name].out_features)):
            raise ModelError(f"lora: rank: {rank} is more than the rank of {own}, {full}: lower it, or leave out {own}")
        setattr(model.get_submodule(parent), own, Adapted(layers[name], rank, alpha))
