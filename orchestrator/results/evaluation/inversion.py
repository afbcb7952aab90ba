"""Results of the inversion attack on shared embeddings (DFFKE, appendix C), if the scenario asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Base64Bytes, BaseModel, FiniteFloat, PositiveInt, ValidationError, model_validator

from orchestrator.record.events.nodes import Inversion
from orchestrator.record.rows import Event
from orchestrator.results.history import History

Scores = Mapping[str, Any]  # by kind of guess
GUESSES = {"reconstructed": "reconstructed", "class_mean": "class mean", "synthetic": "synthetic"}


class InversionScore(BaseModel):
    """How close guesses are to the images: mean squared error, and the share that is recognised."""

    mse: FiniteFloat
    recognised: FiniteFloat


class Found(BaseModel):
    """The required content of a client's event. Nodes write it, so it is validated."""

    samples: PositiveInt
    shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    scores: dict[str, InversionScore]
    pictures: dict[str, list[Base64Bytes]]

    @model_validator(mode="after")
    def _fits(self) -> Found:
        channels, height, width = self.shape
        has_scores = self.scores.keys() >= set(GUESSES)
        has_pictures = self.pictures.keys() >= {"private", *GUESSES}
        if channels > 4 or not has_scores or not has_pictures:
            raise ValueError("not an attack's guesses")
        size = channels * height * width
        for pictures in self.pictures.values():
            if any(len(picture) != size for picture in pictures):
                raise ValueError("pictures are not of the shape")
        return self


def inversions(history: History) -> dict[str, Event]:
    """The last comparison of each client between reconstructions and its images. Events with invalid content, for
    example from a node that runs another program, are skipped."""
    latest = {}
    for event in history.events(Inversion.NAME):
        with contextlib.suppress(ValidationError):
            Found.model_validate(event.data)
            latest[event.node] = event
    ordered = {}
    for node in history.nodes:
        if node in latest:
            ordered[node] = latest[node]
    return ordered


def inversion(history: History) -> dict[str, Any] | None:
    """For the summary: the number of attacked images, and per kind of guess the mean squared error and the recognised
    share, as means over the clients; None without an attack."""
    events = inversions(history).values()
    if not events:
        return None
    samples = 0
    scores = []
    for event in events:
        samples += event.data["samples"]
        scores.append(event.data["scores"])
    means: dict[str, dict[str, float]] = {}
    for kind, figures in scores[0].items():
        means[kind] = {}
        for name in figures:
            means[kind][name] = _mean(scores, kind, name)
    return {"samples": samples, **means}


def _mean(scores: Sequence[Scores], kind: str, name: str) -> float:
    """The mean of a figure over the clients' scores of a kind of guess."""
    total: float = sum(score[kind][name] for score in scores)
    return total / len(scores)
