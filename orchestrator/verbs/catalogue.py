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
    return [
        {
            "name": name,
            "tiers": _tiers(algorithm),
            "summary": algorithm.summary,
            "parameters": _parameters(algorithm.params, LocalTraining),
        }
        for name, algorithm in ALGORITHMS.items()
    ]


def _baselines() -> list[Entry]:
    """The algorithms of edgebed's plug-ins, and the plug-in of each. HostError if PyTorch is missing."""
    package = import_module(BASELINES)
    found: list[Entry] = []
    for module in pkgutil.iter_modules(package.__path__, f"{BASELINES}."):
        try:
            plugin = getattr(import_module(module.name), "PLUGIN", None)
        except ModuleNotFoundError as error:
            reason = lacking(error)
            if reason is None:
                raise
            raise HostError(f"the list of baselines {reason}") from None
        for algorithm in plugin.algorithms if plugin else ():
            found.append(
                {
                    "name": algorithm.name,
                    "plugins": module.name,
                    "tiers": _tiers(algorithm),
                    "summary": algorithm.summary,
                    "parameters": _parameters(algorithm.params, LocalTraining),
                }
            )
    return found


def _tiers(algorithm: Algorithm) -> str:
    """The tiers that an algorithm needs, and in brackets those that it also supports."""
    needs = {"cloud": algorithm.cloud, "edges": algorithm.edges, "devices": algorithm.devices}
    return ", ".join(f"({tier})" if need == "optional" else tier for tier, need in needs.items() if need != "none")


def _models() -> list[Entry]:
    models: list[ModelEntry | ModelGroup] = [*MODELS.values(), *MODEL_GROUPS.values()]
    return [
        {"name": each.name, "summary": each.summary, "parameters": _parameters(each.params, Parameters)}
        for each in models
    ]


def _parameters(kind: type[Parameters], shared: type[Parameters]) -> Entry:
    """The defaults of the parameters that are not in ``shared``."""
    usual = {entry.name for entry in fields(shared)}
    return {entry.name: entry.default for entry in fields(kind) if entry.name not in usual}


def _datasets() -> list[Entry]:
    named: list[Entry] = [
        {"name": name, "sample": "x".join(map(str, each.shape)), "classes": each.classes, "summary": each.summary}
        for name, each in DATASETS.items()
    ]
    forms = [text.partition(", ") for text in DATASET_PATHS.values()]
    return named + [{"name": form, "sample": None, "classes": None, "summary": text} for form, _, text in forms]


def _profiles() -> list[Entry]:
    keys = ("latency", "jitter", "rate")
    return [
        {
            "name": name,
            **{key: written.get(key) for key in keys},
            "source": library.SOURCES.get(name.removesuffix("-up"), ""),
        }
        for name, profile in library.PROFILES.items()
        for written in [profile.to_mapping()]
    ]


def _media() -> list[Entry]:
    keys = ("rate", "up", "down", "duplex", "share", "buffer")
    return [
        {"name": name, **{key: written.get(key) for key in keys}, "source": media.SOURCES[name]}
        for name, written in media.MEDIA.items()
    ]


def _hardware() -> list[Entry]:
    return [
        {
            "name": name,
            "speed": each.speed,
            "cores": each.cores,
            "memory": None if each.memory is None else format_size(each.memory),
            "source": hardware.SOURCES[name],
        }
        for name, each in hardware.HARDWARE.items()
    ]


def _checks() -> list[Entry]:
    from orchestrator.results.checks.registry import CHECKS

    return [{"name": name, "summary": _first_sentence(check)} for name, check in CHECKS.items()]


def _first_sentence(check: Callable[..., object]) -> str:
    """The first statement of a docstring, in one line."""
    return re.split(r"[.;](?: |$)", " ".join((check.__doc__ or "").split()))[0] + "."


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
