"""The samples of each client, from a JSON file: `partition: {file: clients.json}`. See docs/reference/data.md."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from node.catalogue.json_text import parse_json
from orchestrator.scenario.language.words import describe, shortened
from orchestrator.text import some

_FORM = 'write {"device-0-0": [0, 5], "device-0-1": [1]}, or [[0, 5], [1]] in order of the clients'

Lists = Mapping[str, Any] | Sequence[Any]


@dataclass(frozen=True)
class ClientLists:
    """The indices of the training samples and, if given, of the own test samples of each client: by its name, or in
    the order of the clients. ``name``: of the file; ``sha256``: of its text."""

    name: str
    sha256: str
    train: Lists
    test: Lists | None = None

    @classmethod
    def read(cls, text: str, name: str) -> Self:
        """Read the text of a file. Raises ValueError if it does not have the form."""
        try:
            content = parse_json(text.removeprefix("\ufeff"))
        except ValueError as error:
            raise ValueError(f"{name} is not JSON: {error}") from None
        parts = {"train": content}
        if isinstance(content, dict) and content.keys() & {"train", "test"}:
            parts = content
        stray = parts.keys() - {"train", "test"}
        if stray:
            raise ValueError(f"{name} has the key '{shortened(min(stray))}' next to train or test: {_FORM}")
        has_lists = all(isinstance(lists, dict | list) for lists in parts.values())
        if "train" not in parts or not has_lists:
            raise ValueError(f"{name} has no lists of training samples: {_FORM}")
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        return cls(name, sha256, parts["train"], parts.get("test"))

    def training(
        self,
        clients: Sequence[str],
        samples: int,
    ) -> list[NDArray[np.int64]]:
        """The training samples of these ``clients``. ValueError if a list does not fit, or two overlap."""
        lists = self._lists("train", self.train, clients, samples)
        twice = _repeated(np.concatenate(lists))
        if twice is not None:
            holders = []
            for client, own in zip(clients, lists, strict=True):
                if twice in own:
                    holders.append(client)
            raise ValueError(f"{self.name}: train: sample {twice} is in the lists of {some(holders)}")
        return lists

    def testing(
        self,
        clients: Sequence[str],
        samples: int,
    ) -> list[NDArray[np.int64]] | None:
        """The test samples of each client; clients may share them. None if the file has none."""
        if self.test is None:
            return None
        return self._lists("test", self.test, clients, samples)

    def _lists(
        self,
        part: str,
        lists: Lists,
        clients: Sequence[str],
        samples: int,
    ) -> list[NDArray[np.int64]]:
        where = f"{self.name}: {part}"
        if not isinstance(lists, Mapping):
            if len(lists) != len(clients):
                raise ValueError(f"{where} has {len(lists)} lists for {len(clients)} clients")
            lists = dict(zip(clients, lists, strict=True))
        unknown = [shortened(client) for client in lists if client not in clients]
        if unknown:
            raise ValueError(f"{where} has {some(unknown)}; clients are {some(clients)}")
        missing = [client for client in clients if client not in lists]
        if missing:
            raise ValueError(f"{where} lacks {some(missing)}; give clients without samples an empty list")
        return [_indices(f"{where}: {client}", lists[client], samples) for client in clients]


def _indices(where: str, own: Any, samples: int) -> NDArray[np.int64]:
    """The ascending indices of one list."""
    if not isinstance(own, list):
        raise ValueError(f"{where} must be a list of indices")
    for index in own:
        if isinstance(index, bool) or not isinstance(index, int):
            raise ValueError(f"{where} has {describe(index)}, which is no whole number")
        if not 0 <= index < samples:
            raise ValueError(f"{where} has {index}; samples are 0 to {samples - 1}")
    indices = np.array(own, np.int64)
    twice = _repeated(indices)
    if twice is not None:
        raise ValueError(f"{where} has {twice} twice")
    return np.sort(indices)


def _repeated(indices: NDArray[np.int64]) -> int | None:
    """The lowest index that is not alone."""
    unique, counts = np.unique(indices, return_counts=True)
    repeated = unique[counts > 1]
    if len(repeated) == 0:
        return None
    return int(repeated[0])
