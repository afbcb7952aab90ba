"""The scenarios, sweeps and studies that edgebed ships: how they are found, described and copied."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from rich.console import Console

from orchestrator.errors import PlaceError, Problem, ScenarioError
from orchestrator.layout import write, write_table
from orchestrator.scenario.language.files import STANDARD_INPUT, TIME, first_comment, head_comment, text_of
from orchestrator.scenario.language.syntax import MAX_CHARACTERS, read_yaml, too_long

FOLDER = (Path(__file__).parent / "scenarios").resolve()  # in a checkout, a link to scenarios/
PROGRAMS = {
    "mosquitto": "Mosquitto",
    "flower-superlink": "Flower (flwr)",
    "nvflare/start.py": "NVFlare (nvflare)",
    "mqtt-paho/publish.py": "paho-mqtt",
}
"""What to install for a program, by a word of its command."""

_UNITS = {"s": 1, "min": 60, "h": 3600}
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SCENARIO = re.compile(r"^(?:algorithm|programs) *:", re.MULTILINE)
_BASED = re.compile(r"^(?:scenario) *:", re.MULTILINE)  # on a scenario: a sweep or a study
_OF_STUDY = re.compile(r"^(?:axes|faults) *:", re.MULTILINE)

Kind = Literal["scenario", "sweep", "study"]
COMMANDS: dict[Kind, str] = {"scenario": "up", "sweep": "sweep", "study": "limits"}
"""The command that runs an example of each kind."""
_FOLDERS: dict[Kind, str] = {"scenario": "", "sweep": "sweeps", "study": "limits"}
_SHOWN: dict[Kind, str] = {"scenario": "hello", "sweep": "fedfeat", "study": "limits/tcp"}


@dataclass(frozen=True)
class Example:
    """A scenario, a sweep or a study. ``time`` of a run, a whole sweep or study on two cores under
    ``driver``, in words. ``seconds``: the same, None if not measured. ``requires``: what `edgebed[learning]` does not
    install."""

    name: str
    kind: Kind
    question: str
    time: str
    seconds: float | None
    driver: str
    requires: tuple[str, ...]


def described(text: str) -> tuple[str, str, float | None, str]:
    """The question, the time in words and in seconds, and the driver in the head comment of an example. ValueError if
    the comment has no question, or no line like ``# 8 s on two cores, namespaces``."""
    question, mark, _ = first_comment(text).partition("?")
    measured = _line_of_time(text)
    if not mark or measured is None:
        raise ValueError("its head comment needs a question, and a line like '# 8 s on two cores, namespaces'")
    time = measured["time"]
    number, _, unit = time.partition(" ")
    seconds = None
    if unit in _UNITS:
        seconds = float(number) * _UNITS[unit]
    return question + mark, time, seconds, measured["driver"]


def _line_of_time(text: str) -> re.Match[str] | None:
    """The first line of the head comment that has the time and the driver."""
    for line in head_comment(text):
        match = TIME.fullmatch(line)
        if match is not None:
            return match
    return None


def names() -> list[str]:
    """The names of all examples, scenarios first: their paths below the folder, without ``.yaml``."""
    relative_paths = []
    for place in (".", "papers", "peers", "sweeps", "papers/sweeps", "limits"):
        files = FOLDER.glob(f"{place}/*.yaml")
        for file in sorted(files):
            relative = file.relative_to(FOLDER)
            relative_paths.append(relative.with_suffix("").as_posix())
    return relative_paths


def examples() -> list[Example]:
    return [_read(name) for name in names()]


def find(name: str, kind: Kind = "scenario") -> Path | None:
    """The file of an example. Its folders may be left out. Where a scenario, a sweep and a study have the same name, it
    is that of this kind."""
    ending = f"/{name}"
    matches = [example for example in names() if f"/{example}".endswith(ending)]
    if not matches or not name:
        return None
    for match in matches:
        if kind_of_example(match) == kind:
            return FOLDER / f"{match}.yaml"
    return FOLDER / f"{matches[0]}.yaml"


def kind_of_example(name: str) -> Kind:
    """The kind of an example, from its folder."""
    folders = name.split("/")[:-1]
    for kind in ("sweep", "study"):
        if _FOLDERS[kind] in folders:
            return kind
    return "scenario"


def chosen(given: str | None, kind: Kind = "scenario") -> Path:
    """The file that the argument of a command names: a path, else an example, or ``-``. Without an argument it is the
    only file of this kind in the current folder. ScenarioError if there is no such file, or if
    there are several."""
    if given is None:
        return _only(kind)
    if _URL.match(given):
        raise ScenarioError([Problem(given, "", "download it first, with the files that it names, then give its path")])
    path = Path(given)
    if path == STANDARD_INPUT or not _is_missing(path):
        return path
    file = find(given, kind)
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
    copies = {}
    for source in _with_files(file):
        copies[source] = folder / source.relative_to(FOLDER)
    if renamed:
        copies[file] = target
    try:
        _copy_files(copies)
    except OSError as error:
        raise PlaceError(f"{name} cannot be copied to {folder}: {error.strerror}") from None
    return list(copies.values())


def _copy_files(copies: Mapping[Path, Path]) -> None:
    """Copy each file to its place. PlaceError, before anything is copied, if a place has another content."""
    for source, place in copies.items():
        same = not place.exists() or place.read_bytes() == source.read_bytes()
        if not same:
            raise PlaceError(f"{place} exists with another content: choose another name")
    for source, place in copies.items():
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)


def print_examples(shipped: Iterable[Example], console: Console) -> None:
    """Print the scenarios, then the sweeps, then the studies, each with its question."""
    headings = ("name", "question", "time on two cores", "requires")
    listed = list(shipped)
    for kind, command in COMMANDS.items():
        rows = []
        for example in listed:
            if example.kind == kind:
                time = f"{example.time}, {example.driver}"
                requires = ", ".join(example.requires)
                rows.append((example.name, example.question, time, requires))
        if rows:
            write_table(console, headings, rows, title=f"edgebed {command} NAME")
            write(console, "")
    write(console, "Copy one to change it: edgebed new NAME. Times under sim are those with --driver sim.")


def _read(name: str) -> Example:
    file = FOLDER / f"{name}.yaml"
    text = file.read_text(encoding="utf-8")
    data = _data(file)
    base = _data(file.parent / data["scenario"]) if "scenario" in data else {}
    question, time, seconds, driver = described(text)
    required = tuple(dict.fromkeys(_required(data, base)))
    return Example(name, kind_of_example(name), question, time, seconds, driver, required)


def _data(file: Path) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8")
    document = read_yaml(text, str(file))
    data: dict[str, Any] = document[0]
    return data


def _required(
    data: Mapping[str, Any],
    base: Mapping[str, Any],
) -> Iterator[str]:
    """What the example requires. ``base``: the scenario of a sweep or a study; data sets in the sweep replace its
    own."""
    for programs in (base.get("programs", {}), data.get("programs", {})):
        for program in programs.values():
            for word in program["command"].split():
                if word in PROGRAMS:
                    yield PROGRAMS[word]
    alternatives = list(_datasets({**data, "vary": {}}))
    vary = data.get("vary", {})
    for varied in vary.get("data.dataset", []):
        alternatives.append([varied])
    if not alternatives:
        alternatives = list(_datasets(base))
    # The last of the alternatives is for hosts that have none of the others.
    last_ones = dict.fromkeys(datasets[-1] for datasets in alternatives)
    for name in last_ones:
        if name != "digits" and not name.startswith("text:"):  # they are examples' own
            yield f"data set {name}"


def _datasets(value: Any) -> Iterator[list[str]]:
    """The lists of data sets anywhere below a value, each in the order of preference."""
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        last_part = str(key).split(".")[-1]
        if last_part == "dataset":
            yield inner if isinstance(inner, list) else [inner]
        else:
            yield from _datasets(inner)


def _with_files(file: Path) -> Iterator[Path]:
    """The file of an example and all files that it names, in values or in words of commands, also in its base. A script
    comes with its folder."""
    yield file
    for word in _words(_data(file)):
        path = word.removeprefix("text:")
        named = Path(file.parent, path).resolve()
        if FOLDER not in named.parents:
            continue
        if named.suffix == ".yaml":
            yield from _with_files(named)
            continue
        if named.suffix == ".py" and named.parent != FOLDER:
            named = named.parent  # a script imports its neighbours
        below = sorted(named.rglob("*"))
        for inner in [named, *below]:
            if inner.is_file() and "__pycache__" not in inner.parts:
                yield inner


def _words(value: Any) -> Iterator[str]:
    """The words of all texts below a value."""
    if isinstance(value, str):
        for word in re.split(r"[\s'\"]+", value):
            if word:
                yield word
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner)


def kind_of_file(file: Path) -> Kind:
    """The kind of a readable YAML file, from its first keys."""
    return _kind_of_text(_peek(file))


def _kind_of_text(written: str) -> Kind:
    if not _BASED.search(written):
        return "scenario"
    return "study" if _OF_STUDY.search(written) else "sweep"


def _only(kind: Kind) -> Path:
    """The only file of a kind in the current folder. Other YAML files do not count."""
    here = Path()
    files = sorted([*here.glob("*.yaml"), *here.glob("*.yml")])
    candidates = []
    for file in files:
        written = _peek(file)
        of_edgebed = _BASED.search(written) or _SCENARIO.search(written)
        if of_edgebed and _kind_of_text(written) == kind:
            candidates.append(str(file))
    if len(candidates) == 1:
        return Path(candidates[0])
    if candidates:
        kinds = "studies" if kind == "study" else f"{kind}s"
        what = f"name one of the {kinds} in this folder: {', '.join(candidates)}"
    else:
        example = _SHOWN[kind]
        what = f"there is no {kind} in this folder: name a file, or an example like {example} (see `edgebed examples`)"
    raise ScenarioError([Problem("", "", what)])


def _peek(file: Path) -> str:
    try:
        return text_of(file, MAX_CHARACTERS, too_long())
    except ValueError:
        return ""


def _remedies(name: str) -> str:
    """What to do about an unknown name."""
    known = [PurePosixPath(example).name for example in names()]
    stem = PurePosixPath(name).stem
    close = difflib.get_close_matches(stem, known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"check the path, or choose a name from `edgebed examples`{hint}"
