"""The cost of DFFKE's steps, in samples of the node's own model: `Role.compute` takes as long as for so many.

A step on another network counts as many samples as have the same multiply-adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from node.algorithms.dffke.docking import Embeddings
from node.algorithms.dffke.embedding_decoder import ClientModel, Pictures
from node.algorithms.dffke.parameters import DFFKE
from node.catalogue.models import MODELS, ModelEntry
from node.learning.networks.zoo import forward_work


@dataclass(frozen=True)
class StepSamples:
    """The cost of each step at a node with ``model`` and pictures like ``pictures``. ``known``: the models of the
    catalogue, by name."""

    model: nn.Module
    pictures: Pictures
    params: DFFKE
    known: Mapping[str, ModelEntry] = field(default_factory=lambda: MODELS)

    def docking(self, embeddings: Mapping[str, Embeddings]) -> int:
        """The training of the docking layers, equation 11."""
        operations = {}
        for owner, values in embeddings.items():
            operations[owner] = self._docking_layer(values)
        return self._passes(self.params.docking_epochs, operations, embeddings)

    def decoding(self, embeddings: Mapping[str, Embeddings], models: Mapping[str, ClientModel]) -> int:
        """The training of the decoder, equation 12: through it, a client's encoder and its docking layer."""
        decoder = self._decoder()
        nothing = torch.zeros(1, *self.pictures.shape)
        operations = {}
        for owner, model in models.items():
            docking = self._docking_layer(embeddings[owner])
            extractor = model.load(self.pictures, self.known).extractor
            encoder = forward_work(extractor, nothing).operations
            operations[owner] = decoder + docking + encoder
        return self._passes(self.params.decoder_epochs, operations, embeddings)

    def teaching(self, count: int) -> int:
        """Making ``count`` pictures, and the logits on them."""
        operations = self._decoder() * count
        return round(count + self._worth(operations))

    def exchange(self, new: int, old: int) -> int:
        """Learning from ``new`` current and ``old`` past pictures, equations 13 and 14. Learning from a picture takes
        about three times as long as making it."""
        epochs = self.params.exchange_epochs
        batch_size = self.params.batch_size
        batches = -(-new // batch_size)
        private = epochs * batches * self.params.private_steps * batch_size
        if old:
            shared = epochs * (2 * new)
        else:
            shared = epochs * new
        operations = self._decoder() * (new + old)
        return round(shared + private + self._worth(operations) / 3)

    def _passes(
        self,
        epochs: int,
        operations: Mapping[str, int],
        embeddings: Mapping[str, Embeddings],
    ) -> int:
        total = 0
        for owner, values in embeddings.items():
            total += operations[owner] * len(values)
        return round(epochs * self._worth(total))

    def _docking_layer(self, embeddings: Embeddings) -> int:
        features = int(embeddings.shape[1])
        return features * self.params.dimension

    def _decoder(self) -> int:
        return self.params.decoder_operations(self.pictures.shape)

    def _worth(self, operations: int) -> float:
        nothing = torch.zeros(1, *self.pictures.shape)
        own = forward_work(self.model, nothing)
        return operations / own.operations
