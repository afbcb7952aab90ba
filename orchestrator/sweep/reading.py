"""The sweep file: a scenario, its cases, its seeds and the target to compare.

    scenario: ../dropout.yaml
    cases:
      hierfavg: {}
      onlyedge: {algorithm: {name: onlyedge, rounds: 12}}
    vary:
      links.device-edge.loss: [0%, 5%]
    seeds: [1, 2, 3]
    target: {accuracy: 70%}

A sweep runs every case with every combination of the varied values and with every seed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from orchestrator.errors import Problem, ScenarioError
from orchestrator.results.evaluation.targets import Judged
from orchestrator.scenario import reading
from orchestrator.scenario.language import document
from orchestrator.scenario.language.document import Document
from orchestrator.scenario.language.quantities import Fraction
from orchestrator.scenario.language.strict import Strict, validated
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.language.words import Name, dotted, name_from
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.topology import unknown_node

COPY = ".sweep.yaml"
"""The sweep's file as it was read, in the folder of its runs, where a user's own sweep.yaml may lie."""
MOST_RUNS = 100_000
_END_OF_SCALAR = "...\n"  # how YAML ends a document that is one plain value

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Nodes = Annotated[list[str], Field(min_length=1)]


class Target(Strict):
    """The target accuracy; rounds, seconds and bytes are counted until it is reached. It is measured on the global test
    set, or as the mean over clients, edges or named nodes, each on its own test set."""

    accuracy: Fraction = Field(gt=0, description="the accuracy to reach")
    scope: Literal["global", "own"] = Field(
        default="global", description="measured on the global test set, or on own test sets"
    )
    of: Literal["clients", "edges"] | Nodes = Field(
        default="clients", description="own only: the mean over clients, edges or these nodes"
    )

    @property
    def judged(self) -> Judged | list[str]:
        return "global" if self.scope == "global" else self.of

    @property
    def nodes(self) -> list[str]:
        if isinstance(self.of, str):
            return []
        return self.of

    @property
    def whose(self) -> str:
        """The owners of the test sets, in words."""
        if isinstance(self.of, str):
            return self.of
        return ", ".join(self.of)


class SweepFile(Strict):
    """The keys of a sweep file; `cases` and `vary` use the same paths as `--set`."""

    name: Name = Field(description="name of the sweep; default: the name of the file")
    scenario: str = Field(description="file of the scenario, relative to the sweep's file")
    cases: dict[str, dict[str, Any]] = Field(
        default={}, description="changes of the scenario, by the name of a case; default: the scenario as it is"
    )
    vary: dict[str, list[Any]] = Field(
        default={}, description="values to combine, by path: {links.device-edge.loss: [0%, 5%]}"
    )
    seeds: list[Seed] = Field(default=[1], min_length=1, description="the seeds that each combination runs with")
    target: Target | None = Field(default=None, description="the target that runs are compared by")


@dataclass(frozen=True)
class Combination:
    """One run of the sweep: the scenario with these overrides, each in the form of `--set`.

    ``reference``: the case that this one is compared with: the first one under the same varied values, or without
    several cases the first combination; None for that case itself.
    """

    case: str
    seed: int
    overrides: tuple[str, ...]
    scenario: Scenario
    reference: str | None = None


@dataclass(frozen=True)
class Sweep:
    """A sweep file after reading; its combinations are ordered by case, in the order of the file. ``text``: the
    scenario as it was read: its file may change while the sweep runs. ``source``: that of the sweep's file."""

    name: str
    file: Path
    scenario: Path
    target: Target | None
    combinations: tuple[Combination, ...]
    text: str
    source: str

    @property
    def cases(self) -> dict[str, list[Combination]]:
        """The combinations of each case."""
        return {case: list(group) for case, group in itertools.groupby(self.combinations, lambda each: each.case)}


def load(file: Path, overrides: Sequence[str] = ()) -> Sweep:
    """Read a sweep file and the scenario in every combination; ``overrides`` apply to all combinations.

    Raises ScenarioError, which lists every problem with file, line and YAML path.
    """
    return parse(reading.scenario_text(file), file, overrides)


def parse(text: str, file: Path, overrides: Sequence[str] = (), scenario: str | None = None) -> Sweep:
    """Like `load`, from text. ``file`` stands for the file in messages. ``scenario`` is the text of the scenario if no
    file holds it. A plain scenario counts as a sweep of one run."""
    source = document.read(text, str(file))
    data = source.data
    if "scenario" not in data and data.keys() & {"algorithm", "programs"}:
        data = {"scenario": file.name, "seeds": [data.get("seed", 1)]}
        scenario = text
    read = validated(SweepFile, source, {"name": name_from(file.stem, "sweep")} | data)
    found = list(_contradictions(read, source, overrides))
    if found:
        raise ScenarioError(found)
    place = file.parent / read.scenario
    at = source.place(("scenario",))
    if scenario is None:
        content = reading.scenario_text(place, at, "scenario")
    else:
        content = scenario
    combinations = _combinations(read, source, place, content, overrides)
    return Sweep(read.name, file, place, read.target, combinations, content, text)


def assignment(path: str, value: Any) -> str:
    """An override in the form of `--set`."""
    written = yaml.safe_dump(value, default_flow_style=True, width=2**20, sort_keys=False, allow_unicode=True)
    return f"{path}={written.removesuffix(_END_OF_SCALAR).strip()}"


def _combinations(
    read: SweepFile,
    source: Document,
    scenario: Path,
    text: str,
    common: Sequence[str],
) -> tuple[Combination, ...]:
    """All combinations, with checked scenarios. Problems are reported with their place in the sweep file."""
    combinations: list[Combination] = []
    found: dict[tuple[str, str, str], Problem] = {}  # each problem once, with its first case
    cases: Mapping[str, Mapping[str, Any]] = read.cases or {scenario.stem: {}}
    rounds = _rounds_of(text, str(scenario))
    products = [dict(zip(read.vary, values, strict=True)) for values in itertools.product(*read.vary.values())]
    for (case, own), varied in itertools.product(cases.items(), products):
        values = [assignment(path, value) for path, value in varied.items()]
        name = ", ".join([case, *values])
        if len(cases) > 1 or not combinations:
            first = ", ".join([next(iter(cases)), *values])
        else:
            first = combinations[0].case
        said = {**_places(source, ("cases", case), own, rounds), **_places(source, ("vary",), varied, rounds)}
        try:
            checked = reading.parse(text, str(scenario), (*said, *common))
        except ScenarioError as error:
            for problem in error.problems:
                place = said.get(problem.where.removeprefix("--set "), problem.where)
                in_case = Problem(place, problem.path, f"in case '{name}': {problem.message}")
                found.setdefault((place, problem.path, problem.message), in_case)
            continue
        names = [member.name for member in checked.members]
        for index, node in enumerate(read.target.nodes if read.target else []):
            if node not in names:
                of = ("target", "of", index)
                place = source.place(of)
                path = dotted(of)
                message = unknown_node(node, names)
                found.setdefault((place, path, node), Problem(place, path, f"in case '{name}': {message}"))
        for seed in read.seeds:
            overrides = (*said, assignment("seed", seed), *common)
            seeded = checked.model_copy(update={"seed": seed})
            combinations.append(Combination(name, seed, overrides, seeded, None if name == first else first))
    if found:
        raise ScenarioError(list(found.values()))
    return tuple(combinations)


def _rounds_of(text: str, name: str) -> Any:
    """The value of `algorithm.rounds` in a scenario as it is written; None without."""
    try:
        algorithm = document.read(text, name).data.get("algorithm")
    except ScenarioError:
        return None  # which is reported when the scenario is read
    if isinstance(algorithm, dict):
        return algorithm.get("rounds")
    return None


def _places(source: Document, above: KeyPath, overrides: Mapping[str, Any], rounds: Any) -> dict[str, str]:
    """The overrides as assignments, each with its place in the sweep file. An algorithm that replaces the scenario's
    keeps the ``rounds`` of the scenario unless it has its own."""
    places = {}
    for path, value in overrides.items():
        place = source.place((*above, path))
        places[assignment(path, value)] = place
        replaces = path == "algorithm" and value is not None
        has_rounds = isinstance(value, dict) and "rounds" in value
        if replaces and rounds is not None and not has_rounds:
            places[assignment("algorithm.rounds", rounds)] = place
    return places


def _contradictions(read: SweepFile, source: Document, overrides: Sequence[str]) -> Iterator[Problem]:
    """Problems of a well-formed sweep file that makes no sense, also with these ``overrides`` of all combinations."""
    for path, values in read.vary.items():
        if not values:
            yield Problem(source.place(("vary", path)), dotted(("vary", path)), "give at least one value")
        written = [assignment(path, value) for value in values]
        for index, value in enumerate(written):
            if value in written[:index]:  # it would count twice in the mean of one case
                place: KeyPath = ("vary", path, index)
                yield Problem(source.place(place), dotted(place), "this value is given twice")
    for index, seed in enumerate(read.seeds):
        if seed in read.seeds[:index]:
            yield Problem(source.place(("seeds", index)), dotted(("seeds", index)), f"the seed {seed} is given twice")
    seeds: list[KeyPath] = [*(("cases", case, "seed") for case in read.cases), ("vary", "seed")]
    runs = math.prod(map(len, (read.cases or [""], read.seeds, *read.vary.values())))
    if runs > MOST_RUNS:
        yield Problem(source.place(("vary",)), "vary", f"these are {runs:,} runs, more than {MOST_RUNS:,}: vary less")
    places = [(source.place(place), dotted(place)) for place in seeds if place in source.places]
    places += [(f"--set {each}", "seed") for each in overrides if each.partition("=")[0].strip() == "seed"]
    for where, path in places:
        yield Problem(where, path, "write seeds under 'seeds', over which the mean is taken")
