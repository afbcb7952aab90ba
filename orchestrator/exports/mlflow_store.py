"""Runs in MLflow. Each run of edgebed is one run there; the runs of a sweep are nested in a run of the sweep.

A folder is a store of MLflow's current local form: an SQLite database ``mlflow.db`` and the folder ``artifacts``.
MLflow reports its use to its makers by default. edgebed switches this off before it imports MLflow.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import PlaceError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.exports.kinds import imported
from orchestrator.exports.scalars import Scalar, epoch, scalars, settings
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from orchestrator.results.summary import summary

EXTRA = "mlflow"
RUN = "edgebed.run"
SWEEP = "edgebed.sweep"
CASE = "edgebed.case"
VERDICT = "edgebed.verdict"
ENDED = "edgebed.ended"
ERROR = "edgebed.error"
LONGEST_KEY, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 8000  # characters (mlflow.utils.validation)
METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100  # in one request
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""What MLflow reads from the environment: seconds, instead of many minutes, until a server counts as gone."""
STATUS = {"failed": "FAILED", "interrupted": "KILLED"}  # by outcome; others are FINISHED
SQLITE = "sqlite:///"

T = TypeVar("T")


class MlflowStore:
    """A store of MLflow: a folder, or the URI of a database or of a server."""

    def __init__(self, place: str) -> None:
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        self._place = place
        uri, self._artifacts = _addresses(place)
        mlflow = imported("mlflow", EXTRA)
        self._refusals = (
            imported("mlflow.exceptions", EXTRA).MlflowException,
            imported("sqlalchemy.exc", EXTRA).SQLAlchemyError,
            ImportError,  # the driver of a database
            OSError,
        )
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        self._entities = mlflow.entities
        with self.asking():
            self.client = mlflow.MlflowClient(tracking_uri=uri)

    def find(self, history: History) -> str | None:
        with self.asking():
            experiment = self.client.get_experiment_by_name(_experiment(history))
            if experiment is None or self._search(experiment.experiment_id, RUN, history.run) is None:
                return None
        return self._where(history)

    def write(self, history: History) -> str:
        run = self.begin(history)
        try:
            run.add(scalars(history))
            run.finish(history)
        except BaseException:  # no half of a run stays, if the store still answers
            run.remove()
            raise
        return self._where(history)

    def begin(self, history: History) -> MlflowRun:
        there = self.find(history)
        if there is not None:
            raise AlreadyThereError(history.run, there)
        with self.asking():
            return self._begun(history)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Turn what MLflow raises into a PlaceError."""
        try:
            yield
        except self._refusals as error:
            said = (str(error) or type(error).__name__).splitlines()[0]
            raise PlaceError(f"MLflow cannot write to {self._place}: {said}") from None

    def metric(self, scalar: Scalar, epoch: float) -> Any:
        return self._entities.Metric(_key(scalar.tag), scalar.value, _milliseconds(epoch + scalar.t), scalar.step)

    def _where(self, history: History) -> str:
        return f"{self._place}, experiment {_experiment(history)}"

    def _begun(self, history: History) -> MlflowRun:
        title = _experiment(history)
        meta = history.meta
        began = epoch(history)
        known = self.client.get_experiment_by_name(title)
        if known:
            experiment = known.experiment_id
        else:
            experiment = self.client.create_experiment(title, self._artifacts)
        name = history.run
        parent = None
        tags = {RUN: history.run, "mlflow.note.content": history.question}
        if "sweep" in meta:
            parent = self._parent(experiment, str(meta["sweep"]), began)
            name = f"{meta['case']}, seed {history.plan.get('seed')}"
            tags |= {CASE: str(meta["case"]), "mlflow.parentRunId": parent}
        tags = {key: value[:LONGEST_TAG] for key, value in tags.items() if value}
        run = self.client.create_run(experiment, start_time=_milliseconds(began), tags=tags, run_name=name)
        params = [self._entities.Param(*each) for each in _params(history.effective).items()]
        for some in _batches(params, PARAMS_AT_ONCE):
            self.client.log_batch(run.info.run_id, params=some)
        return MlflowRun(self, run.info.run_id, parent, began)

    def _parent(self, experiment: str, sweep: str, began: float) -> str:
        """The id of the run of a sweep, which is now running, perhaps again."""
        found = self._search(experiment, SWEEP, sweep)
        if found is not None:
            self.client.update_run(found, status="RUNNING")
            return found
        tags = {SWEEP: sweep}
        run = self.client.create_run(experiment, start_time=_milliseconds(began), tags=tags, run_name=sweep)
        return str(run.info.run_id)

    def _search(self, experiment: str, tag: str, value: str) -> str | None:
        """The id of the run with this tag."""
        quote = '"' if "'" in value else "'"
        found = self.client.search_runs([experiment], f"tags.`{tag}` = {quote}{value}{quote}", max_results=1)
        if found:
            return str(found[0].info.run_id)
        return None


class MlflowRun:
    """One run in a store. ``parent``: the run of its sweep, if it has one. ``epoch``: its beginning, since 1970."""

    def __init__(
        self,
        store: MlflowStore,
        run: str,
        parent: str | None,
        epoch: float,
    ) -> None:
        self._store = store
        self._run = run
        self._parent = parent
        self._epoch = epoch

    def add(self, scalars: Iterable[Scalar]) -> None:
        metrics = [self._store.metric(scalar, self._epoch) for scalar in scalars]
        with self._store.asking():
            for some in _batches(metrics, METRICS_AT_ONCE):
                self._store.client.log_batch(self._run, metrics=some)

    def remove(self) -> None:
        """Remove the run from the store, if that is possible."""
        with contextlib.suppress(PlaceError), self._store.asking():
            self._store.client.delete_run(self._run)

    def finish(self, history: History) -> None:
        client = self._store.client
        end = _milliseconds(self._epoch + history.seconds)
        found = summary(history)
        directory = RunDirectory(history.directory)
        ended = "failed" if history.outcome is None else history.outcome.ended
        with self._store.asking():
            for tag, value in ((VERDICT, found["verdict"]), (ENDED, found["ended"]), (ERROR, found["error"])):
                if value is not None:
                    client.set_tag(self._run, tag, value[:LONGEST_TAG])
            for file in (directory.scenario, directory.report, directory.summary):
                if file.is_file() and not file.is_symlink():  # no link leads a file from elsewhere to the store
                    client.log_artifact(self._run, str(file))
            if history.status != "running":
                client.set_terminated(self._run, STATUS.get(ended, "FINISHED"), end)
            if self._parent is not None:
                client.set_terminated(self._parent, "FINISHED", end)


def _addresses(place: str) -> tuple[str, str | None]:
    """The URI of the tracking store, and the folder of artifacts; None if the server says where they go."""
    if place.startswith(SQLITE):
        folder = Path(place.removeprefix(SQLITE)).absolute().parent
    elif "://" in place:
        return place, None
    else:
        folder = Path(place).absolute()
        place = f"{SQLITE}{folder / 'mlflow.db'}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlaceError(f"{folder} cannot be made ({error.strerror}): choose another folder") from None
    return place, (folder / "artifacts").as_uri()


def _experiment(history: History) -> str:
    """The experiment of a run: its sweep's, or its scenario's."""
    return str(history.meta.get("sweep") or history.plan.get("name") or "edgebed")


def _params(effective: Mapping[str, Any]) -> dict[str, str]:
    """The settings as MLflow takes them; what is too long is cut."""
    return {
        _key(path): (value if isinstance(value, str) else json.dumps(value))[:LONGEST_PARAM]
        for path, value in settings(effective)
    }


def _key(name: str) -> str:
    """A name as MLflow takes it: letters, digits and ``_-./: `` only, and no path that leaves its folder."""
    return posixpath.normpath(re.sub(r"[^\w\-./: ]", "_", name).lstrip("./") or "_")[:LONGEST_KEY]


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _batches(found: Sequence[T], size: int) -> list[Sequence[T]]:
    return [found[start : start + size] for start in range(0, len(found), size)]
