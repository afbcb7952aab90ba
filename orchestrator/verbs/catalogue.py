"""`list`: what a scenario may name, and the checks of a run."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from typing import Any

from netem import library
from netem.media import library as media
from netem.units import format_size
from node.algorithms.registry import ALGORITHMS, Algorithm
from node.catalogue.datasets import DATASET_PATHS, DATASETS
from node.catalogue.models import MODEL_GROUPS, MODELS, ModelEntry, ModelGroup
from node.extras import lacking
from node.learning.local_training import LocalTraining
from node.parameters import Parameters
from orchestrator.errors import HostError
from orchestrator.scenario.sections import hardware

BASELINES = "edgebed.baselines"
"""The package of edgebed's own plug-ins."""

Entry = dict[str, Any]


def entries(kind: str) -> list[Entry]:
    """The entries of one of `KINDS`, each with the same keys. Quantities are written as in a scenario; None: none."""
    return KINDS[kind]()


def _algorithms() -> list[Entry]:
    entries = []
    for name, algorithm in ALGORITHMS.items():
        entries.append(
            {
                "name": name,
                "tiers": _tiers(algorithm),
                "summary": algorithm.summary,
                "parameters": _parameters(algorithm.params, LocalTraining),
            }
        )
    return entries


def _baselines() -> list[Entry]:
    """The algorithms of edgebed's plug-ins, and the plug-in of each. HostError if PyTorch is missing."""
    package = import_module(BASELINES)
    entries: list[Entry] = []
    for module in pkgutil.iter_modules(package.__path__, f"{BASELINES}."):
        try:
            plugin = getattr(import_module(module.name), "PLUGIN", None)
        except ModuleNotFoundError as error:
            reason = lacking(error)
            if reason is None:
                raise
            raise HostError(f"the list of baselines {reason}") from None
        for algorithm in plugin.algorithms if plugin else ():
            entries.append(
                {
                    "name": algorithm.name,
                    "plugins": module.name,
                    "tiers": _tiers(algorithm),
                    "summary": algorithm.summary,
                    "parameters": _parameters(algorithm.params, LocalTraining),
                }
            )
    return entries


def _tiers(algorithm: Algorithm) -> str:
    """The tiers that an algorithm needs, and in brackets those that it also supports."""
    tiers = []
    for tier in ("cloud", "edges", "devices"):
        need = getattr(algorithm, tier)
        if need == "optional":
            tiers.append(f"({tier})")
        elif need != "none":
            tiers.append(tier)
    return ", ".join(tiers)


def _models() -> list[Entry]:
    models: list[ModelEntry | ModelGroup] = [*MODELS.values(), *MODEL_GROUPS.values()]
    entries = []
    for model in models:
        parameters = _parameters(model.params, Parameters)
        entries.append({"name": model.name, "summary": model.summary, "parameters": parameters})
    return entries


def _parameters(kind: type[Parameters], shared: type[Parameters]) -> Entry:
    """The defaults of the parameters that are not in ``shared``."""
    usual = {field.name for field in fields(shared)}
    defaults = {}
    for field in fields(kind):
        if field.name not in usual:
            defaults[field.name] = field.default
    return defaults


def _datasets() -> list[Entry]:
    entries: list[Entry] = []
    for name, dataset in DATASETS.items():
        sample = "x".join(str(size) for size in dataset.shape)
        entries.append(
            {
                "name": name,
                "sample": sample,
                "classes": dataset.classes,
                "summary": dataset.summary,
            }
        )
    for description in DATASET_PATHS.values():
        form, _, summary = description.partition(", ")
        entries.append(
            {
                "name": form,
                "sample": None,
                "classes": None,
                "summary": summary,
            }
        )
    return entries


def _profiles() -> list[Entry]:
    entries = []
    for name, profile in library.PROFILES.items():
        written = profile.to_mapping()
        base = name.removesuffix("-up")
        entries.append(
            {
                "name": name,
                "latency": written.get("latency"),
                "jitter": written.get("jitter"),
                "rate": written.get("rate"),
                "source": library.SOURCES.get(base, ""),
            }
        )
    return entries


def _media() -> list[Entry]:
    keys = ("rate", "up", "down", "duplex", "share", "buffer")
    entries = []
    for name, written in media.MEDIA.items():
        settings = {key: written.get(key) for key in keys}
        source = media.SOURCES[name]
        entries.append({"name": name, **settings, "source": source})
    return entries


def _hardware() -> list[Entry]:
    entries = []
    for name, board in hardware.HARDWARE.items():
        memory = None if board.memory is None else format_size(board.memory)
        entries.append(
            {
                "name": name,
                "speed": board.speed,
                "cores": board.cores,
                "memory": memory,
                "source": hardware.SOURCES[name],
            }
        )
    return entries


def _checks() -> list[Entry]:
    from orchestrator.results.checks.registry import CHECKS

    entries = []
    for name, check in CHECKS.items():
        entries.append({"name": name, "summary": _first_sentence(check)})
    return entries


def _first_sentence(check: Callable[..., object]) -> str:
    """The first statement of a docstring, in one line."""
    words = (check.__doc__ or "").split()
    statements = re.split(r"[.;](?: |$)", " ".join(words))
    return statements[0] + "."


KINDS: dict[str, Callable[[], list[Entry]]] = {
    "algorithms": _algorithms,
    "baselines": _baselines,
    "models": _models,
    "datasets": _datasets,
    "profiles": _profiles,
    "media": _media,
    "hardware": _hardware,
    "checks": _checks,
}
