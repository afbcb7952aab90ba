"""Places for results: how they are written, and what is found out before anything is made."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from node.extras import install_command
from orchestrator.errors import PlaceError, RunError
from orchestrator.exports.destinations import Destination, imported
from orchestrator.scenario.exporters import EXPORTERS


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("tensorboard:runs/tb", "tensorboard", "runs/tb"),
        ("mlflow:sqlite:///m.db", "mlflow", "sqlite:///m.db"),
        ("mlflow:http://127.0.0.1:5000", "mlflow", "http://127.0.0.1:5000"),
    ],
)
def test_a_place_and_its_text(text: str, kind: str, place: str) -> None:
    assert Destination.parse(text) == Destination(kind, place)
    assert str(Destination(kind, place)) == text


@pytest.mark.parametrize("text", ["tensorboard", "tensorboard:", "csv:out", "wandb:x", ""])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(PlaceError, match=rf"track: '{text}'.*not KIND:PLACE, where KIND"):
        Destination.parse(text)


@pytest.mark.parametrize("kind", ["parquet", "tensorboard", "mlflow"])
def test_a_missing_extra_is_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    package = EXPORTERS[kind].packages[0]
    told = rf"^{kind} needs the package {package}"
    with pytest.raises(RunError, match=told):
        Destination(kind, str(tmp_path)).check()


def test_a_package_with_an_import_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(
        RunError, match=f"mlflow needs the package sqlalchemy, .*: {re.escape(install_command('mlflow'))}"
    ):
        imported("sqlalchemy", "mlflow")


def test_a_place_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    Destination("tensorboard", str(tmp_path)).check()
    with pytest.raises(PlaceError, match=r"nothing can be written in .*file"):
        Destination("mlflow", str(tmp_path / "file")).check()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_server_that_does_not_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(PlaceError, match=f"no server answers at {address}"):
            Destination("mlflow", address).check()
        free.listen()
        Destination("mlflow", address).check()
    with pytest.raises(PlaceError, match=r"no server answers at http://127\.0\.0\.1:port"):
        Destination("mlflow", "http://127.0.0.1:port").check()


def test_nothing_is_imported_before_it_is_requested() -> None:
    """Neither the command line nor the verbs import the libraries of exports."""
    code = "import sys, json, orchestrator.cli.main, orchestrator.verbs.python_interface"
    code += ", orchestrator.verbs.results.export, orchestrator.verbs.results.figures, orchestrator.sweep.page"
    code += "; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "mlflow", "pyarrow", "sqlalchemy", "tensorboard", "torch"} & set(json.loads(done.stdout))
