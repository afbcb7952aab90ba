"""The pages under docs/ stay true: what they show can be read, and every key and option they name is there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

import edgebed
import edgebed.plugin
from docs.generate import EXAMPLES
from orchestrator.claims.reading import Claim, ClaimFigure, ClaimFile, Recorded
from orchestrator.cli.main import cli
from orchestrator.limits.reading import StudyFile
from orchestrator.planning.hosts.inventory import Inventory
from orchestrator.planning.making import make_plan
from orchestrator.results.tables import TABLES
from orchestrator.scenario.exporters import EXPORTERS
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.expectations import ExpectSpec
from orchestrator.scenario.sections.hardware import BOARDS
from orchestrator.sweep.reading import SweepFile, Target, load

ROOT = Path(__file__).parents[1]
EVERY_PAGE = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
REFERENCE = "docs/reference/scenario.md"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", text_of(f"docs/{page}"), re.MULTILINE | re.DOTALL)


def test_what_a_run_may_be_expected_to_come_to_is_shown() -> None:
    (block,) = [block for block in blocks("guides/ci.md") if block.startswith("expect:")]
    shown = parse(
        "algorithm: {name: hierfavg, rounds: 20}\ntopology: {edges: 1, devices_per_edge: 2}\n" + block, "f.yaml"
    )
    assert set(shown.expect.model_fields_set) == set(ExpectSpec.model_fields)


def test_the_sweep_that_is_shown(tmp_path: Path) -> None:
    (block,) = blocks("guides/sweep.md")
    (tmp_path / "dropout-small.yaml").write_text((ROOT / "scenarios/sweeps/dropout-small.yaml").read_text())
    (tmp_path / "shown.yaml").write_text(block)
    assert len(load(tmp_path / "shown.yaml").combinations) == 3 * 2 * 3


def test_the_hosts_that_are_shown() -> None:
    """The nodes of the page's scenario run on the page's hosts, except for its rack."""
    page = (ROOT / "docs/guides/hosts.md").read_text()
    (written,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    block, media, _ = blocks("guides/hosts.md")
    hosts = Inventory.from_json(json.loads(written))
    links = "links: {device-edge: wifi, edge-cloud: {latency: 5ms}}\n"
    text = f"algorithm: hierfavg\ndriver: swarm\ntopology: {{edges: 1, devices_per_edge: 2}}\n{links}{block}"
    scenario = parse(text, "f.yaml", ["hosts.device=pc-1"])
    plan = make_plan(scenario, None, inventory=hosts)
    assert [node.host for node in plan.nodes] == ["pc-1", "pc-1", "pc-1", "pi-1"]
    assert all(f"`{board}`" in page for board in BOARDS)
    shared = parse(f"algorithm: hierfavg\ndriver: swarm\n{media}", "f.yaml", ["hosts.device=pi-1"])
    placement = make_plan(shared, None, inventory=hosts).placement
    assert placement is not None
    assert placement.media == {"cell": "pc-1"}


@pytest.mark.parametrize(
    "key", [*ClaimFile.model_fields, *Claim.model_fields, *ClaimFigure.model_fields, *Recorded.model_fields]
)
def test_every_key_of_a_claim_is_explained(key: str) -> None:
    assert re.search(rf"`{key}`|^ *{key}:", (ROOT / "docs/guides/reproduce.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("key", [*SweepFile.model_fields, *Target.model_fields])
def test_every_key_of_a_sweep_is_explained(key: str) -> None:
    assert f"`{key}" in (ROOT / "docs/guides/sweep.md").read_text()


@pytest.mark.parametrize("key", Scenario.model_fields)
def test_the_example_of_every_key_is_a_scenario(key: str) -> None:
    shown = yaml.safe_load(EXAMPLES[key])
    assert key in shown
    flat = shown.get("topology", {}).get("population")
    algorithm = "" if {"algorithm", "programs"} & shown.keys() else f"algorithm: {'fedavg' if flat else 'hierfavg'}\n"
    parse(algorithm + EXAMPLES[key], "f.yaml")


def test_everything_that_leaves_is_explained() -> None:
    page = (ROOT / "docs/guides/results.md").read_text()
    assert [name for name in (*EXPORTERS, *TABLES) if f"| `{name}` |" not in page] == []
    assert {kind for kind, each in EXPORTERS.items() if each.packages} <= EXTRAS.keys()


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_every_command_is_valid(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arguments and options are read as when it runs, with hello in place of the reader's own scenario."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    for name in {"scenario.yaml", *re.findall(r"\b(?:mine|base)\.yaml", text_of(page))}:
        (tmp_path / name).write_text(text_of("scenarios/hello.yaml"))
    for name, block in re.findall(r"^`(\w+\.yaml)`:\n\n```yaml\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(block)
    for line in re.findall(r"^ {4}(?:\w+=\$\()?(?:edgebed|python -m orchestrator) ([^#&|<>)\n]*)", text_of(page), re.M):
        command: click.Command = cli
        context, words = None, shlex.split(line)
        while words and words != ["--version"]:
            context = command.make_context(command.name, words, parent=context)
            if not isinstance(command, click.Group):
                break
            _, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
            assert found is not None, line
            command = found


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_every_yaml_example_is_valid(page: str, tmp_path: Path) -> None:
    """A sweep, a workflow, or a scenario or part of one. Other tests run those with plug-ins."""
    (tmp_path / "drive.csv").write_text("timestamp,throughput_mbps,rtt_ms\n0,20,80\n1,18,90\n")
    for block in re.findall(r"^```yaml\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL):
        shown = yaml.safe_load(block)
        of_study = "axes" in shown or {"scenario", "faults"} <= shown.keys()
        if of_study:
            StudyFile.model_validate({"name": "shown", **shown})
        elif "scenario" in shown:
            SweepFile.model_validate({"name": "shown", **shown})
        elif "claims" in shown:
            ClaimFile.model_validate(shown)
        elif "jobs" in shown:
            (tmp_path / "workflow.yml").write_text(block)
            check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
            subprocess.run([*check, tmp_path / "workflow.yml"], check=True)
        elif "plugins" not in shown and page != REFERENCE:
            text = block if {"algorithm", "programs"} & shown.keys() else f"algorithm: hierfavg\n{block}"
            of_hosts = page == "docs/guides/hosts.md" or "hosts" in shown
            overrides = ["driver=swarm"] if of_hosts else []
            parse(text, str(tmp_path / "f.yaml"), overrides)


@pytest.mark.parametrize("name", sorted({*edgebed.__all__, *edgebed.plugin.__all__} - {"__version__"}))
def test_every_public_name_has_a_description(name: str) -> None:
    assert len((getattr(edgebed, name).__doc__ or "").split()) >= 5


FROM_A_RELEASE = re.compile(r"(?:pip|uv tool) install (?:--\S+ \S+ )?'?edgebed\b|edgebed@v\d|edgebed(?:\[\w+\])?==")
ABOUT_RELEASES = "docs/install.md"


def test_only_one_page_says_what_a_release_changes() -> None:
    """All others show what works before the first release."""
    notebooks = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.ipynb")]
    shown = {page for page in (*EVERY_PAGE, *notebooks, "CONTRIBUTING.md") if FROM_A_RELEASE.search(text_of(page))}
    assert shown == {ABOUT_RELEASES}


def test_every_page_is_in_the_index() -> None:
    linked = {f"docs/{page}" for page in re.findall(r"\]\(([\w/-]+\.md)\)", text_of("docs/README.md"))}
    assert linked == {page for page in EVERY_PAGE if page.startswith("docs/")} - {"docs/README.md"}


@pytest.mark.slow
def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    options = ["-W", "--keep-going", "-q", "-d", str(tmp_path / "trees")]
    build = [sys.executable, "-m", "sphinx", *options, "docs", str(tmp_path / "site")]
    assert subprocess.run(build, cwd=ROOT, capture_output=True, text=True).stderr == ""
    start = (tmp_path / "site/index.html").read_text()
    assert "guides/hosts.html" in start
    assert "edgebed is a testbed" in start


def test_every_row_of_the_table_of_security_names_tests_that_exist() -> None:
    page = (ROOT / "docs/explanation/security.md").read_text()
    _, table, _ = re.split(r"^## What a hostile node can(?:not)? do$", page, flags=re.MULTILINE)
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) > 15
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row.split("|")[3])
        assert named, row
        assert all(f"def {name}(" in sources for name in named), row


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_every_link_and_every_path_of_the_code_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if not link.startswith("http")]
    paths = re.findall(r"`((?:netem|node|orchestrator|tests|scenarios|benchmarks|images)/[\w./-]*)", text)
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
    assert [path for path in paths if not (ROOT / path).exists()] == []
