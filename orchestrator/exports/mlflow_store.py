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
from orchestrator.exports.destinations import imported
from orchestrator.exports.scalars import Scalar, epoch, scalars, settings
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from orchestrator.results.question import question
from orchestrator.results.summary import summary

EXTRA = "mlflow"
RUN = "edgebed.run"
SWEEP = "edgebed.sweep"
CASE = "edgebed.case"
VERDICT = "edgebed.verdict"
ENDED = "edgebed.ended"
ERROR = "edgebed.error"
LONGEST_KEY = 250  # characters, as the next two (mlflow.utils.validation)
LONGEST_PARAM = 6000
LONGEST_TAG = 8000
METRICS_AT_ONCE = 1000  # in one request
PARAMS_AT_ONCE = 100
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
            if experiment is None:
                return None
            existing = self._search(experiment.experiment_id, RUN, history.run)
            if existing is None:
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
        existing = self.find(history)
        if existing is not None:
            raise AlreadyThereError(history.run, existing)
        with self.asking():
            return self._begun(history)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Turn what MLflow raises into a PlaceError."""
        try:
            yield
        except self._refusals as error:
            message = str(error) or type(error).__name__
            first_line = message.splitlines()[0]
            raise PlaceError(f"MLflow cannot write to {self._place}: {first_line}") from None

    def metric(self, scalar: Scalar, epoch: float) -> Any:
        timestamp = _milliseconds(epoch + scalar.t)
        return self._entities.Metric(
            _key(scalar.tag),
            scalar.value,
            timestamp,
            scalar.step,
        )

    def _where(self, history: History) -> str:
        return f"{self._place}, experiment {_experiment(history)}"

    def _begun(self, history: History) -> MlflowRun:
        title = _experiment(history)
        meta = history.meta
        start = epoch(history)
        known = self.client.get_experiment_by_name(title)
        if known:
            experiment = known.experiment_id
        else:
            experiment = self.client.create_experiment(title, self._artifacts)
        name = history.run
        parent = None
        texts = {RUN: history.run, "mlflow.note.content": question(history)}
        if "sweep" in meta:
            sweep = str(meta["sweep"])
            parent = self._parent(experiment, sweep, start)
            name = f"{meta['case']}, seed {history.plan.get('seed')}"
            texts |= {CASE: str(meta["case"]), "mlflow.parentRunId": parent}
        tags = {}
        for key, value in texts.items():
            if value:
                tags[key] = value[:LONGEST_TAG]
        run = self._new_run(experiment, name, tags, start)
        params = []
        for key, value in _params(history.effective).items():
            params.append(self._entities.Param(key, value))
        for batch in _batches(params, PARAMS_AT_ONCE):
            self.client.log_batch(run.info.run_id, params=batch)
        return MlflowRun(self, run.info.run_id, parent, start)

    def _parent(self, experiment: str, sweep: str, start: float) -> str:
        """The id of the run of a sweep, which is now running, perhaps again."""
        existing = self._search(experiment, SWEEP, sweep)
        if existing is not None:
            self.client.update_run(existing, status="RUNNING")
            return existing
        tags = {SWEEP: sweep}
        run = self._new_run(experiment, sweep, tags, start)
        return str(run.info.run_id)

    def _new_run(
        self,
        experiment: str,
        name: str,
        tags: Mapping[str, str],
        start: float,
    ) -> Any:
        return self.client.create_run(
            experiment,
            start_time=_milliseconds(start),
            tags=tags,
            run_name=name,
        )

    def _search(
        self,
        experiment: str,
        tag: str,
        value: str,
    ) -> str | None:
        """The id of the run with this tag."""
        quote = '"' if "'" in value else "'"
        condition = f"tags.`{tag}` = {quote}{value}{quote}"
        runs = self.client.search_runs([experiment], condition, max_results=1)
        if not runs:
            return None
        return str(runs[0].info.run_id)


class MlflowRun:
    """One run in a store. ``parent``: the run of its sweep, if it has one. ``epoch``: its start, since 1970."""

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
            for batch in _batches(metrics, METRICS_AT_ONCE):
                self._store.client.log_batch(self._run, metrics=batch)

    def remove(self) -> None:
        """Remove the run from the store, if that is possible."""
        with contextlib.suppress(PlaceError), self._store.asking():
            self._store.client.delete_run(self._run)

    def finish(self, history: History) -> None:
        client = self._store.client
        end = _milliseconds(self._epoch + history.seconds)
        result = summary(history)
        directory = RunDirectory(history.directory)
        ended = "failed" if history.outcome is None else history.outcome.ended
        tags = {
            VERDICT: result["verdict"],
            ENDED: result["ended"],
            ERROR: result["error"],
        }
        with self._store.asking():
            for tag, value in tags.items():
                if value is not None:
                    client.set_tag(self._run, tag, value[:LONGEST_TAG])
            for file in (directory.scenario, directory.report, directory.summary):
                if file.is_file() and not file.is_symlink():  # no link leads a file from elsewhere to the store
                    client.log_artifact(self._run, str(file))
            if history.status != "running":
                status = STATUS.get(ended, "FINISHED")
                client.set_terminated(self._run, status, end)
            if self._parent is not None:
                client.set_terminated(self._parent, "FINISHED", end)


def _addresses(place: str) -> tuple[str, str | None]:
    """The URI of the tracking store, and the folder of artifacts; None if the server decides where they go."""
    if place.startswith(SQLITE):
        file = Path(place.removeprefix(SQLITE))
        folder = file.absolute().parent
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
    sweep = history.meta.get("sweep")
    scenario = history.plan.get("name")
    return str(sweep or scenario or "edgebed")


def _params(effective: Mapping[str, Any]) -> dict[str, str]:
    """The settings as MLflow takes them; what is too long is cut."""
    params = {}
    for path, value in settings(effective):
        text = value if isinstance(value, str) else json.dumps(value)
        params[_key(path)] = text[:LONGEST_PARAM]
    return params


def _key(name: str) -> str:
    """A name as MLflow takes it: letters, digits and ``_-./: `` only, and no path that leaves its folder."""
    plain = re.sub(r"[^\w\-./: ]", "_", name)
    relative = plain.lstrip("./") or "_"
    return posixpath.normpath(relative)[:LONGEST_KEY]


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _batches(
    entities: Sequence[T],
    size: int,
) -> list[Sequence[T]]:
    starts = range(0, len(entities), size)
    return [entities[start : start + size] for start in starts]
