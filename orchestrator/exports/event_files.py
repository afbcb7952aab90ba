"""Runs as event files, which TensorBoard reads. Each run of edgebed is one run in TensorBoard.

The steps are rounds. The wall time of a value is the start of the run plus the run's time, which is virtual for
simulated runs. tensorboard's own writer of records writes the files. It needs neither torch nor TensorFlow, and starts
no thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from node.files import read_untrusted
from orchestrator.errors import PlaceError
from orchestrator.exports.base import AlreadyThereError, remove
from orchestrator.exports.destinations import imported
from orchestrator.exports.scalars import Scalar, epoch, scalars
from orchestrator.record.directory import RunDirectory
from orchestrator.record.schema import LONGEST_DOCUMENT
from orchestrator.results.history import History
from orchestrator.results.summary import summary

EXTRA = "tensorboard"
EVENT_FILES = "events.out.tfevents.*"  # TensorBoard knows event files by their names
LONGEST_NAME = 100  # characters of a folder


class EventFileStore:
    """A folder for `tensorboard --logdir`. The runs of a sweep are below ``<sweep>/<case>``."""

    def __init__(self, place: str) -> None:
        self._folder = Path(place)
        imported("tensorboard", EXTRA)

    def find(self, history: History) -> str | None:
        place = self._place(history)
        if any(place.glob(EVENT_FILES)):
            return str(place)
        return None

    def write(self, history: History) -> str:
        place = self._place(history)
        try:
            file = self.begin(history)
            file.add(scalars(history))
            file.finish(history)
        except AlreadyThereError:
            raise
        except BaseException:  # no half of a run stays
            remove(place, EVENT_FILES)
            raise
        return str(place)

    def begin(self, history: History) -> EventFile:
        existing = self.find(history)
        if existing is not None:
            raise AlreadyThereError(history.run, existing)
        return EventFile(self._place(history), history)

    def _place(self, history: History) -> Path:
        meta = history.meta
        above = []
        for key in ("sweep", "case"):
            if key in meta:
                above.append(_folder(str(meta[key])))
        return self._folder.joinpath(*above, history.run)


class EventFile:
    """The event file of one run. Every method raises PlaceError if the file cannot be written."""

    def __init__(self, folder: Path, history: History) -> None:
        self._folder = folder
        self._epoch = epoch(history)
        self._event = imported("tensorboard.compat.proto.event_pb2", EXTRA).Event
        self._summary = imported("tensorboard.compat.proto.summary_pb2", EXTRA).Summary
        self._text = imported("tensorboard.plugins.text.summary_v2", EXTRA).text_pb
        record_writer = imported("tensorboard.summary.writer.record_writer", EXTRA).RecordWriter
        self._writer: Any = None
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            name = EVENT_FILES.replace("*", f"{self._epoch:.0f}.edgebed")
            file = (folder / name).open("xb")
            self._writer = record_writer(file)
            self._put(0.0, file_version="brain.Event:2")
            text = self._text("scenario", _scenario(history))
            self._put(0.0, summary=text)
            self._writer.flush()

    def add(self, scalars: Iterable[Scalar]) -> None:
        with self._writing():
            for scalar in scalars:
                value = self._summary.Value(tag=scalar.tag, simple_value=scalar.value)
                summary_of_value = self._summary(value=[value])
                self._put(scalar.t, step=scalar.step, summary=summary_of_value)
            self._writer.flush()

    def finish(self, history: History) -> None:
        with self._writing():
            text = self._text("verdict", _verdict(history))
            self._put(history.seconds, summary=text)
            self._writer.close()

    def _put(self, t: float, **fields: Any) -> None:
        event = self._event(wall_time=self._epoch + t, **fields)
        self._writer.write(event.SerializeToString())

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._writer is not None:
                with contextlib.suppress(OSError):
                    self._writer.close()
            raise PlaceError(
                f"{self._folder} cannot be written ({error.strerror}): free space, or choose another folder"
            ) from None


def _folder(name: str) -> str:
    """The name of a sweep or a case as that of a folder."""
    plain = name.replace("/", "_").replace("..", "_")
    return plain[:LONGEST_NAME]


def _scenario(history: History) -> str:
    """The scenario as written, as a code block of Markdown."""
    file = RunDirectory(history.directory).scenario
    try:
        text = read_untrusted(file, LONGEST_DOCUMENT).decode()
    except (OSError, UnicodeDecodeError):
        return "The file scenario.yaml of the run cannot be read."
    return "".join(f"    {line}\n" for line in text.splitlines())


def _verdict(history: History) -> str:
    result = summary(history)
    lines = [f"**{result['verdict']}**", "", "| check | verdict | detail |", "|---|---|---|"]
    for check in result["checks"]:
        values = (check["name"], check["verdict"], check["detail"])
        cells = [value.replace("|", "&#124;") for value in values]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
