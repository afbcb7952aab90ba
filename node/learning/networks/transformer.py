"""A transformer that predicts the next character (Radford 2019, GPT-2): causal attention, normalisation before each
part. `node.learning.networks.lora` adapts linear layers by their names: query, key, value, output, wide, narrow."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from node.catalogue.datasets import Shape
from node.catalogue.models import CharTransformer


class Block(nn.Module):
    """x + attention(norm(x)), then x + narrow(GELU(wide(norm(x))))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attention(self.before_attention(x))
        output: Tensor = x + self.narrow(gelu(self.wide(self.before_layers(x))))
        return output

    def _attention(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        q, k, v = (
            layer(x).reshape(count, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-2, -1) / math.sqrt(width / self.heads)).masked_fill(later, -math.inf)
        output: Tensor = self.output((scores.softmax(-1) @ v).transpose(1, 2).reshape(count, length, width))
        return output


class Extractor(nn.Module):
    """Tokens (N, T) to features (N, T, width)."""

    def __init__(self, length: int, classes: int, params: CharTransformer) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(classes, params.width), nn.Embedding(length, params.width)
        for each in (self.tokens, self.places):
            nn.init.normal_(each.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(params.width, params.heads) for _ in range(params.layers)))
        self.norm = nn.LayerNorm(params.width)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        features: Tensor = self.norm(self.blocks(self.tokens(x) + self.places(places)))
        return features


def char_transformer(shape: Shape, classes: int, params: CharTransformer) -> tuple[nn.Module, nn.Module]:
    """A transformer for sequences of ``shape[0]`` tokens of ``classes`` kinds."""
    return Extractor(shape[0], classes, params), nn.Linear(params.width, classes)
