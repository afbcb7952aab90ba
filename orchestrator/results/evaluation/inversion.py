"""Results of the inversion attack on shared embeddings (DFFKE, appendix C), if the scenario asks for it."""

from __future__ import annotations

import contextlib
from typing import Any

from pydantic import Base64Bytes, BaseModel, FiniteFloat, PositiveInt, ValidationError, model_validator

from orchestrator.record.events.nodes import Inversion
from orchestrator.record.rows import Event
from orchestrator.results.history import History

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
        if (
            self.shape[0] > 4
            or not self.scores.keys() >= set(GUESSES)
            or not self.pictures.keys() >= {"private", *GUESSES}
        ):
            raise ValueError("not an attack's guesses")
        channels, height, width = self.shape
        if any(len(picture) != channels * height * width for made in self.pictures.values() for picture in made):
            raise ValueError("pictures are not of the shape")
        return self


def inversions(history: History) -> dict[str, Event]:
    """The last comparison of each client between reconstructions and its images. Events with invalid content, for
    example from a node that runs another program, are skipped."""
    found = {}
    for event in history.events(Inversion.NAME):
        with contextlib.suppress(ValidationError):
            Found.model_validate(event.data)
            found[event.node] = event
    return {node: found[node] for node in history.nodes if node in found}


def inversion(history: History) -> dict[str, Any] | None:
    """For the summary: the number of attacked images, and per kind of guess the mean squared error and the recognised
    share, as means over the clients; None without an attack."""
    found = [event.data for event in inversions(history).values()]
    if not found:
        return None
    scores = [each["scores"] for each in found]
    means = {
        kind: {name: sum(of[kind][name] for of in scores) / len(scores) for name in figures}
        for kind, figures in scores[0].items()
    }
    return {"samples": sum(each["samples"] for each in found), **means}
