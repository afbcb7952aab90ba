"""The plug-ins that a scenario names: Python files relative to it, or installed modules.

A plug-in must be known before the scenario is checked, because the scenario may name its algorithms and models.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from netem.errors import ProfileError
from netem.library import PROFILES
from netem.profile import LinkProfile
from node.assignment import PluginSource
from node.errors import PluginError
from node.plugins import activate, active, find, profiles
from orchestrator.errors import Problem, ScenarioError
from orchestrator.scenario.language.document import Document
from orchestrator.scenario.language.words import describe
from orchestrator.scenario.sections.profiles import REAL

KEY = "plugins"


def make_known(source: Document, folder: Path) -> None:
    """Make the plug-ins of a scenario, if it lists names, known, and no others. ScenarioError if one cannot be used."""
    sources = []
    problems = []
    names = source.data.get(KEY)
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
        use(sources)
    except PluginError as error:
        place = source.place((KEY,))
        raise ScenarioError([Problem(place, KEY, str(error))]) from None


def use(sources: Iterable[PluginSource]) -> None:
    """Make these plug-ins known. PluginError if one cannot be used, or if a run here keeps others."""
    wanted = tuple(sources)
    if _keepers and wanted != active():
        names = ", ".join(plugin.name for plugin in active())
        raise PluginError(
            f"a run with {names} continues in this program, and other scenarios need the same plug-ins until it ends"
        )
    activate(wanted)
    _add_profiles()


@contextlib.contextmanager
def kept(plugins: Sequence[PluginSource]) -> Iterator[None]:
    """Keep these plug-ins known while the body runs: the nodes of its run need them when they start again."""
    _keepers.extend(plugins)
    try:
        yield
    finally:
        for plugin in plugins:
            _keepers.remove(plugin)


_keepers: list[PluginSource] = []
_added: set[str] = set()  # the names of link profiles that plug-ins have added


def _add_profiles() -> None:
    """Make the plug-ins' link profiles known, and no earlier ones. PluginError if one cannot be read."""
    for name in _added:
        PROFILES.pop(name, None)
    _added.clear()
    for name, written in profiles().items():
        if name in PROFILES or name == REAL:
            raise PluginError(f"there is already a link profile {name!r}: choose another name")
        try:
            profile = LinkProfile.from_mapping(written)
            if profile.real:
                raise ProfileError("real: a named profile is for links that are shaped")
            PROFILES[name] = profile
        except ProfileError as error:
            raise PluginError(f"link profile {name}: {error}") from None
        _added.add(name)


def _read(value: Any) -> tuple[PluginSource, ...]:
    """The sources of the names that `make_known` has made known."""
    is_list = isinstance(value, list | tuple)
    if not is_list or not all(isinstance(entry, str | PluginSource) for entry in value):
        raise ValueError(f"write a list of files and modules, like [fedavgm.py, mylab.models], not {describe(value)}")
    known = {source.name: source for source in active()}
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
