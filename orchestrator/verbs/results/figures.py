"""Figures as files for papers: PDF, and PGF for LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orchestrator.errors import PlaceError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.host.directory import RunDirectory
from orchestrator.report.marks import Figure
from orchestrator.report.page import figures_of
from orchestrator.report.pdf import pdf
from orchestrator.report.pgf import pgf
from orchestrator.report.vector import Drawing, drawn
from orchestrator.results.record.history import History

FORMATS: dict[str, Callable[[Drawing], bytes]] = {"pdf": pdf, "pgf": lambda drawing: pgf(drawing).encode()}
"""What makes a file of a drawing, by its suffix."""


def write_figures(figures: Mapping[str, Figure], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write each figure that shows anything to ``folder/ID.FORMAT``. Existing files are replaced. Returns the paths.
    PlaceError if they cannot be written."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for id, figure in figures.items():
            if not figure["marks"]:
                continue
            drawing = drawn(figure)
            for suffix in formats:
                path = folder / f"{id}.{suffix}"
                path.write_bytes(FORMATS[suffix](drawing))
                written.append(path)
    except OSError as error:
        raise PlaceError(
            f"{folder} cannot be written ({error.strerror}): free space, or choose another folder"
        ) from None
    return written


def export_figures(directories: Sequence[RunDirectory], folder: Path, suffix: str) -> dict[str, str]:
    """Write the figures of the reports of runs to ``folder/RUN/ID.SUFFIX``. Returns where those of each run are. If one
    of the runs is there already, nothing is written: AlreadyThereError. PlaceError if nothing can be written there."""
    places = {directory.run: folder / directory.run for directory in directories}
    for run, place in places.items():
        if any(place.glob(f"*.{suffix}")):
            raise AlreadyThereError(run, str(place))
    for directory in directories:
        with History.open(directory.path) as history:
            write_figures(figures_of(history), places[directory.run], [suffix])
    return {run: str(place) for run, place in places.items()}
