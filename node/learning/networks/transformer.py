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
        self.before_attention = nn.LayerNorm(width)
        self.before_layers = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attention(self.before_attention(x))
        hidden = self.before_layers(x)
        hidden = gelu(self.wide(hidden))
        output: Tensor = x + self.narrow(hidden)
        return output

    def _attention(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        q = self._of_heads(self.query(x))
        k = self._of_heads(self.key(x))
        v = self._of_heads(self.value(x))
        all_pairs = torch.ones(length, length, dtype=torch.bool, device=x.device)
        later = all_pairs.triu(1)
        scale = math.sqrt(width / self.heads)
        attention = q @ k.transpose(-2, -1)
        attention = attention / scale
        attention = attention.masked_fill(later, -math.inf)
        attention = attention.softmax(-1)
        of_heads = attention @ v
        of_tokens = of_heads.transpose(1, 2)
        joined = of_tokens.reshape(count, length, width)
        output: Tensor = self.output(joined)
        return output

    def _of_heads(self, x: Tensor) -> Tensor:
        """(N, T, width) to (N, heads, T, width / heads)."""
        count, length, _ = x.shape
        of_heads = x.reshape(count, length, self.heads, -1)
        return of_heads.transpose(1, 2)


class Extractor(nn.Module):
    """Tokens (N, T) to features (N, T, width)."""

    def __init__(self, length: int, classes: int, params: CharTransformer) -> None:
        super().__init__()
        self.tokens = nn.Embedding(classes, params.width)
        self.places = nn.Embedding(length, params.width)
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.02)
        blocks = []
        for _ in range(params.layers):
            blocks.append(Block(params.width, params.heads))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(params.width)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        places = torch.arange(length, device=x.device)
        embedded = self.tokens(x) + self.places(places)
        features: Tensor = self.norm(self.blocks(embedded))
        return features


def char_transformer(
    shape: Shape,
    classes: int,
    params: CharTransformer,
) -> tuple[nn.Module, nn.Module]:
    """A transformer for sequences of ``shape[0]`` tokens of ``classes`` kinds."""
    extractor = Extractor(shape[0], classes, params)
    classifier = nn.Linear(params.width, classes)
    return extractor, classifier
