"""The data set of a scenario, found and prepared on this host."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from node.catalogue.datasets import DATASETS, Columns, Dataset
from node.learning.data.datasets import Prepared, prepare
from node.learning.errors import DataError, DataNotFound
from orchestrator.errors import HostError, PlanError
from orchestrator.scenario.sections.data import DataSpec


def cache_directory() -> Path:
    """The folder of prepared data sets: $EDGEBED_CACHE, else a folder in the user's cache (XDG base directories)."""
    own = os.environ.get("EDGEBED_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "edgebed"


def prepare_data(
    spec: DataSpec,
    base: Path,
    known: Mapping[str, Dataset] = DATASETS,
) -> Prepared:
    """Find or download, and decode, the first of the scenario's data sets that this host has; PlanError if none.
    ``known``: the data sets of the scenario's catalogue.
    ``base`` is the scenario's folder; its paths are relative to it. Only the last data set of the list may be
    downloaded: with `[fashion-mnist, digits]` nothing is fetched."""
    return _first(spec, base, known, download=True)


@contextlib.contextmanager
def looked_up(
    spec: DataSpec,
    base: Path,
    known: Mapping[str, Dataset] = DATASETS,
) -> Iterator[Prepared]:
    """Like `prepare_data`, without a download; what is not cached is decoded to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="edgebed-") as passing:
        yield _first(spec, base, known, download=False, store=Path(passing))


def _first(
    spec: DataSpec,
    base: Path,
    known: Mapping[str, Dataset],
    *,
    download: bool,
    store: Path | None = None,
) -> Prepared:
    cache = cache_directory()
    folder = base / spec.path if spec.path else base
    if not os.path.exists(folder):  # False, too, where this user may not look, or for a name that is too long
        raise PlanError(("data", "path"), f"there is nothing at {folder.absolute()}")
    columns = None
    if spec.columns is not None:
        columns = Columns(**spec.columns.model_dump())
    reasons = []
    for name in spec.dataset:
        is_last = name == spec.dataset[-1]
        try:
            return prepare(
                name,
                cache,
                [folder],
                download=download and is_last,
                store=store,
                columns=columns,
                known=known,
            )
        except DataNotFound as error:
            reasons.append(str(error))
        except DataError as error:
            raise PlanError(("data", "dataset"), str(error)) from None
        except MemoryError as error:
            message = f"{name} does not fit into the memory that this process may have: {error}"
            raise PlanError(("data", "dataset"), message) from None
        except OSError as error:
            raise no_room(name, store or cache, error) from None
    raise PlanError(("data", "dataset"), "; ".join(reasons))


def no_room(name: str, folder: Path, error: OSError) -> HostError:
    """The error for a data set that cannot be written to a folder."""
    return HostError(
        f"data.dataset: {name} cannot be prepared in {folder} ({error.strerror or error}): make room there, or name "
        "another folder in the variable EDGEBED_CACHE"
    )
