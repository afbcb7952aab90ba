"""`data`: which data sets this host has, and the download of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from node.catalogue.datasets import DATASETS, is_dataset
from node.learning.data.datasets import Prepared, data_folders, locate, prepare
from node.learning.errors import DataError
from orchestrator.errors import HostError, MistakeError
from orchestrator.planning.learning.dataset import cache_directory, no_room
from orchestrator.scenario.language.strict import unknown


def data_sets() -> list[dict[str, Any]]:
    """The data sets with a name: where each was found (None: nowhere) and how to get it."""
    cache = cache_directory()
    rows = []
    for name, dataset in DATASETS.items():
        rows.append(
            {
                "name": name,
                "summary": dataset.summary,
                "found": locate(name, cache),
                "get": dataset.where,
            }
        )
    return rows


def searched() -> list[Path]:
    """The folders in which data sets are looked for, after the folder of the scenario."""
    return data_folders(cache_directory())


def fetch(name: str) -> Prepared:
    """Find or download a data set, check its files and prepare it for runs. MistakeError if there is no data set of
    this name. HostError if it cannot be found, read or stored."""
    if not is_dataset(name):
        raise MistakeError(unknown("data set", name, DATASETS))
    cache = cache_directory()
    try:
        return prepare(name, cache)
    except DataError as error:
        raise HostError(str(error)) from None
    except OSError as error:
        raise no_room(name, cache, error) from None
