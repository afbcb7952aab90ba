"""The folders of the campaign: one that may be changed, made anew for each input, beside a whole run that may not."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from node.runtime.checkpoint import packed, write
from tests.orchestrator.example_run import Example

RUN, OTHER = "hostile", "whole"
SECRET = "words that are in no run"
EXAMPLE = Example(edges=1, devices_per_edge=1, rounds=2)
KINDS = ("pipe", "folder", "gone", "link to itself", "link to another run", "link out", "link to zero")


@contextlib.contextmanager
def sandbox() -> Iterator[Path]:
    """A folder of runs with ``OTHER``, and with a template of ``RUN``, which was interrupted."""
    with tempfile.TemporaryDirectory(prefix="edgebed-hostile-") as name:
        root = Path(name)
        EXAMPLE.build(root / "runs" / OTHER)
        Example(**vars(EXAMPLE) | {"ending": "interrupted"}).build(root / "templates" / "run")
        Example(**vars(EXAMPLE) | {"ending": None}).build(root / "templates" / "running")
        (root / "templates" / "empty").mkdir()
        EXAMPLE.build(root / "templates" / "sweep" / "first")
        for run in (root / "runs" / OTHER, root / "templates" / "run"):
            (run / "logs").mkdir()
            (run / "logs" / "cloud.log").write_text("ready\n")
            (run / "summary.json").write_text(json.dumps({"ended": "rounds", "verdict": "pass"}))
            write(run / "checkpoints" / "cloud" / "cloud.checkpoint", packed("cloud", 2, {}, {}))
        (root / "runs" / "secret").write_text(SECRET)
        yield root / "runs"


@contextlib.contextmanager
def place(runs: Path, template: str) -> Iterator[Path]:
    """The folder ``RUN``, a copy of a template. Temporary files and caches lie in it, too."""
    path = runs / RUN
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(runs.parent / "templates" / template, path)
    scratch = str(path / "scratch")
    os.mkdir(scratch)
    with (
        mock.patch.dict(os.environ, EDGEBED_CACHE=scratch, EDGEBED_DATA=scratch, TMPDIR=scratch),
        mock.patch.object(tempfile, "tempdir", scratch),
    ):
        yield path


@functools.cache
def documents() -> dict[str, Any]:
    """The JSON files of a run, by name."""
    with sandbox() as runs:
        folder = runs.parent / "templates" / "run"
        return {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}


def spoil(runs: Path, path: Path, kind: str) -> None:
    """Put something that is no regular file in the place of a file or a folder."""
    if not Path(os.path.realpath(path.parent)).is_relative_to(runs / RUN):
        return  # below a link that was put there before
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "gone":
            pass
        case "link to itself":
            path.symlink_to(path.name)
        case "link to zero":
            path.symlink_to("/dev/zero")
        case "link to another run":
            path.symlink_to(runs / OTHER / path.name)
        case "link out":
            path.symlink_to(runs / "secret")
