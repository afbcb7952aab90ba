"""The cost of DFFKE's steps, in samples of the node's own model: `Role.compute` takes as long as for so many.

A step on another network counts as many samples as have the same multiply-adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from node.algorithms.dffke.docking import Embeddings
from node.algorithms.dffke.embedding_decoder import ClientModel, Pictures
from node.algorithms.dffke.parameters import DFFKE
from node.learning.networks.zoo import forward_work


@dataclass(frozen=True)
class Cost:
    """The cost of each step at a node with ``model`` and pictures like ``pictures``."""

    model: nn.Module
    pictures: Pictures
    params: DFFKE

    def docking(self, embeddings: Mapping[str, Embeddings]) -> int:
        """The training of the docking layers, equation 11."""
        operations = {owner: self._docking_layer(values) for owner, values in embeddings.items()}
        return self._passes(self.params.docking_epochs, operations, embeddings)

    def decoding(self, embeddings: Mapping[str, Embeddings], models: Mapping[str, ClientModel]) -> int:
        """The training of the decoder, equation 12: through it, a client's encoder and its docking layer."""
        decoder = self._decoder()
        nothing = torch.zeros(1, *self.pictures.shape)
        operations = {
            owner: decoder
            + self._docking_layer(embeddings[owner])
            + forward_work(model.made(self.pictures).extractor, nothing).operations
            for owner, model in models.items()
        }
        return self._passes(self.params.decoder_epochs, operations, embeddings)

    def teaching(self, count: int) -> int:
        """Making ``count`` pictures, and the logits on them."""
        return round(count + self._worth(self._decoder() * count))

    def exchange(self, new: int, old: int) -> int:
        """Learning from ``new`` current and ``old`` past pictures, equations 13 and 14. Learning from a picture takes
        about three times as long as making it."""
        params = self.params
        batches = -(-new // params.batch_size)
        private = params.exchange_epochs * batches * params.private_steps * params.batch_size
        steps = params.exchange_epochs * (2 * new if old else new) + private
        return round(steps + self._worth(self._decoder() * (new + old)) / 3)

    def _passes(self, epochs: int, operations: Mapping[str, int], embeddings: Mapping[str, Embeddings]) -> int:
        total = sum(operations[owner] * len(values) for owner, values in embeddings.items())
        return round(epochs * self._worth(total))

    def _docking_layer(self, embeddings: Embeddings) -> int:
        return int(embeddings.shape[1]) * self.params.dimension

    def _decoder(self) -> int:
        return self.params.decoder_operations(self.pictures.shape)

    def _worth(self, operations: int) -> float:
        return operations / forward_work(self.model, torch.zeros(1, *self.pictures.shape)).operations
