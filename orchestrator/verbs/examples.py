"""The scenarios and sweeps that edgebed ships: how they are found, described and copied."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rich.console import Console

from orchestrator.errors import PlaceError, Problem, ScenarioError
from orchestrator.layout import write, write_table
from orchestrator.scenario.language.files import STANDARD_INPUT, TIME, first_comment, head_comment, text_of
from orchestrator.scenario.language.syntax import MAX_CHARACTERS, read_yaml, too_long

FOLDER = (Path(__file__).parent / "scenarios").resolve()  # in a checkout, a link to scenarios/
PROGRAMS = {"mosquitto": "Mosquitto", "flower-superlink": "Flower (flwr)"}
"""What to install for a program, by the first word of its command."""

_UNITS = {"s": 1, "min": 60, "h": 3600}
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SCENARIO, _SWEEP = (re.compile(rf"^(?:{keys}) *:", re.MULTILINE) for keys in ("algorithm|programs", "scenario"))


@dataclass(frozen=True)
class Example:
    """A scenario or a sweep. ``time`` of a run or a whole sweep on two cores under ``driver``, in words. ``seconds``:
    the same, None if not measured. ``requires``: what `edgebed[learning]` does not install."""

    name: str
    sweep: bool
    question: str
    time: str
    seconds: float | None
    driver: str
    requires: tuple[str, ...]


def described(text: str) -> tuple[str, str, float | None, str]:
    """The question, the time in words and in seconds, and the driver in the head comment of an example. ValueError if
    the comment has no question, or no line like ``# 8 s on two cores, namespaces``."""
    question, mark, _ = first_comment(text).partition("?")
    found = next(filter(None, map(TIME.fullmatch, head_comment(text))), None)
    if not mark or found is None:
        raise ValueError("its head comment needs a question, and a line like '# 8 s on two cores, namespaces'")
    number, _, unit = found["time"].partition(" ")
    return question + mark, found["time"], float(number) * _UNITS[unit] if unit in _UNITS else None, found["driver"]


def names() -> list[str]:
    """The names of all examples, scenarios first: their paths below the folder, without ``.yaml``."""
    files = [
        file for place in (".", "papers", "sweeps", "papers/sweeps") for file in sorted(FOLDER.glob(f"{place}/*.yaml"))
    ]
    return [file.relative_to(FOLDER).with_suffix("").as_posix() for file in files]


def examples() -> list[Example]:
    return [_read(name) for name in names()]


def find(name: str, *, sweep: bool = False) -> Path | None:
    """The file of an example. Its folders may be left out. Where a scenario and a sweep have the same name, it is the
    scenario, or with ``sweep`` the sweep."""
    found = [each for each in names() if each == name or each.endswith(f"/{name}")]
    found.sort(key=lambda each: ("sweeps" in each.split("/")) is not sweep)
    return FOLDER / f"{found[0]}.yaml" if found and name else None


def chosen(given: str | None, *, sweep: bool = False) -> Path:
    """The file that the argument of a command names: a path, else an example, or ``-``. Without an argument it is the
    only scenario in the current folder, or with ``sweep`` the only sweep. ScenarioError if there is no such file, or if
    there are several."""
    if given is None:
        return _only(sweep)
    if _URL.match(given):
        raise ScenarioError([Problem(given, "", "download it first, with the files that it names, then give its path")])
    path = Path(given)
    if path == STANDARD_INPUT or not _is_missing(path):
        return path
    file = find(given, sweep=sweep)
    if file is None:
        raise ScenarioError([Problem(given, "", f"neither a file nor an example: {_remedies(given)}")])
    return file


def _is_missing(path: Path) -> bool:
    """Whether there is no such path. For a path that cannot be looked up, its reader gives the reason."""
    try:
        path.lstat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def copy(name: str, target: Path) -> list[Path]:
    """Copy an example and the files that it names into a folder, in which they keep their relative places. A target
    that ends in .yaml is the new name of the example's file. Returns the files, the example first. ScenarioError if
    there is no such example, PlaceError if a file exists with another content or cannot be written."""
    file = find(name)
    if file is None:
        raise ScenarioError([Problem(name, "", f"not an example: {_remedies(name)}")])
    renamed = target.suffix == ".yaml"
    if renamed and file.parent != FOLDER:  # it names others by paths relative to its folder
        raise PlaceError(f"{target}: {name} is copied with its folder: name a folder, not a file")
    folder = target.parent if renamed else target
    copies = {each: folder / each.relative_to(FOLDER) for each in dict.fromkeys(_with_files(file))}
    if renamed:
        copies[file] = target
    try:
        for source, place in copies.items():
            if place.exists() and place.read_bytes() != source.read_bytes():
                raise PlaceError(f"{place} exists with another content: choose another name")
        for source, place in copies.items():
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place)
    except OSError as error:
        raise PlaceError(f"{name} cannot be copied to {folder}: {error.strerror}") from None
    return list(copies.values())


def print_examples(found: Iterable[Example], console: Console) -> None:
    """Print the scenarios and then the sweeps, each with its question."""
    for sweep, command in ((False, "up"), (True, "sweep")):
        rows = [
            (each.name, each.question, f"{each.time}, {each.driver}", ", ".join(each.requires))
            for each in found
            if each.sweep is sweep
        ]
        headings = ("name", "question", "time on two cores", "requires")
        write_table(console, headings, rows, title=f"edgebed {command} NAME")
        write(console, "")
    write(console, "Copy one to change it: edgebed new NAME. Times under sim are those with --driver sim.")


def _read(name: str) -> Example:
    file = FOLDER / f"{name}.yaml"
    text = file.read_text(encoding="utf-8")
    data = _data(file)
    if "scenario" in data:
        base = _data(file.parent / data["scenario"])
    else:
        base = {}
    return Example(name, "scenario" in data, *described(text), tuple(_required(data, base)))


def _data(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = read_yaml(file.read_text(encoding="utf-8"), str(file))[0]
    return data


def _required(data: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[str]:
    """What the example requires. ``base``: the scenario of a sweep; data sets in the sweep replace its own."""
    for program in data.get("programs", {}).values():
        needed = PROGRAMS.get(program["command"].split()[0])
        if needed is not None:
            yield needed
    varied = [[each] for each in data.get("vary", {}).get("data.dataset", [])]
    found = [*_datasets({**data, "vary": {}}), *varied] or list(_datasets(base))
    for name in dict.fromkeys(each[-1] for each in found):  # the last of a list is there for those without the others
        if name != "digits" and not name.startswith("text:"):  # they are examples' own
            yield f"data set {name}"


def _datasets(value: Any) -> Iterator[list[str]]:
    """The lists of data sets anywhere below a value, each in the order of preference."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if str(key).split(".")[-1] == "dataset":
            yield inner if isinstance(inner, list) else [inner]
        else:
            yield from _datasets(inner)


def _with_files(file: Path) -> Iterator[Path]:
    """The file of an example and all files that it names, in values or in words of commands, also in its base."""
    yield file
    for word in _words(_data(file)):
        named = Path(file.parent, word.removeprefix("text:")).resolve()
        if FOLDER in named.parents and named.suffix == ".yaml":
            yield from _with_files(named)
        elif FOLDER in named.parents:
            inside = [named, *sorted(named.rglob("*"))]
            yield from (each for each in inside if each.is_file() and "__pycache__" not in each.parts)


def _words(value: Any) -> Iterator[str]:
    """The words of all texts below a value."""
    if isinstance(value, str):
        yield from (word for word in re.split(r"[\s'\"]+", value) if word)
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _words(inner)


def is_sweep(file: Path) -> bool:
    """Whether a readable YAML file has the first key of a sweep."""
    return bool(_SWEEP.search(_peek(file)))


def _only(sweep: bool) -> Path:
    """The only scenario or sweep in the current folder. Other YAML files do not count."""
    kind, key, example = ("sweep", _SWEEP, "fedfeat") if sweep else ("scenario", _SCENARIO, "hello")
    files = sorted([*Path().glob("*.yaml"), *Path().glob("*.yml")])
    found = [str(each) for each in files if key.search(_peek(each))]
    if len(found) == 1:
        return Path(found[0])
    what = f"name one of the {kind}s in this folder: {', '.join(found)}"
    if not found:
        what = f"there is no {kind} in this folder: name a file, or an example like {example} (see `edgebed examples`)"
    raise ScenarioError([Problem("", "", what)])


def _peek(file: Path) -> str:
    try:
        return text_of(file, MAX_CHARACTERS, too_long())
    except ValueError:
        return ""


def _remedies(name: str) -> str:
    """What to do about an unknown name."""
    near = difflib.get_close_matches(PurePosixPath(name).stem, [PurePosixPath(each).name for each in names()], n=1)
    said = f"; did you mean '{near[0]}'?" if near else ""
    return f"check the path, or choose a name from `edgebed examples`{said}"
