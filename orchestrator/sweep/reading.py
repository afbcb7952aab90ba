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

Changes = Mapping[str, Any]
"""Values by the paths of the keys."""
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
    seeds: list[Seed] = Field(
        default=[1],
        min_length=1,
        description="the seeds that each combination runs with",
    )
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
        groups = itertools.groupby(self.combinations, key=lambda combination: combination.case)
        return {case: list(group) for case, group in groups}


def load(file: Path, overrides: Sequence[str] = ()) -> Sweep:
    """Read a sweep file and the scenario in every combination; ``overrides`` apply to all combinations.

    Raises ScenarioError, which lists every problem with file, line and YAML path.
    """
    return parse(reading.scenario_text(file), file, overrides)


def parse(
    text: str,
    file: Path,
    overrides: Sequence[str] = (),
    scenario: str | None = None,
) -> Sweep:
    """Like `load`, from text. ``file`` stands for the file in messages. ``scenario`` is the text of the scenario if no
    file holds it. A plain scenario counts as a sweep of one run."""
    source = document.read(text, str(file))
    data = source.data
    if "scenario" not in data and data.keys() & {"algorithm", "programs"}:
        seed = data.get("seed", 1)
        data = {"scenario": file.name, "seeds": [seed]}
        scenario = text
    defaults = {"name": name_from(file.stem, "sweep")}
    read = validated(SweepFile, source, defaults | data)
    problems = list(_contradictions(read, source, overrides))
    if problems:
        raise ScenarioError(problems)
    path = file.parent / read.scenario
    if scenario is None:
        place = source.place(("scenario",))
        scenario = reading.scenario_text(path, place, "scenario")
    combinations = _combinations(read, source, path, scenario, overrides)
    return Sweep(
        name=read.name,
        file=file,
        scenario=path,
        target=read.target,
        combinations=combinations,
        text=scenario,
        source=text,
    )


def assignment(path: str, value: Any) -> str:
    """An override in the form of `--set`."""
    dumped = yaml.safe_dump(
        value,
        default_flow_style=True,
        width=2**20,
        sort_keys=False,
        allow_unicode=True,
    )
    written = dumped.removesuffix(_END_OF_SCALAR).strip()
    return f"{path}={written}"


def _combinations(
    read: SweepFile,
    source: Document,
    scenario: Path,
    text: str,
    common: Sequence[str],
) -> tuple[Combination, ...]:
    """All combinations, with checked scenarios. Problems are reported with their place in the sweep file."""
    combinations: list[Combination] = []
    problems: dict[tuple[str, str, str], Problem] = {}  # each problem once, with its first case
    cases: Mapping[str, Changes] = read.cases or {scenario.stem: {}}
    first_case = next(iter(cases))
    rounds = rounds_of(text, str(scenario))
    products = itertools.product(cases.items(), _products(read.vary))
    for (case, own), varied in products:
        values = [assignment(path, value) for path, value in varied.items()]
        name = ", ".join([case, *values])
        if len(cases) > 1 or not combinations:
            first = ", ".join([first_case, *values])
        else:
            first = combinations[0].case
        reference = None if name == first else first
        places = override_places(source, ("cases", case), own, rounds)
        places |= override_places(source, ("vary",), varied, rounds)
        try:
            overrides = (*places, *common)
            checked = reading.parse(text, str(scenario), overrides)
        except ScenarioError as error:
            for problem, in_case in zip(error.problems, problems_in_case(error, name, places), strict=True):
                key = (in_case.where, problem.path, problem.message)
                problems.setdefault(key, in_case)
            continue
        names = [member.name for member in checked.members]
        for problem, node in _unknown_nodes(read, source, name, names):
            key = (problem.where, problem.path, node)
            problems.setdefault(key, problem)
        for seed in read.seeds:
            overrides = (*places, assignment("seed", seed), *common)
            seeded = checked.model_copy(update={"seed": seed})
            combination = Combination(name, seed, overrides, seeded, reference)
            combinations.append(combination)
    if problems:
        raise ScenarioError(list(problems.values()))
    return tuple(combinations)


def problems_in_case(error: ScenarioError, case: str, places: Mapping[str, str]) -> list[Problem]:
    """The problems of a case's scenario. ``places``: of the overrides in the file, see `override_places`."""
    problems = []
    for problem in error.problems:
        override = problem.where.removeprefix("--set ")
        place = places.get(override, problem.where)
        problems.append(Problem(place, problem.path, f"in case '{case}': {problem.message}"))
    return problems


def _products(vary: Mapping[str, Sequence[Any]]) -> list[Changes]:
    """Every combination of the varied values, by their paths."""
    products: list[Changes] = []
    for values in itertools.product(*vary.values()):
        products.append(dict(zip(vary, values, strict=True)))
    return products


def _unknown_nodes(
    read: SweepFile,
    source: Document,
    case: str,
    names: Sequence[str],
) -> Iterator[tuple[Problem, str]]:
    """A problem for each node of the target that the scenario of a case does not have, and that node."""
    nodes = read.target.nodes if read.target else []
    for index, node in enumerate(nodes):
        if node not in names:
            path = ("target", "of", index)
            place = source.place(path)
            message = f"in case '{case}': {unknown_node(node, names)}"
            yield Problem(place, dotted(path), message), node


def rounds_of(text: str, name: str) -> Any:
    """The value of `algorithm.rounds` in a scenario as it is written; None without."""
    try:
        data = document.read(text, name).data
        algorithm = data.get("algorithm")
    except ScenarioError:
        return None  # which is reported when the scenario is read
    if isinstance(algorithm, dict):
        return algorithm.get("rounds")
    return None


def override_places(
    source: Document,
    above: KeyPath,
    overrides: Mapping[str, Any],
    rounds: Any,
) -> dict[str, str]:
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

    def problem(path: KeyPath, message: str) -> Problem:
        place = source.place(path)
        return Problem(place, dotted(path), message)

    for path, values in read.vary.items():
        if not values:
            yield problem(("vary", path), "give at least one value")
        written = [assignment(path, value) for value in values]
        for index, value in enumerate(written):
            if value in written[:index]:  # it would count twice in the mean of one case
                yield problem(("vary", path, index), "this value is given twice")
    for index, seed in enumerate(read.seeds):
        if seed in read.seeds[:index]:
            yield problem(("seeds", index), f"the seed {seed} is given twice")
    runs = len(read.seeds) * max(1, len(read.cases))
    for values in read.vary.values():
        runs *= len(values)
    if runs > MOST_RUNS:
        yield problem(("vary",), f"these are {runs:,} runs, more than {MOST_RUNS:,}: vary less")
    seeds: list[KeyPath] = []
    for case in read.cases:
        seeds.append(("cases", case, "seed"))
    seeds.append(("vary", "seed"))
    misplaced = "write seeds under 'seeds', over which the mean is taken"
    for key_path in seeds:
        if key_path in source.places:
            yield problem(key_path, misplaced)
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key == "seed":
            yield Problem(f"--set {override}", "seed", misplaced)
