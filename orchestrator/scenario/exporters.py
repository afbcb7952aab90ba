"""The formats in which runs can be exported, by name: plain data, without heavy imports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node.assignment import PluginSource
    from node.plugins import Export

PDF = "pdf"
"""The figures of the report, which are no tables. `orchestrator.verbs.results.figures` writes them."""


@dataclass(frozen=True)
class ExporterKind:
    """One format: the function of `orchestrator.exports` that opens a store (module:name), and the packages that it
    imports, if any. Packages that are not edgebed's own come with the extra of the same name.

    tracks: its stores can follow a run.
    write, source: for a format of a plug-in, its function and the plug-in that it comes from; ``opens`` is then empty.
    """

    opens: str
    packages: tuple[str, ...] = ()
    tracks: bool = False
    write: Export | None = None
    source: PluginSource | None = None


_KINDS = {
    "csv": ExporterKind("files:csv_store"),
    "parquet": ExporterKind("files:parquet_store", ("pyarrow",)),
    "tensorboard": ExporterKind("event_files:EventFileStore", ("tensorboard",), tracks=True),
    "mlflow": ExporterKind("mlflow_store:MlflowStore", ("mlflow", "sqlalchemy", "alembic"), tracks=True),
}
EXPORTERS: Mapping[str, ExporterKind] = MappingProxyType(_KINDS)
"""Those of edgebed, by name."""
