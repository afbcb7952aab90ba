"""Plug-ins: a user's own algorithms, models, data sets and partitions, in a Python file or an installed module.

A plug-in assigns a `Plugin` to the name ``PLUGIN``. `with_plugins` makes the catalogue of a run: the entries of
edgebed, and those of its plug-ins under their own names. Names of edgebed, and of other plug-ins of the same run, are
refused.

A catalogue is a value: it never changes, and what one run names is unknown to another.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoints
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

from node.algorithms.registry import ALGORITHMS, Algorithm, known_algorithms
from node.assignment import PLUGIN_FILES, PluginSource
from node.catalogue.datasets import DATASETS, Dataset
from node.catalogue.models import MODEL_GROUPS, MODELS, ModelEntry
from node.catalogue.partitions import PARTITIONS, PartitionParameters, PartitionScheme
from node.errors import PluginError
from node.extras import lacking
from node.learning.local_training import LocalTraining
from node.parameters import Parameters
from node.role import Role

GROUP = "edgebed"
"""The group of entry points by which installed packages advertise their plug-ins."""

MOST_BYTES = 8 << 20  # of a plug-in's source: a folder with more holds something else
KEY_LENGTH = 12  # hexadecimal digits of a hash at the end of a module's name
MOST_LOADED = 64  # plug-ins whose modules this process keeps
_TIERS = {"cloud": "cloud", "edges": "edge", "devices": "device"}


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """What a plug-in adds. An algorithm's roles are in the mapping ``ROLES`` of the module that it names, by default of
    the plug-in itself. A model needs no `measure`: its size is measured. A data set has `read`, a partition `divide`. A
    profile of a link is written as in a scenario: `{"microwave": {"latency": "3ms", "rate": "200mbit"}}`.

    A driver is a `DriverKind`; an empty module is that of the plug-in. A check is a function of the run's rows when the
    run has ended: `check(rows)` returns a verdict ("pass", "fail" or "unknown") and a sentence, or None if it does not
    apply. `rows(kind)` gives rows as `Run.rows`. A figure is a function of the rows too, and returns `Curves` for the
    report. Checks and figures have names that readers see.

    An exporter is a function that writes a finished run for another tool: `write(rows, folder)` fills the new, empty
    `folder` of the run, a `pathlib.Path`. Its name is the format of `edgebed export --to`.

    ``module`` is set when the plug-in is read.
    """

    algorithms: Sequence[Algorithm] = ()
    models: Sequence[ModelEntry] = ()
    datasets: Sequence[Dataset] = ()
    partitions: Sequence[PartitionScheme] = ()
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drivers: Sequence[Any] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)
    figures: Mapping[str, Draw] = field(default_factory=dict)
    exporters: Mapping[str, Export] = field(default_factory=dict)
    module: str = ""


Rows = Callable[[str], list[dict[str, Any]]]
"""Gives the rows of one kind."""

Check = Callable[[Rows], tuple[str, str] | None]
Draw = Callable[[Rows], Any]
Export = Callable[[Rows, Path], object]


def find(name: str, folder: Path) -> PluginSource:
    """The source of a plug-in: a file, relative to ``folder``, if the name ends in ``.py``; else the module of an entry
    point of this name, or a module that Python finds. PluginError if there is none."""
    if name.endswith(".py"):
        root = folder / name
        if not root.stem.isidentifier():
            raise PluginError(f"{name}: the file's name is no Python name: use letters, digits and _")
        module = f"{PLUGIN_FILES}.{root.stem}"
    else:
        module = _advertised(name) or name
        root = _root_of(module)
    try:
        path = str(root.absolute())
        source = PluginSource(name, module, path, "")
        contents = source.contents()
    except OSError as error:
        raise PluginError(f"{name} cannot be read: {error.strerror}; paths begin at the scenario's folder") from None
    size = sum(map(len, contents.values()))
    if size > MOST_BYTES:
        raise PluginError(
            f"{name}: {root} has more than {MOST_BYTES >> 20} MiB of Python files: name a smaller package"
        )
    return PluginSource(name, module, path, digest(contents))


def digest(contents: Mapping[str, bytes]) -> str:
    """SHA-256 of files, with their paths."""
    hash = hashlib.sha256()
    for path, content in contents.items():
        header = f"{path}\0{len(content)}\0"
        hash.update(os.fsencode(header) + content)
    return hash.hexdigest()


def advertised() -> dict[str, str]:
    """The installed packages that advertise plug-ins, by the name of the plug-in."""
    packages = {}
    for point in sorted(_entry_points(), key=lambda point: point.name):
        if point.dist is None:
            packages[point.name] = point.value
        else:
            packages[point.name] = point.dist.name
    return packages


def _advertised(name: str) -> str | None:
    """The module of an installed package's entry point in the group ``edgebed``. PluginError if two have the name."""
    modules = sorted({point.value for point in _entry_points() if point.name == name})
    if not modules:
        return None
    if len(modules) > 1:
        known = ", ".join(modules)
        raise PluginError(f"{name}: several installed packages advertise it: {known}; name the module")
    return modules[0]


def _entry_points() -> EntryPoints:
    """Those of plug-ins. Reading them takes long, so they are kept until a package is installed or removed."""
    places = [(place, _changed(place)) for place in sys.path]
    return _read_entry_points(tuple(places))


@lru_cache(maxsize=1)
def _read_entry_points(places: Sequence[tuple[str, int]]) -> EntryPoints:
    return importlib.metadata.entry_points(group=GROUP)


def _changed(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


def _root_of(module: str) -> Path:
    """The file or folder of the module's top-level package."""
    top, _, _ = module.partition(".")
    spec = None
    if top.isidentifier():
        with contextlib.suppress(ValueError):
            spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        raise PluginError(
            f"no module {module!r}: install its package where edgebed is installed, or name a file that ends in .py"
        )
    origin = Path(spec.origin)
    if spec.submodule_search_locations:
        return origin.parent
    return origin


@dataclass(frozen=True, kw_only=True)
class LearningCatalogue:
    """What nodes know by name. ``plugins``: those that the entries beside edgebed's own come from."""

    algorithms: Mapping[str, Algorithm]
    models: Mapping[str, ModelEntry]
    datasets: Mapping[str, Dataset]
    partitions: Mapping[str, PartitionScheme]
    plugins: Mapping[PluginSource, Plugin]

    @property
    def sources(self) -> tuple[PluginSource, ...]:
        return tuple(self.plugins)


EDGEBED = LearningCatalogue(
    algorithms=ALGORITHMS,
    models=MODELS,
    datasets=DATASETS,
    partitions=PARTITIONS,
    plugins=MappingProxyType({}),
)
"""The catalogue without any plug-in."""


def with_plugins(sources: Iterable[PluginSource]) -> LearningCatalogue:
    """The catalogue with these plug-ins, which are read in their order. PluginError, with file and line, if one cannot
    be used."""
    catalogue = EDGEBED
    for source in _distinct(sources):
        with known_algorithms(catalogue.algorithms):
            plugin = _plugin(source, catalogue.sources)
        catalogue = _with(catalogue, source, plugin)
    return catalogue


def _distinct(sources: Iterable[PluginSource]) -> list[PluginSource]:
    """The sources; PluginError if two have one module."""
    by_module: dict[str, PluginSource] = {}
    for source in sources:
        if source.module in by_module:
            other = by_module[source.module].name
            if source.name == other:
                raise PluginError(f"{source.name} is given twice")
            raise PluginError(f"{source.name} and {other} have the same name for Python: rename one of them")
        by_module[source.module] = source
    return list(by_module.values())


def is_of_plugin(module: str, sources: Iterable[PluginSource]) -> bool:
    """Whether a module belongs to one of these plug-ins."""
    for source in sources:
        if source.is_file:
            name = module.removeprefix(f"{source.module}_")
            if name != module and _is_digest(name):
                return True
            continue
        package, _, _ = source.module.partition(".")
        if module == package or module.startswith(f"{package}."):
            return True
    return False


def _is_digest(text: str) -> bool:
    return len(text) == KEY_LENGTH and set(text) <= set("0123456789abcdef")


def _with(catalogue: LearningCatalogue, source: PluginSource, plugin: Plugin) -> LearningCatalogue:
    """The catalogue with the entries of one more plug-in. PluginError if one cannot be used."""
    algorithms = dict(catalogue.algorithms)
    for algorithm in plugin.algorithms:
        _check_algorithm(source, algorithm)
        _enter(source, algorithms, "algorithm", algorithm.name, algorithm)
    models = dict(catalogue.models)
    for model in plugin.models:
        _check_parameters(source, f"model {model.name}", model.params, Parameters)
        if model.build is None:
            raise PluginError(f"{source.name}: model {model.name} has no build: give the function that makes it")
        if model.name in MODEL_GROUPS:
            raise PluginError(taken(source, "model", model.name))
        _enter(source, models, "model", model.name, model)
    datasets = dict(catalogue.datasets)
    for dataset in plugin.datasets:
        if dataset.read is None:
            raise PluginError(f"{source.name}: data set {dataset.name} has no read: give the function that reads it")
        where = dataset.where or source.name
        _enter(source, datasets, "data set", dataset.name, replace(dataset, where=where))
    partitions = dict(catalogue.partitions)
    for partition in plugin.partitions:
        _check_parameters(source, f"partition {partition.name}", partition.params, PartitionParameters)
        if partition.divide is None:
            raise PluginError(
                f"{source.name}: partition {partition.name} has no divide: give the function that divides"
            )
        classes = [known.params for known in partitions.values()]
        if partition.params in classes:
            raise PluginError(f"{source.name}: partition {partition.name} needs a parameter class of its own")
        _enter(source, partitions, "partition", partition.name, partition)
    return LearningCatalogue(
        algorithms=algorithms,
        models=models,
        datasets=datasets,
        partitions=partitions,
        plugins={**catalogue.plugins, source: plugin},
    )


def _enter(
    source: PluginSource,
    entries: dict[str, Any],
    what: str,
    name: str,
    entry: Any,
) -> None:
    if name in entries:
        raise PluginError(taken(source, what, name))
    entries[name] = entry


def taken(source: PluginSource, what: str, name: str) -> str:
    """The message that an entry of this name exists."""
    article = "an" if what[0] in "aeiou" else "a"
    return f"{source.name}: there is already {article} {what} {name!r}: choose another name"


@lru_cache(MOST_LOADED)
def _plugin(source: PluginSource, before: tuple[PluginSource, ...]) -> Plugin:
    """Run the plug-in's module, and read what it declares. ``before``: the plug-ins that are read before it, on which
    it may build. The roles of its algorithms are those of the modules as they are now."""
    module = _module(source, before)
    plugin = getattr(module, "PLUGIN", None)
    if plugin is None:
        raise PluginError(
            f"{source.name} declares nothing: end it with PLUGIN = edgebed.Plugin(algorithms=[...], models=[...])"
        )
    if not isinstance(plugin, Plugin):
        raise PluginError(f"{source.name}: PLUGIN is a {type(plugin).__name__}, not an edgebed.Plugin")
    kinds = {
        "algorithms": Algorithm,
        "models": ModelEntry,
        "datasets": Dataset,
        "partitions": PartitionScheme,
    }
    for what, kind in kinds.items():
        for entry in getattr(plugin, what):
            if isinstance(entry, kind):
                continue
            raise PluginError(f"{source.name}: {what} holds a {type(entry).__name__}, not an edgebed.{kind.__name__}")
    algorithms = [_with_roles(source, module, algorithm) for algorithm in plugin.algorithms]
    return replace(plugin, algorithms=algorithms, module=module.__name__)


def _module(source: PluginSource, before: tuple[PluginSource, ...]) -> ModuleType:
    try:
        if not source.is_file:
            _forget_changed(source)
            return importlib.import_module(source.module)
        name = _module_name(source, before)
        if PLUGIN_FILES not in sys.modules:
            package = ModuleType(PLUGIN_FILES)
            package.__path__ = []
            sys.modules[PLUGIN_FILES] = package
        loader = _Compiled(name, source.root)
        spec = importlib.util.spec_from_file_location(name, source.root, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        loader.exec_module(module)
        return module
    except SyntaxError as error:
        file = error.filename
        if file == source.root:
            file = source.name
        raise PluginError(f"{file}:{error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        reason = lacking(error) or f"{type(error).__name__}: {error}"
        place = line_of(error, [source]) or source.name
        raise PluginError(f"{place}: {reason}") from error


def _module_name(source: PluginSource, before: tuple[PluginSource, ...]) -> str:
    """The name of a file's module: another one for each version of the file, and of the plug-ins it may build on."""
    key = repr((source, before))
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{source.module}_{digest[:KEY_LENGTH]}"


class _Compiled(SourceFileLoader):
    """Compiles a file each time, and keeps no bytecode. Python trusts bytecode if the file has the same size and was
    last changed in the same second, so it misses some changes."""

    def get_code(self, fullname: str) -> CodeType:
        data = self.get_data(self.path)
        return self.source_to_code(data, self.path)


_imported: dict[str, str] = {}  # the hash of each top-level package when it was imported


def _forget_changed(source: PluginSource) -> None:
    """Let a package be imported again if its files have changed since this process imported it."""
    top, _, _ = source.module.partition(".")
    former = _imported.get(top, source.sha256)
    _imported[top] = source.sha256
    if former == source.sha256:
        return
    for name in list(sys.modules):
        if name != top and not name.startswith(f"{top}."):
            continue
        module = sys.modules.pop(name)
        file = getattr(module, "__file__", None)
        if file is None:
            continue
        bytecode = Path(importlib.util.cache_from_source(file))  # see `_Compiled`
        with contextlib.suppress(OSError):  # if this user may not remove it, no import of this user wrote it
            bytecode.unlink()
    importlib.invalidate_caches()


def line_of(error: BaseException, sources: Iterable[PluginSource]) -> str:
    """The last line of one of these plug-ins in an error's traceback, with the file as the scenario names it; "" if
    there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    known = tuple(sources)
    for frame in reversed(frames):
        for source in known:
            if frame.filename == source.root:
                return f"{source.name}:{frame.lineno}"
            if frame.filename.startswith(f"{source.root}/"):
                folder = Path(source.root).parent
                path = Path(frame.filename).relative_to(folder)
                return f"{path}:{frame.lineno}"
    return ""


def _with_roles(source: PluginSource, own: ModuleType, algorithm: Algorithm) -> Algorithm:
    """The algorithm with the roles of its module, by default the plug-in's ``own``."""
    module = own
    if algorithm.module:
        try:
            module = importlib.import_module(algorithm.module)
        except ImportError as error:
            reason = lacking(error) or f"cannot be imported: {error}"
            what = f"algorithm {algorithm.name}"
            raise PluginError(f"{source.name}: the module {algorithm.module!r} of {what} {reason}") from None
    roles = getattr(module, "ROLES", None)
    if not isinstance(roles, Mapping):
        place = source.name
        if algorithm.module:
            place = f"{source.name}: {algorithm.module}"
        raise PluginError(f'{place} has no ROLES, a mapping like {{"cloud": Cloud, "device": Device}}')
    return replace(algorithm, module=module.__name__, table=roles)


def _check_algorithm(source: PluginSource, algorithm: Algorithm) -> None:
    what = f"algorithm {algorithm.name}"
    _check_parameters(source, what, algorithm.params, LocalTraining)
    roles = algorithm.roles
    for key, tier in _TIERS.items():
        declared = getattr(algorithm, key)
        if declared == "none":
            continue
        if tier not in roles:
            raise PluginError(f'{source.name}: ROLES has no "{tier}", though {what} says {key}="{declared}"')
        _check_role(source, tier, roles[tier])


def _check_role(source: PluginSource, tier: str, role: Any) -> None:
    if not isinstance(role, type) or not issubclass(role, Role):
        raise PluginError(f'{source.name}: ROLES["{tier}"] is {role!r}, not a subclass of edgebed.Role')
    place = source.name
    if source.is_file:
        place = f"{source.name}:{_line_of(role)}"
    if role.run is Role.run or not inspect.iscoroutinefunction(role.run):
        raise PluginError(f"{place}: {role.__name__} needs a method `async def run(self)`")
    taken = inspect.signature(role.run).parameters
    if len(taken) != 1:
        raise PluginError(f"{place}: {role.__name__}.run takes nothing but self")


def _line_of(role: type) -> str:
    """The line where a role starts; "?" for a class that a function made."""
    try:
        _, line = inspect.getsourcelines(role)
        return str(line)
    except (OSError, TypeError):
        return "?"


def _check_parameters(
    source: PluginSource,
    what: str,
    kind: Any,
    base: type[Parameters],
) -> None:
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise PluginError(f"{source.name}: the parameters of {what} are not a subclass of edgebed.{base.__name__}")
    for entry in fields(kind):
        if "allowed" not in entry.metadata:
            raise PluginError(
                f"{source.name}: parameter {entry.name} of {what} says nothing of its values: "
                f"write {entry.name}: float = edgebed.number(0.5, low=0), or whole, word, flag"
            )
