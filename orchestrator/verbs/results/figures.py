"""Figures as PDF files for papers. The extra `figures` installs matplotlib, which draws them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.errors import PlaceError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.exports.destinations import require
from orchestrator.record.directory import RunDirectory
from orchestrator.report.marks import Figure
from orchestrator.report.page import figures_of
from orchestrator.results.history import History

PACKAGE = "matplotlib"
EXTRA = "figures"


def drawable() -> bool:
    """Whether matplotlib is installed. Does not import it."""
    return importlib.util.find_spec(PACKAGE) is not None


def write_figures(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write each figure that shows anything to ``folder/ID.pdf``. Existing files are replaced. Returns the paths.
    RunError without matplotlib, PlaceError if they cannot be written."""
    require((PACKAGE,), EXTRA)
    shown = {id: figure for id, figure in figures.items() if figure["marks"]}
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for id, figure in shown.items():
            from orchestrator.report.vector import pdf  # takes half a second

            path = folder / f"{id}.pdf"
            path.write_bytes(pdf(figure))
            written.append(path)
    except OSError as error:
        raise PlaceError(
            f"{folder} cannot be written ({error.strerror}): free space, or choose another folder"
        ) from None
    return written


def export_figures(directories: Sequence[RunDirectory], folder: Path) -> dict[str, str]:
    """Write the figures of the reports of runs to ``folder/RUN/ID.pdf``. Returns where those of each run are. If one of
    the runs is there already, nothing is written: AlreadyThereError. RunError without matplotlib, PlaceError if nothing
    can be written there."""
    require((PACKAGE,), EXTRA)
    for directory in directories:
        place = folder / directory.run
        if any(place.glob("*.pdf")):
            raise AlreadyThereError(directory.run, str(place))
    places = {}
    for directory in directories:
        place = folder / directory.run
        with History.open(directory.path) as history:
            figures = figures_of(history)
            write_figures(figures, place)
        places[directory.run] = str(place)
    return places
