"""Studies from their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.limits.axes import Axis
from orchestrator.limits.reading import Study, Within, parse

SCENARIO = """\
driver: sim
algorithm: {name: fedavg, rounds: 2}
data: {dataset: digits, samples_per_client: 40}
topology: {devices: 4}
links: {device-cloud: {profile: wifi, up: {latency: 3ms}}}
faults: [{at: 1s, node: device-0, action: pause, for: 1s}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(SCENARIO)
    return tmp_path / "study.yaml"


def read(file: Path, text: str) -> Study:
    return parse(f"scenario: base.yaml\n{text}", file)


def only_axis(file: Path, text: str) -> Axis:
    (axis,) = read(file, text).axes
    return axis


def data(study: Study) -> dict[str, object]:
    return dict(study.cases[0].data)


def test_a_latency_reaches_both_directions(file: Path) -> None:
    study = read(file, "axes: {latency: {links: device-cloud}}\n")
    changes = study.axes[0].changes(2.0, data(study), unimpaired=3.0)
    assert changes == {"links.device-cloud.latency": "2s", "links.device-cloud.up.latency": "2s"}


def test_one_direction(file: Path) -> None:
    study = read(file, "axes: {loss: {direction: down, to: 50%}}\n")
    assert study.axes[0].changes(0.25, data(study), unimpaired=3.0) == {"links.device-cloud.down.loss": "25%"}
    assert study.axes[0].by_chance


def test_a_fault_is_added_to_those_of_the_scenario(file: Path) -> None:
    study = read(file, "axes: {outage: {fault: {node: device-1, round: 2}, for: {from: 1s, to: 20s}}}\n")
    changes = study.axes[0].changes(5.0, data(study), unimpaired=3.0)
    first, added = changes["faults"]
    assert first["node"] == "device-0"
    assert added == {"action": "disconnect", "node": "device-1", "round": 2, "for": "5s"}


def test_a_fault_without_a_time_starts_after_a_third_of_the_unimpaired_training(file: Path) -> None:
    study = read(file, "axes: {pause: {}}\n")
    changes = study.axes[0].changes(5.0, data(study), unimpaired=3.0)
    assert changes["faults"][-1] == {"node": "device-0", "action": "pause", "at": "1s", "for": "5s"}


def test_a_restart_hits_the_leader(file: Path) -> None:
    axis = only_axis(file, "axes: {restart: {}}\n")
    assert axis.fault == {"node": "cloud", "action": "crash"}


def test_absent_devices_are_counted(file: Path) -> None:
    study = read(file, "axes: {absent: {clients: {from: 0%, to: 90%}, round: 1}}\nrequire: {absent: 50%}\n")
    axis = study.axes[0]
    assert (axis.scale.mild, axis.scale.severe, axis.required) == (0, 3, 2)
    assert axis.changes(0.0, data(study), unimpaired=3.0) == {}
    added = axis.changes(2.0, data(study), unimpaired=3.0)["faults"][-1]
    assert added == {"of": "devices", "count": 2, "action": "disconnect", "round": 1}


def test_a_case_with_another_algorithm_keeps_the_rounds(file: Path) -> None:
    """As a case of a sweep does."""
    study = read(file, "axes: {latency: {}}\ncases: {prox: {algorithm: {name: fedprox}}}\n")
    assert study.cases[0].scenario.rounds == 2


def test_survival(file: Path) -> None:
    study = read(file, "axes: {latency: {}}\nsurvives: {within: 2x, accuracy: -2 points}\n")
    assert study.survives.within.allowed(3.0) == 6.0
    assert study.survives.accuracy == 0.02
    assert Within(seconds=9.0).allowed(3.0) == 9.0


def test_a_plain_scenario_is_a_study_of_all_axes(file: Path) -> None:
    study = parse(SCENARIO, file.with_name("base.yaml"))
    assert [axis.name for axis in study.axes] == ["latency", "loss", "rate", "outage", "pause", "absent"]
    chosen = parse(SCENARIO, file.with_name("base.yaml"), only=["rate"])
    assert chosen.chosen == ("rate",)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("axes: {latency: {from: 1s, to: 1s}}\n", "study.yaml:2: axes.latency", "the same"),
        ("axes: {latency: {from: 1}}\n", "study.yaml:2: axes.latency.from", "unit"),
        ("axes: {heat: {}}\n", "study.yaml:2: axes.heat", "unknown key"),
        ("axes: {latency: {links: device-edge}}\n", "study.yaml:2: axes.latency.links", "device-cloud"),
        ("axes: {outage: {fault: {for: 1s}}}\n", "study.yaml:2: axes.outage.fault", "for"),
        ("axes: {outage: {fault: {node: device-9}}}\n", "study.yaml:2: axes.outage", "device-9"),
        ("axes: {}\n", "study.yaml:2: axes", "at least one"),
        ("axes: {latency: {}}\nrequire: {rate: 1mbit}\n", "study.yaml:3: require.rate", "no axis"),
        ("axes: {latency: {}}\nrequire: {latency: 1h}\n", "study.yaml:3: require.latency", "10ms and 30s"),
        ("axes: {absent: {clients: {to: 10%}}}\n", "study.yaml:2: axes.absent.clients", "of 4 devices"),
        ("axes: {latency: {}}\nsurvives: {within: 5}\n", "study.yaml:3: survives.within", "5x"),
        ("axes: {latency: {}}\ncases: {odd: {links.device-cloud.rate: 1}}\n", "study.yaml:3", "in case 'odd'"),
    ],
)
def test_bad_input_names_line_and_remedy(file: Path, text: str, place: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(file, text)
    message = str(caught.value)
    assert place in message
    assert words in message


def test_an_unknown_axis_on_the_command_line(file: Path) -> None:
    with pytest.raises(ScenarioError, match="--axis rate"):
        parse("scenario: base.yaml\naxes: {latency: {}}\n", file, only=["rate"])
