"""The catalogue of a scenario: all that it can name, from edgebed and from the plug-ins that the scenario lists.

It is a value. It is made before the scenario is checked, travels with the scenario and its plan, and never changes, so
what one scenario names is unknown to every other one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from netem.errors import ProfileError
from netem.library import PROFILES
from netem.profile import LinkProfile
from node import plugins
from node.assignment import PluginSource
from node.errors import PluginError
from node.plugins import Check, Draw, LearningCatalogue, Plugin, advertised, find, taken, with_plugins
from orchestrator.errors import Problem, ScenarioError
from orchestrator.scenario.exporters import EXPORTERS, PDF, ExporterKind
from orchestrator.scenario.language.document import Document
from orchestrator.scenario.language.words import describe
from orchestrator.scenario.sections.drivers import DRIVERS, DriverKind
from orchestrator.scenario.sections.expectations import CheckName

KEY = "plugins"
CATALOGUE = "catalogue"
"""The key of the catalogue in the context in which a scenario is validated."""

REAL = "real"
"""Takes the place of a profile's name: the network between the hosts is the link, and edgebed does not shape it."""


@dataclass(frozen=True, kw_only=True)
class Catalogue(LearningCatalogue):
    """What a scenario can name, the ``checks`` and ``figures`` that plug-ins add to a run, see `Plugin`, and the
    ``exporters`` of runs."""

    profiles: Mapping[str, LinkProfile]
    drivers: Mapping[str, DriverKind]
    checks: Mapping[str, Check]
    figures: Mapping[str, Draw]
    exporters: Mapping[str, ExporterKind]


def _extended(
    learning: LearningCatalogue,
    profiles: Mapping[str, LinkProfile],
    drivers: Mapping[str, DriverKind],
    checks: Mapping[str, Any],
    figures: Mapping[str, Any],
    exporters: Mapping[str, ExporterKind],
) -> Catalogue:
    return Catalogue(
        algorithms=learning.algorithms,
        models=learning.models,
        datasets=learning.datasets,
        partitions=learning.partitions,
        plugins=learning.plugins,
        profiles=profiles,
        drivers=drivers,
        checks=checks,
        figures=figures,
        exporters=exporters,
    )


_NONE: Mapping[str, Any] = MappingProxyType({})
EDGEBED = _extended(
    plugins.EDGEBED,
    MappingProxyType(PROFILES),
    DRIVERS,
    checks=_NONE,
    figures=_NONE,
    exporters=EXPORTERS,
)
"""The catalogue without any plug-in."""


def catalogue_of(sources: Iterable[PluginSource]) -> Catalogue:
    """The catalogue with these plug-ins. PluginError, with file and line, if one cannot be used."""
    learning = with_plugins(sources)
    if not learning.plugins:
        return EDGEBED
    profiles = dict(PROFILES)
    drivers = dict(DRIVERS)
    checks: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    exporters = dict(EXPORTERS)
    for source, plugin in learning.plugins.items():
        _add_profiles(source, plugin, profiles)
        _add_drivers(source, plugin, drivers)
        _add_functions(source, "check", plugin.checks, checks, own=get_args(CheckName))
        _add_functions(source, "figure", plugin.figures, figures)
        _add_exporters(source, plugin, exporters)
    return _extended(learning, profiles, drivers, checks, figures, exporters)


def _add_drivers(source: PluginSource, plugin: Plugin, drivers: dict[str, DriverKind]) -> None:
    """Add the drivers of a plug-in. PluginError if one cannot be used."""
    for kind in plugin.drivers:
        if not isinstance(kind, DriverKind):
            raise PluginError(f"{source.name}: drivers holds a {type(kind).__name__}, not an edgebed.DriverKind")
        if kind.name in drivers:
            raise PluginError(taken(source, "driver", kind.name))
        if kind.simulated:
            raise PluginError(f"{source.name}: driver {kind.name}: only edgebed's own driver sim simulates nodes")
        drivers[kind.name] = replace(kind, module=kind.module or plugin.module)


def _add_functions(
    source: PluginSource,
    what: str,
    functions: Mapping[str, Any],
    known: dict[str, Any],
    own: Container[str] = (),
) -> None:
    """Add the checks, figures or exporters of a plug-in. PluginError if one is no function, or if its name is taken."""
    for name, function in functions.items():
        if name in known or name in own:
            raise PluginError(taken(source, what, name))
        if not callable(function):
            raise PluginError(f"{source.name}: {what} {name} is a {type(function).__name__}, not a function of rows")
        known[name] = function


def _add_exporters(source: PluginSource, plugin: Plugin, exporters: dict[str, ExporterKind]) -> None:
    """Add the formats of a plug-in. PluginError if one is no function, or if its name is taken."""
    functions: dict[str, Any] = {}
    _add_functions(source, "exporter", plugin.exporters, functions, own={*exporters, PDF})
    for name, function in functions.items():
        exporters[name] = ExporterKind("", write=function, source=source)


def installed_drivers() -> dict[str, DriverKind]:
    """The drivers of edgebed and of the plug-ins that installed packages advertise."""
    drivers = dict(DRIVERS)
    for catalogue in _installed():
        drivers |= catalogue.drivers
    return drivers


def installed_exporters() -> dict[str, ExporterKind]:
    """The export formats of edgebed and of the plug-ins that installed packages advertise."""
    exporters = dict(EXPORTERS)
    for catalogue in _installed():
        exporters |= catalogue.exporters
    return exporters


def _installed() -> Iterator[Catalogue]:
    """The catalogue with each plug-in that an installed package advertises. One that cannot be used is left out."""
    for name in advertised():
        with contextlib.suppress(PluginError):
            yield catalogue_of([find(name, Path())])


def _add_profiles(source: PluginSource, plugin: Plugin, profiles: dict[str, LinkProfile]) -> None:
    """Add the link profiles of a plug-in. PluginError if one cannot be read."""
    for name, written in plugin.profiles.items():
        if name in profiles or name == REAL:
            raise PluginError(taken(source, "link profile", name))
        try:
            profile = LinkProfile.from_mapping(written)
        except ProfileError as error:
            raise PluginError(f"link profile {name}: {error}") from None
        if profile.real:
            raise PluginError(f"link profile {name}: real: a named profile is for links that are shaped")
        profiles[name] = profile


def added(catalogue: Catalogue) -> list[str]:
    """What the plug-ins of a catalogue have added: "algorithm fedavgm", "model tanh"."""
    kinds: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
        "algorithm": (catalogue.algorithms, EDGEBED.algorithms),
        "model": (catalogue.models, EDGEBED.models),
        "data set": (catalogue.datasets, EDGEBED.datasets),
        "partition": (catalogue.partitions, EDGEBED.partitions),
        "link profile": (catalogue.profiles, EDGEBED.profiles),
        "driver": (catalogue.drivers, EDGEBED.drivers),
        "check": (catalogue.checks, EDGEBED.checks),
        "figure": (catalogue.figures, EDGEBED.figures),
        "exporter": (catalogue.exporters, EDGEBED.exporters),
    }
    names = []
    for what, (entries, own) in kinds.items():
        for name in entries:
            if name not in own:
                names.append(f"{what} {name}")
    return names


def catalogue_in(info: ValidationInfo) -> Catalogue:
    """The catalogue in which a value of a scenario is looked up: that of its plug-ins, otherwise edgebed's own."""
    catalogue: Catalogue = (info.context or {}).get(CATALOGUE, EDGEBED)
    return catalogue


def listed_plugins(data: Mapping[str, Any]) -> Any:
    """The plug-ins that a scenario lists, as they are written. If it names a driver that edgebed does not have, and an
    installed package advertises a plug-in of this name, that plug-in is the last one."""
    names = data.get(KEY, [])
    driver = data.get("driver")
    if not isinstance(names, list) or not isinstance(driver, str):
        return names
    if driver in DRIVERS or driver in names or driver not in advertised():
        return names
    return [*names, driver]


def catalogue_for(source: Document, folder: Path) -> Catalogue:
    """The catalogue with the plug-ins that a scenario lists. ScenarioError if one cannot be used."""
    sources = []
    problems = []
    names = listed_plugins(source.data)
    if not isinstance(names, list):
        names = []
    for position, name in enumerate(names):
        if isinstance(name, str):
            try:
                sources.append(find(name, folder))
            except PluginError as error:
                place = source.place((KEY, position))
                problems.append(Problem(place, f"{KEY}[{position}]", str(error)))
    if problems:
        raise ScenarioError(problems)
    try:
        return catalogue_of(sources)
    except PluginError as error:
        place = source.place((KEY,))
        raise ScenarioError([Problem(place, KEY, str(error))]) from None


def _read(value: Any, info: ValidationInfo) -> tuple[PluginSource, ...]:
    """The sources of the names, from the catalogue."""
    is_list = isinstance(value, list | tuple)
    if not is_list or not all(isinstance(entry, str | PluginSource) for entry in value):
        raise ValueError(f"write a list of files and modules, like [fedavgm.py, mylab.models], not {describe(value)}")
    known = {source.name: source for source in catalogue_in(info).sources}
    sources = []
    for entry in value:
        if isinstance(entry, PluginSource):
            sources.append(entry)
        else:
            sources.append(known[entry])
    return tuple(sources)


PluginSources = Annotated[
    tuple[PluginSource, ...],
    BeforeValidator(_read),
    PlainSerializer(lambda sources: [source.name for source in sources]),
    WithJsonSchema({"type": "array", "items": {"type": "string"}}),
]
