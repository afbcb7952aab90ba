"""Plug-ins: a user's own algorithms, models, data sets and partitions, in a Python file or an installed module.

A plug-in assigns a `Plugin` to the name ``PLUGIN``. Its entries join the registries, such as `ALGORITHMS`, under their
own names. Names of edgebed, and of other plug-ins of the same run, are refused.

The registries belong to the process. `activate` makes the plug-ins of one run known, and those of earlier runs unknown.
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoints
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from node.algorithms.registry import ALGORITHMS, Algorithm
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
_TIERS = {"cloud": "cloud", "edges": "edge", "devices": "device"}


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """What a plug-in adds. An algorithm's roles are in the mapping ``ROLES`` of the module that it names, by default of
    the plug-in itself. A model needs no `measure`: its size is measured. A data set has `read`, a partition `divide`. A
    profile of a link is written as in a scenario: `{"microwave": {"latency": "3ms", "rate": "200mbit"}}`.
    """

    algorithms: Sequence[Algorithm] = ()
    models: Sequence[ModelEntry] = ()
    datasets: Sequence[Dataset] = ()
    partitions: Sequence[PartitionScheme] = ()
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


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


_active: dict[str, PluginSource] = {}  # by module
_profiles: dict[str, Any] = {}
# What each entry of a plug-in is, its registry and its name.
_added: list[tuple[str, dict[str, Any], str]] = []


def active() -> tuple[PluginSource, ...]:
    """The plug-ins that are known now."""
    return tuple(_active.values())


def profiles() -> dict[str, Mapping[str, Any]]:
    """The link profiles of the plug-ins that are known now, as they were written. Nodes do not use them."""
    return dict(_profiles)


def added() -> list[str]:
    """What the plug-ins that are known now have added: "algorithm fedavgm", "model tanh"."""
    return [f"{what} {name}" for what, _, name in _added]


def is_of_plugin(module: str) -> bool:
    """Whether a module belongs to a plug-in that is known now."""
    for active_module in _active:
        package, _, _ = active_module.partition(".")
        if module == active_module or module.startswith(f"{package}."):
            return True
    return False


def activate(sources: Iterable[PluginSource]) -> None:
    """Make these plug-ins known, and no others. PluginError, with file and line, if one cannot be used; then none is
    known."""
    wanted: dict[str, PluginSource] = {}
    for source in sources:
        if source.module in wanted:
            other = wanted[source.module].name
            if source.name == other:
                raise PluginError(f"{source.name} is given twice")
            raise PluginError(f"{source.name} and {other} have the same name for Python: rename one of them")
        wanted[source.module] = source
    if wanted == _active:
        return
    _forget_all()
    try:
        for source in wanted.values():
            _active[source.module] = source
            _add(source, _declared(source))
    except BaseException:
        _forget_all()
        raise


def _forget_all() -> None:
    for _, registry, name in _added:
        registry.pop(name, None)
    for module in list(sys.modules):
        if module.startswith(PLUGIN_FILES):
            del sys.modules[module]
    _added.clear()
    _active.clear()


def _add(source: PluginSource, plugin: Plugin) -> None:
    for algorithm in plugin.algorithms:
        module = algorithm.module or source.module
        whole = replace(algorithm, module=module)
        _check_algorithm(source, whole)
        _enter(source, ALGORITHMS, "algorithm", whole)
    for model in plugin.models:
        _check_parameters(source, f"model {model.name}", model.params, Parameters)
        if model.build is None:
            raise PluginError(f"{source.name}: model {model.name} has no build: give the function that makes it")
        if model.name in MODEL_GROUPS:
            raise PluginError(_taken(source, "model", model.name))
        _enter(source, MODELS, "model", model)
    for dataset in plugin.datasets:
        if dataset.read is None:
            raise PluginError(f"{source.name}: data set {dataset.name} has no read: give the function that reads it")
        where = dataset.where or source.name
        _enter(source, DATASETS, "data set", replace(dataset, where=where))
    for partition in plugin.partitions:
        _check_parameters(source, f"partition {partition.name}", partition.params, PartitionParameters)
        if partition.divide is None:
            raise PluginError(
                f"{source.name}: partition {partition.name} has no divide: give the function that divides"
            )
        classes = [known.params for known in PARTITIONS.values()]
        if partition.params in classes:
            raise PluginError(f"{source.name}: partition {partition.name} needs a parameter class of its own")
        _enter(source, PARTITIONS, "partition", partition)

    for name, profile in plugin.profiles.items():
        _enter(source, _profiles, "link profile", profile, name)


def _enter(
    source: PluginSource,
    registry: dict[str, Any],
    what: str,
    entry: Any,
    name: str = "",
) -> None:
    name = name or entry.name
    if name in registry:
        raise PluginError(_taken(source, what, name))
    registry[name] = entry
    _added.append((what, registry, name))


def _taken(source: PluginSource, what: str, name: str) -> str:
    article = "an" if what[0] in "aeiou" else "a"
    return f"{source.name}: there is already {article} {what} {name!r}: choose another name"


def _declared(source: PluginSource) -> Plugin:
    """Run the plug-in's module, and read what it declares."""
    plugin = getattr(_module(source), "PLUGIN", None)
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
    return plugin


def _module(source: PluginSource) -> ModuleType:
    try:
        if not source.is_file:
            _forget_changed(source)
            return importlib.import_module(source.module)
        if PLUGIN_FILES not in sys.modules:
            package = ModuleType(PLUGIN_FILES)
            package.__path__ = []
            sys.modules[PLUGIN_FILES] = package
        loader = _Compiled(source.module, source.root)
        spec = importlib.util.spec_from_file_location(source.module, source.root, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[source.module] = module  # dataclasses look their module up
        loader.exec_module(module)
        return module
    except SyntaxError as error:
        file = error.filename
        if file == source.root:
            file = source.name
        raise PluginError(f"{file}:{error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        reason = lacking(error) or f"{type(error).__name__}: {error}"
        place = line_of(error) or source.name
        raise PluginError(f"{place}: {reason}") from error


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


def line_of(error: BaseException) -> str:
    """The last line of an active plug-in in an error's traceback, with the file as the scenario names it; "" if there
    is none."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        for source in _active.values():
            if frame.filename == source.root:
                return f"{source.name}:{frame.lineno}"
            if frame.filename.startswith(f"{source.root}/"):
                folder = Path(source.root).parent
                path = Path(frame.filename).relative_to(folder)
                return f"{path}:{frame.lineno}"
    return ""


def _check_algorithm(source: PluginSource, algorithm: Algorithm) -> None:
    what = f"algorithm {algorithm.name}"
    _check_parameters(source, what, algorithm.params, LocalTraining)
    try:
        module = importlib.import_module(algorithm.module)
    except ImportError as error:
        reason = lacking(error) or f"cannot be imported: {error}"
        raise PluginError(f"{source.name}: the module {algorithm.module!r} of {what} {reason}") from None
    roles = getattr(module, "ROLES", None)
    if not isinstance(roles, Mapping):
        raise PluginError(
            f'{source.name}: {algorithm.module} has no ROLES, a mapping like {{"cloud": Cloud, "device": Device}}'
        )
    roles = algorithm.roles_of(roles)
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
