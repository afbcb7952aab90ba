"""The places that take exports. The libraries that only exports need are extras of edgebed, and are imported only for
an export."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from node.extras import install_command
from orchestrator.errors import PlaceError, RunError
from orchestrator.host.places import check_folder
from orchestrator.scenario.exporters import EXPORTERS, ExporterKind

if TYPE_CHECKING:
    from orchestrator.exports.base import Store, TrackingStore

REACHABLE_WITHIN = 10.0  # s


@dataclass(frozen=True)
class Destination:
    """A place for results: a kind, and a folder; for mlflow also a URI."""

    kind: str
    place: str

    @classmethod
    def parse(cls, text: str) -> Destination:
        """Read ``KIND:PLACE``, a destination that follows a run. PlaceError if it is none."""
        kind, _, place = text.partition(":")
        known = [name for name, form in EXPORTERS.items() if form.tracks]
        if kind not in known or not place:
            raise PlaceError(f"track: {text!r} is not KIND:PLACE, where KIND is {' or '.join(known)}")
        return cls(kind, place)

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"

    def check(self, exporters: Mapping[str, ExporterKind] = EXPORTERS) -> None:
        """Check that results can be written to the place, without creating anything. RunError if a package is missing.
        PlaceError if nothing can be written to a folder, or if no server answers. ``exporters``: the formats that are
        known, by name."""
        require(exporters[self.kind].packages, self.kind)
        if self.place.startswith(("http://", "https://")):
            _check_server(self.place)
        elif "://" not in self.place:
            check_folder(Path(self.place), "choose another folder for results")

    def open(self, exporters: Mapping[str, ExporterKind] = EXPORTERS) -> Store:
        """The store there. PlaceError if it cannot be opened."""
        exporter = exporters[self.kind]
        if exporter.write is not None and exporter.source is not None:
            from orchestrator.exports.plugin_store import PluginStore

            return PluginStore(Path(self.place), exporter.write, exporter.source)
        opens = pkgutil.resolve_name(f"orchestrator.exports.{exporter.opens}")
        return cast("Store", opens(self.place))

    def open_tracking(self) -> TrackingStore:
        """The store there, if it can follow a run (`parse`)."""
        return cast("TrackingStore", self.open())


_DEFAULT_PORTS = {"https": 443}


def _check_server(address: str) -> None:
    try:
        url = urlsplit(address)
        port = url.port or _DEFAULT_PORTS.get(url.scheme, 80)
        server = (url.hostname or "", port)
        with socket.create_connection(server, timeout=REACHABLE_WITHIN):
            pass
    except (OSError, ValueError) as error:
        raise PlaceError(f"no server answers at {address} ({error}): start it, or correct the address") from None


def imported(module: str, extra: str) -> Any:
    """A module of a library. RunError if the library is not installed; ``extra`` is the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise _missing(package, extra) from None


def require(modules: tuple[str, ...], extra: str) -> None:
    """RunError if one of these modules is not installed. Imports none of them."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise _missing(module, extra)


def _missing(module: str, extra: str) -> RunError:
    return RunError(f"{extra} needs the package {module}, which is not installed: {install_command(extra)}")
