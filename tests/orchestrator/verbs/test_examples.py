"""The shipped examples: each is described, found by its name, and copied with the files that it uses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.main import cli
from orchestrator.errors import PlaceError, ScenarioError
from orchestrator.limits.reading import load as load_study
from orchestrator.scenario.language.files import first_comment
from orchestrator.scenario.reading import load
from orchestrator.sweep import reading
from orchestrator.verbs.examples import FOLDER, chosen, copy, described, examples, find, kind_of_file, names
from tests.texts import containing

MINE = "algorithm: {name: fedavg, rounds: 1}\ntopology: {devices: 2}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the test, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, words, input=text)


@pytest.mark.parametrize("name", names())
def test_every_example_has_a_question_and_a_time(name: str) -> None:
    question, time, seconds, driver = described((FOLDER / f"{name}.yaml").read_text())
    assert len(question) < 160
    assert (seconds is None) == (time in ("not measured", "hours", "days"))
    assert driver in ("sim", "namespaces", "virtual")


def test_a_head_comment() -> None:
    text = "# yaml-language-server: $schema=x\n# Does it work? Two edges.\n# 90 s on two cores, sim\nname: a\n"
    assert described(text) == ("Does it work?", "90 s", 90, "sim")
    assert described(text.replace("90 s", "1.5 h"))[2] == 5400
    assert described(text.replace("90 s", "days"))[1:3] == ("days", None)
    assert first_comment(text) == "Does it work? Two edges."
    for wrong in ("# Does it work?\nname: a", "# 8 s on two cores, sim\nname: a", "name: a"):
        with pytest.raises(ValueError, match=r"needs.*question.*like '# 8 s"):
            described(wrong)


def test_what_examples_require() -> None:
    required = {each.name: each.requires for each in examples()}
    assert required["hello"] == required["dropout"] == ()
    assert required["mqtt"] == ("Mosquitto",)
    assert required["flower"] == ("Flower (flwr)",)
    assert required["peers/mqtt-paho"] == ("Mosquitto", "paho-mqtt")
    assert required["limits/nvflare"] == ("NVFlare (nvflare)",)  # in its scenario
    assert required["papers/dffke-htfe1"] == ("data set cifar10",)
    assert required["papers/sweeps/fedfeat-mnist"] == ("data set mnist",)  # in the sweep
    assert required["papers/sweeps/feelpgen"] == ("data set mnist",)  # in its scenario
    assert required["papers/sweeps/phefl"] == ("data set fashion-mnist", "data set mnist")  # varied


def test_the_list() -> None:
    listed = {each["name"]: each for each in json.loads(call("examples", "--json").stdout)["examples"]}
    assert listed["hello"]["question"] == "Does everything work on this host?"
    assert [name for name, each in listed.items() if each["kind"] != "scenario" and "/" not in name] == []
    assert set(listed) == set(names())
    shown = call("examples").stdout
    assert all(f"{name} " in shown and each["question"] in shown for name, each in listed.items())


def test_names() -> None:
    assert find("flower") == FOLDER / "flower.yaml"
    assert find("flower", "study") == FOLDER / "limits/flower.yaml"
    assert find("peers/flower") == FOLDER / "peers/flower.yaml"
    assert find("asynchrony") == FOLDER / "asynchrony.yaml"
    assert find("asynchrony", "sweep") == find("sweeps/asynchrony") == FOLDER / "sweeps/asynchrony.yaml"
    assert find("phefl-d3") == FOLDER / "papers/phefl-d3.yaml"
    assert find("phefl-d3", "sweep") == FOLDER / "papers/sweeps/phefl-d3.yaml"
    assert find("fedfeat") == FOLDER / "papers/sweeps/fedfeat.yaml"
    assert find("hello.yaml") is find("../hello") is find("traces/lte-up") is find("") is None


def test_a_path_takes_precedence(folder: Path) -> None:
    assert chosen("hello") == FOLDER / "hello.yaml"
    (folder / "hello").write_text(MINE)
    assert chosen("hello") == Path("hello")


def test_a_path_that_cannot_be_looked_up_keeps_its_reason(folder: Path) -> None:
    (folder / "hello").mkdir()
    (folder / "file").touch()
    assert str(call("up", "hello").exception) == containing("hello: cannot be read")
    assert "cannot be read: Not a directory" in str(call("up", "file/a.yaml").exception)
    assert "cannot be read: File name too" in str(call("up", "x" * 300).exception)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("helo", "helo: neither a file nor"),
        ("scenarios/hello.yaml", "did you mean 'hello'?"),
        ("sweeps/fedfaet", "did you mean 'fedfeat'?"),
        ("https://example.org/x.yaml", "https://example.org/x.yaml: download it first"),
    ],
)
def test_an_unknown_name(given: str, said: str) -> None:
    for words in (["up"], ["validate"], ["plan"], ["calibrate"], ["sweep"]):
        result = call(*words, given)
        assert isinstance(result.exception, ScenarioError)
        assert said in str(result.exception)


def test_the_only_scenario_of_the_folder(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"^there is no scenario.*folder"):
        chosen(None)
    (folder / "mine.yaml").write_text(MINE)
    (folder / "compose.yml").write_text("services: {}\n")
    (folder / "sweep.yaml").write_text("scenario: mine.yaml\n")
    (folder / "broken.yaml").write_bytes(b"\xff")
    assert (chosen(None), chosen(None, "sweep")) == (Path("mine.yaml"), Path("sweep.yaml"))
    assert call("validate").stdout == "mine.yaml: valid (3 nodes)\n"
    (folder / "other.yml").write_text(MINE)
    with pytest.raises(ScenarioError, match=r"^name.*this folder: mine\.yaml, other\.yml$"):
        chosen(None)


def test_standard_input(folder: Path) -> None:
    (folder / "trace.csv").write_text("t_s,rate_mbit\n0,1\n")
    trace = "links: {device-cloud: {schedule: {csv: trace.csv}}}\n"
    assert call("validate", "-", text=MINE + trace).stdout == "-: valid (3 nodes)\n"
    assert "-:3: " in str(call("validate", "-", text=MINE + "no: 1").exception)
    done = call("up", "-", "--driver", "sim", "--json", text=MINE)
    run = Path(json.loads(done.stdout)["run"])
    assert (run / "scenario.yaml").read_text() == MINE
    (folder / "mine.yaml").write_text(MINE)
    done = call("sweep", "-", "--driver", "sim", "--json", text="scenario: mine.yaml\n")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * ("sweeps/" in each)) for each in names()]
)
def test_a_copy_is_complete(folder: Path, name: str) -> None:
    file, *_ = copy(name, folder / "mine")
    assert file == folder / f"mine/{name}.yaml"
    read: dict[str, Callable[[Path], object]] = {"scenario": load, "sweep": reading.load, "study": load_study}
    read[kind_of_file(file)](file)


def test_the_files_of_copies(folder: Path) -> None:
    def copied(name: str) -> set[str]:
        return {path.relative_to(folder / name).as_posix() for path in copy(name, folder / name)}

    assert copied("mqtt") == {"mqtt.yaml", "mqtt/broker.conf"}
    assert copied("selection") == {"sweeps/selection.yaml", "population.yaml", "traces/availability.csv"}
    kit = {"project.yml", "start.py", "job.py", "rounds.py", "train.py"}  # the last two are imported
    assert copied("peers/nvflare") == {"peers/nvflare.yaml", *(f"peers/nvflare/{name}" for name in kit)}
    folder_of_script = {f"peers/messages/{name}.py" for name in ("over_tcp", "over_zmq", "over_mqtt", "observer")}
    study = {"limits/messages-tcp.yaml", "peers/messages-tcp.yaml", *folder_of_script}
    assert copied("limits/messages-tcp") == study
    app = {path.relative_to(FOLDER).as_posix() for path in (FOLDER / "flower").rglob("*") if path.is_file()}
    assert copied("flower") == {"flower.yaml", *(each for each in app if not each.endswith(".pyc"))}


def test_a_copy_may_have_another_name(folder: Path) -> None:
    result = call("new", "on-the-move", "mine/ride.yaml")
    assert result.output.splitlines()[0] == "mine/ride.yaml"
    assert (folder / "mine/traces/lte-up.txt").exists()
    assert load(folder / "mine/ride.yaml").name == "ride"


def test_a_sweep_keeps_its_name(folder: Path) -> None:
    result = call("new", "sweeps/selection", "mine.yaml")
    assert str(result.exception) == containing("mine.yaml: sweeps/selection is copied", "folder")


def test_a_copy_overwrites_nothing(folder: Path) -> None:
    words = ("new", "on-the-move", "x")
    assert call(*words).stdout.split()[0] == "x/on-the-move.yaml"
    assert "next: edgebed up x/on-the-move.yaml" in call(*words).output
    assert "next: edgebed sweep sweeps/boards.yaml" in call("new", "boards").output
    (folder / "x/traces/lte-up.txt").write_text("mine")
    result = call(*words)
    assert isinstance(result.exception, PlaceError)
    assert str(result.exception) == containing("x/traces/lte-up.txt exists with another content")
    (folder / "taken").touch()
    assert "cannot be copied" in str(call("new", "hello", "taken").exception)
    assert "did you mean 'hello'?" in str(call("new", "helo").exception)


def test_an_example_runs_into_the_current_folder(folder: Path) -> None:
    done = call("up", "smoke", "--driver", "sim", "--json")
    assert done.exit_code == 0, done.output
    assert os.listdir(folder) == ["runs"]
