"""Commands about scenarios: projects, checks, plans, schemas, build folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import (
    json_option,
    print_json,
    printer,
    scenario_options,
    waiting,
)
from orchestrator.layout import open_console
from orchestrator.text import count, visible

if TYPE_CHECKING:
    from orchestrator.planning.plan import Plan


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def init(folder: Path, as_json: bool) -> None:
    """Write a small project into FOLDER: a scenario, an algorithm of its own, its tests and a workflow for CI."""
    from orchestrator.verbs.init import make_project

    files = [str(path) for path in make_project(folder)]
    _print_files(files, as_json)
    report = printer()
    report(f"next: cd {folder} && edgebed up")


def _print_files(files: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json({"files": files})
    else:
        click.echo("\n".join(files))


@click.command("examples")
@json_option
def list_examples(as_json: bool) -> None:
    """List the scenarios, sweeps and studies that edgebed ships: their questions, times and requirements."""
    from orchestrator.verbs.examples import examples, print_examples

    listed = examples()
    if as_json:
        print_json({"examples": [asdict(example) for example in listed]})
    else:
        print_examples(listed, open_console())


@click.command("new")
@click.argument("name")
@click.argument("target", type=click.Path(path_type=Path), default=Path())
@json_option
def copy_example(name: str, target: Path, as_json: bool) -> None:
    """Copy the example NAME, with the files that it uses, to TARGET: a folder, or a file name that ends in .yaml."""
    from orchestrator.verbs.examples import COMMANDS, copy, kind_of_file

    files = copy(name, target)
    _print_files([str(file) for file in files], as_json)
    first = files[0]
    command = COMMANDS[kind_of_file(first)]
    report = printer()
    report(f"next: edgebed {command} {first}")


@click.command("image")
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def write_build_folder(folder: Path, as_json: bool) -> None:
    """Write a FOLDER from which `docker build` makes the images of nodes and agents."""
    from orchestrator.drivers.base import image_builds
    from orchestrator.verbs.init import make_build_folder

    make_build_folder(folder)
    builds = image_builds()
    if as_json:
        commands = {build.image: build.command for build in builds}
        print_json({"folder": str(folder), "build": commands})
    first, *others = builds
    tell = printer()
    tell(f"next: cd {folder} && {first.command}")
    for build in others:
        tell(f"{build.purpose}: {build.command}")


@click.command()
@scenario_options
@json_option
def validate(scenario: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check SCENARIO, with its data and its partition, without changing anything; or a study of limits."""
    from orchestrator.verbs.examples import kind_of_file

    if kind_of_file(scenario) == "study":
        _validate_study(scenario, overrides, as_json=as_json)
        return
    plan = _planned(scenario, overrides)
    notes = plan.notes()
    if as_json:
        facts = {
            "scenario": str(scenario),
            "name": plan.name,
            "valid": True,
            "nodes": len(plan.nodes),
            "notes": notes,
        }
        print_json(facts)
        return
    click.echo(f"{scenario}: valid ({len(plan.nodes)} nodes)")
    for note in notes:
        click.echo(f"note: {visible(note)}")


def _validate_study(file: Path, overrides: Sequence[str], *, as_json: bool) -> None:
    from orchestrator.limits.reading import load

    study = load(file, overrides)
    faults = 0
    if study.has_faults:
        from orchestrator.limits.suite import load_suite

        faults = len(load_suite(file, overrides).tasks)
    if as_json:
        facts = {
            "study": str(file),
            "name": study.name,
            "valid": True,
            "searches": study.searches,
            "faults": faults,
        }
        print_json(facts)
        return
    axes = count(len(study.axes), "axis", "axes")
    cases = count(len(study.cases), "case")
    searches = count(study.searches, "search", "searches")
    runs = f", {count(faults, 'run')} of faults" if faults else ""
    click.echo(f"{file}: valid ({axes}, {cases}: {searches}{runs})")


@click.command("plan")
@scenario_options
@click.option("--hosts", type=click.Path(path_type=Path), metavar="FILE", help="Place nodes on these hosts (JSON).")
@json_option
def show_plan(
    scenario: Path,
    overrides: tuple[str, ...],
    hosts: Path | None,
    as_json: bool,
) -> None:
    """Show what `up` would do: nodes, addresses, hosts, links and their commands, data shards, faults."""
    from orchestrator.verbs.plans.plan import plan_json, print_plan

    plan = _planned(scenario, overrides, hosts)
    if as_json:
        print_json(plan_json(plan))
    else:
        print_plan(plan, open_console())


@click.command()
@json_option
def schema(as_json: bool) -> None:
    """Print the scenario's JSON Schema, for editors."""
    from orchestrator.scenario.schema import json_schema

    if as_json:
        print_json(json_schema())
    else:
        click.echo(json.dumps(json_schema(), indent=2))


def _planned(scenario: Path, overrides: Sequence[str], hosts: Path | None = None) -> Plan:
    from orchestrator.verbs.sources import Source, planned

    source = Source(scenario, None, list(overrides))
    with waiting(f"planning {scenario}"):
        return planned(source, hosts)
