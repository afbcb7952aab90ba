"""An archive is written, repeated and compared, through the command line."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import edgebed
from node.extras import install_command
from orchestrator.archive.crate import METADATA
from orchestrator.archive.expected import FILE
from orchestrator.archive.reproduction import code_in
from orchestrator.archive.writing import constraints, files_of_programs, packages
from orchestrator.cli.main import cli
from orchestrator.errors import ArchiveError, HostError, MistakeError, RunError
from orchestrator.planning.plan import Plan
from orchestrator.run.launch import prepared_plan
from orchestrator.scenario.schema import Scenario
from orchestrator.verbs.python_interface import RUNS

pytestmark = [pytest.mark.slow]

SCENARIO = """\
# Does one device learn?
plugins: [plug/mine.py]
algorithm: {name: hierfavg, rounds: 1, kappa2: 1, learning_rate: 0.2}
data: {dataset: digits, partition: iid, evaluate_samples: 100}
model: mlp
topology: {edges: 1, devices_per_edge: 1}
links:
  device-edge: {latency: 5ms, schedule: {trace: plug/up.txt}}
"""
SWEEP = """\
scenario: small.yaml
vary: {algorithm.epochs: [1, 2]}
target: {accuracy: 30%}
"""
DESCRIBED = ("--author", "Ada L.", "--author", "Alan T.", "--license", "https://spdx.org/licenses/CC-BY-4.0")
PLUGIN = "from edgebed import Plugin\n\nPLUGIN = Plugin()\n"


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep of two runs, and its archive."""
    folder = tmp_path_factory.mktemp("author")
    (folder / "plug").mkdir()
    (folder / "plug/mine.py").write_text(PLUGIN)
    (folder / "plug/up.txt").write_text("".join(f"{ms}\n" for ms in range(1, 1001)))
    (folder / "small.yaml").write_text(SCENARIO)
    (folder / "mine.yaml").write_text(SWEEP)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert call("sweep", "mine.yaml", "--driver", "sim", "--workers", "1").exit_code == 0
        os.utime(folder / "runs/mine/sweep.md", (0, 0))  # a zip file has no times before 1980
        for files in Path("runs/mine").glob("*/files"):
            (files / "link").symlink_to(folder / "mine.yaml")
        (folder / "mine.yaml").write_text("changed after the sweep")
        done = call("archive", "mine", "--tolerance", "final.global=1%", *DESCRIBED, "--json")
        assert json.loads(done.stdout) == {"file": "mine.zip"}
    return folder


@pytest.fixture
def reader(author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive, in the empty folder of another user."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(author / "mine.zip", tmp_path)
    return tmp_path / "mine.zip"


def rewrite(file: Path, change: Callable[[str, bytes], bytes]) -> None:
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, change(name, content))


def read(file: Path, name: str) -> Any:
    with zipfile.ZipFile(file) as archive:
        return json.loads(archive.read(name))


def test_the_runs_are_repeated_and_confirmed(reader: Path) -> None:
    done = call("reproduce", reader, "--trust", "--workers", "1", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["state"], found["inexact"], len(found["runs"])) == ("confirmed", [], 2)
    assert {Path(run).parent for run in found["runs"]} == {RUNS.resolve() / "mine-reproduction"}
    assert sorted(found["code"]) == ["plug-in plug/mine.py"]


def test_code_runs_only_with_trust(reader: Path) -> None:
    done = call("reproduce", reader)
    assert done.exit_code == 4
    assert "plug-in plug/mine.py" in done.stdout
    assert "epochs=1, seed 1: it runs code" in done.stdout
    assert not RUNS.exists()


def test_one_digit_is_found(reader: Path) -> None:
    run = min(read(reader, FILE)["runs"])
    expected = read(reader, FILE)
    figure = expected["runs"][run]["figures"]["final.global"]
    assert figure["tolerance"] == pytest.approx(0.01 * figure["expected"])
    figure["expected"] += 0.01
    rewrite(reader, lambda name, content: json.dumps(expected).encode() if name == FILE else content)
    done = call("reproduce", reader, "--trust", "--workers", "1", "--json")
    assert done.exit_code == 1, done.output
    file, digit = json.loads(done.stdout)["differences"]
    assert (file["figure"], file["actual"]) == (FILE, "a changed file")
    assert (digit["run"], digit["figure"]) == (f"[1/2] {expected['runs'][run]['case']}, seed 1", "final.global")
    assert float(digit["expected"]) == pytest.approx(float(digit["actual"]) + 0.01)


def test_another_scenario_is_found(reader: Path) -> None:
    def change(name: str, content: bytes) -> bytes:
        return content.replace(b"0.2}", b"0.3}") if name.endswith("scenario.yaml") else content

    rewrite(reader, change)
    done = call("reproduce", reader, "--trust", "--workers", "1")
    assert done.exit_code == 1, done.output
    assert "plan.algorithm.params.learning_rate" in done.stdout
    assert "scenario.yaml" in done.stdout


def test_a_value_that_only_the_archived_plan_has_is_found(reader: Path) -> None:
    def change(name: str, content: bytes) -> bytes:
        return json.dumps({**json.loads(content), "more": 1}).encode() if name.endswith("plan.json") else content

    rewrite(reader, change)
    found = edgebed.reproduce(reader, trust=True, workers=1)
    assert ("plan.more", "1", "–") in {(each.figure, each.expected, each.actual) for each in found.differences}


def test_what_is_not_possible_here(reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise HostError("no namespaces here")

    monkeypatch.setattr("orchestrator.archive.reproduction.prepared_plan", refuse)
    found = edgebed.reproduce(reader, trust=True)
    assert (found.state, found.runs, found.differences) == ("not possible here", [], [])
    assert [each for each in found.impossible if each.endswith("=1, seed 1: no namespaces here")]


def test_other_data_of_the_same_name(reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(scenario: Scenario, file: Path) -> Plan:
        plan = prepared_plan(scenario, file)
        return replace(plan, data=replace(plan.data, sha256="0"))

    monkeypatch.setattr("orchestrator.archive.reproduction.prepared_plan", planned)
    found = edgebed.reproduce(reader, trust=True)
    assert found.state == "not possible here"
    assert "another data set digits: its hash" in found.impossible[0]


def test_what_the_archive_holds(reader: Path) -> None:
    with zipfile.ZipFile(reader) as archive:
        names = set(archive.namelist())
        assert archive.read("sweep.yaml").decode() == SWEEP
        script, pins = archive.read("reproduce.sh").decode(), archive.read("constraints.txt").decode()
    (run, _) = sorted(read(reader, FILE)["runs"])
    own = {name.removeprefix(f"runs/{run}/") for name in names if name.startswith(f"runs/{run}/")}
    assert {"scenario.yaml", "plan.json", "run.db", "report.html", "summary.json", "plugins/mine.py"} <= own
    assert [name for name in own if name.startswith("files/") and name.endswith("up.txt")]
    assert not own & {"token", "lock", "shards.npz", "files/link"}
    assert {"sweep.yaml", "sweep.json", "sweep.md", "sweep.html", "environment.json"} <= names
    assert "edgebed[learning]==" in script
    assert "\nnumpy==" in pins
    assert "\nedgebed==" not in pins
    (data,) = (read(reader, name) for name in names if name.startswith("data/"))
    assert (data["name"], len(data["distribution"])) == ("digits", 4)
    assert {each["@type"] for each in data["distribution"]} == {"cr:FileObject"}


def test_the_description(reader: Path) -> None:
    entities = {each["@id"]: each for each in read(reader, METADATA)["@graph"]}
    runs = [each for each in entities.values() if each["@type"] == "CreateAction"]
    assert [each["name"] for each in runs] == [f"small, algorithm.epochs={n}, seed 1, sim" for n in (1, 2)]
    facts = [entities[each["@id"]] for each in entities[runs[0]["result"][0]["@id"]]["variableMeasured"]]
    by_name = {each["name"]: each["value"] for each in facts}
    assert (
        by_name["final.global"]
        == next(iter(read(reader, FILE)["runs"].values()))["figures"]["final.global"]["expected"]
    )
    assert '"latency": "5ms"' in by_name["links device-edge, configured"]
    assert by_name["host cores"] >= 1


VALIDATOR = shutil.which("rocrate-validator")
UNKNOWN_TO_EDGEBED = {
    "ro-crate-1.1_22.3",
    "ro-crate-1.1_30.2",
    "ro-crate-1.1_30.3",
}  # publisher, affiliations of authors


@pytest.mark.skipif(VALIDATOR is None, reason="needs roc-validator, in an environment of its own")
@pytest.mark.parametrize(("severity", "exceptions"), [("REQUIRED", set()), ("RECOMMENDED", UNKNOWN_TO_EDGEBED)])
def test_the_validator_passes(reader: Path, severity: str, exceptions: set[str]) -> None:
    import rocrate

    with zipfile.ZipFile(reader) as archive:
        archive.extractall("unpacked")
    python, script = Path(str(VALIDATOR)).resolve().with_name("python"), Path(__file__).with_name("validator.py")
    context = Path(rocrate.__file__).with_name("data") / "ro-crate.jsonld"
    command = [str(python), str(script), str(context), "unpacked", severity]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert {line.split()[0] for line in done.stdout.splitlines()} == exceptions, done.stdout + done.stderr
    assert done.returncode == bool(exceptions), done.stderr


def test_what_is_not_archived(author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(author)
    done = call("archive", "mine", "--output", tmp_path / "x.zip", "--tolerance", "final.globe=1")
    assert isinstance(done.exception, MistakeError)
    assert "did you mean 'final.global'" in str(done.exception)
    for words, why in ((["x"], "'x' is not FIGURE=VALUE"), (["seconds=much"], "write 0.03 or 5%")):
        done = call("archive", "mine", "--output", tmp_path / "x.zip", "--tolerance", *words)
        assert why in done.output + str(done.exception)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert install_command("archive") in str(call("archive", "mine").exception)
    assert not [*tmp_path.iterdir()]


def test_other_packages_than_those_of_the_run(author: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(author)
    monkeypatch.setattr("orchestrator.archive.writing.packages", lambda: {"numpy": {"version": "0", "sha256": ""}})
    done = call("archive", "mine")
    assert isinstance(done.exception, RunError)
    assert "none is installed" in str(done.exception)


def test_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_removed-1.dist-info").mkdir()
    (tmp_path / "numpy-0.dist-info").mkdir()
    (tmp_path / "numpy-0.dist-info/METADATA").write_text("Name: numpy\nVersion: 0\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])  # where an import would not find them first
    found = packages.__wrapped__()
    assert found["numpy"]["version"] == importlib.metadata.version("numpy")
    assert len(found["numpy"]["sha256"]) == 64
    installed = {"edgebed": {"version": "1"}, "torch": {"version": "2.1+cpu"}, "odd": {"version": ""}}
    assert constraints(installed) == "torch==2.1\n"


def test_an_archive_without_runs(tmp_path: Path) -> None:
    expected = b'{"runs": {}}'
    graph = [{"@id": FILE, "sha256": hashlib.sha256(expected).hexdigest()}]
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as archive:
        archive.writestr(FILE, expected)
        archive.writestr(METADATA, json.dumps({"@graph": graph}))
    done = call("reproduce", tmp_path / "none.zip", "--runs", tmp_path / "runs")
    assert isinstance(done.exception, ArchiveError)


def test_code_in_a_scenario() -> None:
    scenario = {
        "plugins": ["a.py", "lab.models"],
        "programs": {"cloud": "python server.py", "edge": {"command": ["a", "b"], "image": "broker:2"}, "odd": 1},
        "hardware": {"edge": {"class": "host", "image": "node:arm64"}},
    }
    assert code_in(scenario) == [
        *("plug-in a.py", "plug-in lab.models", "program cloud: python server.py", "program edge: ['a', 'b']"),
        *("program odd: 1", "image broker:2", "image node:arm64"),
    ]
    assert code_in({"plugins": "a.py", "programs": "b"}) == ["plug-in a.py", "program : b"]
    assert code_in({"plugins": [], "model": "mlp"}) == []


def test_an_image_in_a_file_of_clients_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain = SCENARIO.replace("plugins: [plug/mine.py]\n", "").partition("links:")[0]
    Path("small.yaml").write_text(f"{plain}clients: {{file: clients.csv}}\n")
    Path("clients.csv").write_text("node,image\ndevice-0-0,evil:1\n")
    assert call("up", "small.yaml", "--driver", "sim", "--workers", "1").exit_code == 0
    assert call("archive", "--output", "new/mine.zip").exit_code == 0
    Path("clients.csv").unlink()
    done = call("reproduce", "new/mine.zip", "--json")
    assert (done.exit_code, json.loads(done.stdout)["code"]) == (4, ["image evil:1"])


def test_files_of_programs(tmp_path: Path) -> None:
    (tmp_path / "src/.git").mkdir(parents=True)
    (tmp_path / "src/server.py").write_text("")
    (tmp_path / "src/.git/config").write_text("")
    assert files_of_programs(tmp_path) == {"scenario/src/server.py": tmp_path / "src/server.py"}
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(RunError, match=r"link.*an archive cannot contain"):
        files_of_programs(tmp_path)


def test_an_incomplete_sweep(author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(author / "runs", "runs")
    table = json.loads(Path("runs/mine/sweep.json").read_text())
    Path("runs/mine/sweep.json").write_text(json.dumps(table | {"planned": 3}))
    assert "mine has 2 of 3 runs" in str(call("archive", "mine").exception)
    Path("runs/mine/sweep.json").write_text(json.dumps({key: table[key] for key in ("cases", "target")}))
    assert "runs/mine cannot be read (KeyError: 'planned'; " in str(call("archive", "mine").exception)


def test_cases_that_share_a_run_or_have_other_figures(
    author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(author)
    cases = "{a: {}, b: {algorithm.epochs: 1}, c: {algorithm: {name: onlyedge, rounds: 1, learning_rate: 0.2}}}"
    (author / "two.yaml").write_text(f"scenario: small.yaml\ncases: {cases}\n")
    assert call("sweep", "two.yaml", "--driver", "sim", "--workers", "1").exit_code == 0
    file = tmp_path / f"{'two' * 83}.zip"  # nearly as long as the name of a file may be
    assert call("archive", "two", "--output", file, "--tolerance", "message_bytes.done=3").exit_code == 0
    runs = read(file, FILE)["runs"].values()
    assert [each["figures"].get("message_bytes.done", {}).get("tolerance") for each in runs] == [None, 3]


def test_an_archive_is_checked_alone(tmp_path: Path) -> None:
    assert "archive takes no claims or other" in call("reproduce", "a.zip", "b.zip").output
    assert "--trust is for an archive" in call("reproduce", "mine", "--trust").output
    (tmp_path / "a.zip").write_bytes(b"")
    assert isinstance(call("reproduce", tmp_path / "a.zip").exception, ArchiveError)
