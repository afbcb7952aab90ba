"""Plug-ins in a scenario: known before it is checked; mistakes with the scenario's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import PlanError, ScenarioError
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.catalogue import EDGEBED, added
from orchestrator.scenario.reading import load, parse
from orchestrator.scenario.schema import Scenario, effective
from tests import tutorial


@pytest.mark.parametrize("name", ["fedavgm", "topk", "waves", "sensors", "masked", "writers", "fair"])
def test_the_tutorials_scenarios_can_be_planned(tmp_path: Path, name: str) -> None:
    planned(tmp_path, name)


def planned(folder: Path, name: str) -> Plan:
    scenario = load(tutorial.lay_out(folder)[name])
    plan = make_plan(scenario, None)
    assert [each.name for each in plan.plugins] == [f"{name}.py"]
    recorded = plan.recorded["plugins"]
    assert recorded == [{"name": f"{name}.py", "sha256": plan.plugins[0].sha256}]
    assert effective(scenario)["plugins"] == [f"{name}.py"]
    return plan


@pytest.mark.slow
def test_the_size_of_a_plug_ins_model_is_measured(tmp_path: Path) -> None:
    assert planned(tmp_path, "tanh").model_bytes == 4 * ((64 + 1) * 48 + (48 + 1) * 10)


def test_another_scenario_does_not_know_them(tmp_path: Path) -> None:
    one = load(tutorial.lay_out(tmp_path)["fedavgm"])
    with pytest.raises(ScenarioError, match="'fedavgm' is no algorithm"):
        parse("algorithm: fedavgm\n", "f.yaml")
    assert "fedavgm" in one.catalogue.algorithms
    assert "fedavgm" not in EDGEBED.algorithms


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plugins: [none.py]", "f.yaml:1: plugins[0]: none.py cannot be read"),
        ("plugins: none.py", "f.yaml:1: plugins: write a list of"),
        ("plugins: [3]", "f.yaml:1: plugins: write a list of"),
        ("plugins: [tanh.py, tanh.py]", "f.yaml:1: plugins: tanh.py is given twice"),
    ],
)
def test_mistakes(tmp_path: Path, line: str, message: str) -> None:
    tutorial.lay_out(tmp_path)
    with pytest.raises(ScenarioError) as raised:
        parse(f"{line}\nalgorithm: fedavg\n", str(tmp_path / "f.yaml"))
    assert str(raised.value).replace(f"{tmp_path}/", "").startswith(message)


WHOLE = """\
import edgebed

def whole(shape, classes, params):
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(64, {outputs}))

PLUGIN = edgebed.Plugin(models=[edgebed.ModelEntry("whole", build=whole)])
"""


@pytest.mark.slow
def test_a_model_of_one_module_has_no_features(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(WHOLE.format(outputs=10))
    text = "plugins: [whole.py]\nalgorithm: fedavg\nmodel: whole\ntopology: {devices: 2}\n"
    assert make_plan(parse(text, str(tmp_path / "f.yaml")), None).model_bytes == 4 * 65 * 10
    with pytest.raises(PlanError, match=r"fedfeat.*whole lacks: take cnn"):
        make_plan(parse(text, str(tmp_path / "f.yaml"), ["algorithm=fedfeat"]), None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("7", r"\(2, 7\).*2 samples \(1, 8"),
        ("classes // 0", r"whole.*\(1, 8, 8\): ZeroDivisionError"),
    ],
)
def test_a_model_that_does_not_fit_the_data(tmp_path: Path, outputs: str, message: str) -> None:
    (tmp_path / "whole.py").write_text(WHOLE.format(outputs=outputs))
    text = "plugins: [whole.py]\nalgorithm: fedavg\nmodel: whole\ntopology: {devices: 2}\n"
    with pytest.raises(PlanError, match=message):
        make_plan(parse(text, str(tmp_path / "f.yaml")), None)


PROFILE = """\
import edgebed
PLUGIN = edgebed.Plugin(profiles={{"{name}": {{"latency": "{latency}", "rate": "10mbit"}}}})
"""


def with_profile(folder: Path, name: str = "microwave", latency: str = "300ms") -> Scenario:
    (folder / "links.py").write_text(PROFILE.format(name=name, latency=latency))
    text = "plugins: [links.py]\nalgorithm: fedavg\ntopology: {devices: 2}\nlinks: {device-cloud: microwave}\n"
    return parse(text, str(folder / "f.yaml"))


def test_a_link_profile(tmp_path: Path) -> None:
    for latency in ("300ms", "200ms"):
        (link, *_) = make_plan(with_profile(tmp_path, latency=latency), None).links
        assert link.profile.to_mapping() == {"latency": latency, "rate": "10mbit"}
    assert "microwave" not in EDGEBED.profiles


@pytest.mark.parametrize(
    ("name", "latency", "message"),
    [
        ("wifi", "300ms", "link profile 'wifi': choose another name"),
        ("microwave", "fast", "plugins: link profile microwave: latency: "),
    ],
)
def test_mistakes_in_a_link_profile(tmp_path: Path, name: str, latency: str, message: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        with_profile(tmp_path, name, latency)
    assert message in str(raised.value)
    assert EDGEBED.profiles["wifi"].rate == 39e6


def test_a_package_advertises_its_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(package: str) -> None:
        about = tmp_path / f"{package}-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {package}\nVersion: 1\n")
        (about / "entry_points.txt").write_text(f"[edgebed]\nlinks-of-radiolab = {package}\n")

    (tmp_path / "radiolab.py").write_text(PROFILE.format(name="microwave", latency="300ms"))
    install("radiolab")
    monkeypatch.syspath_prepend(tmp_path)
    text = "plugins: [links-of-radiolab]\nalgorithm: hierfavg\nlinks: {edge-cloud: microwave}\n"
    (source,) = parse(text, str(tmp_path / "f.yaml")).plugins
    assert (source.name, source.module) == ("links-of-radiolab", "radiolab")
    install("other")  # while this process lives
    with pytest.raises(ScenarioError, match="several installed packages advertise"):
        parse(text, str(tmp_path / "f.yaml"))


DRIVER = """\
import edgebed
PLUGIN = edgebed.Plugin(drivers=[{driver}], checks={checks}, exporters={exporters})
"""


@pytest.mark.parametrize(
    ("driver", "checks", "message"),
    [
        ('edgebed.DriverKind("docker", "")', "{}", "there is already a driver 'docker'"),
        ('edgebed.DriverKind("mine", "", simulated=True)', "{}", "driver mine: only edgebed's own"),
        ('"mine"', "{}", "drivers holds a str"),
        ("", "{'learned': len}", "there is already a check 'learned'"),
        ("", "{'fair': 3}", "check fair is a int"),
    ],
)
def test_mistakes_in_drivers_and_checks(tmp_path: Path, driver: str, checks: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(DRIVER.format(driver=driver, checks=checks, exporters="{}"))
    with pytest.raises(ScenarioError, match=f"plugins: mine.py: {message}"):
        parse("plugins: [mine.py]\nalgorithm: fedavg\n", str(tmp_path / "f.yaml"))


@pytest.mark.parametrize(
    ("exporters", "message"),
    [
        ("{'csv': print}", "there is already an exporter 'csv'"),
        ("{'pdf': print}", "there is already an exporter 'pdf'"),
        ("{'arff': 3}", "exporter arff is a int"),
    ],
)
def test_mistakes_in_exporters(tmp_path: Path, exporters: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(DRIVER.format(driver="", checks="{}", exporters=exporters))
    with pytest.raises(ScenarioError, match=f"plugins: mine.py: {message}"):
        parse("plugins: [mine.py]\nalgorithm: fedavg\n", str(tmp_path / "f.yaml"))


def test_the_exporters_of_a_plug_in_are_in_the_catalogue(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(DRIVER.format(driver="", checks="{}", exporters="{'arff': print}"))
    scenario = parse("plugins: [mine.py]\nalgorithm: fedavg\ntopology: {devices: 2}\n", str(tmp_path / "f.yaml"))
    exporters = scenario.catalogue.exporters
    assert exporters.keys() - EDGEBED.exporters.keys() == {"arff"}
    assert exporters["arff"].write is print
    assert added(scenario.catalogue) == ["exporter arff"]


def test_the_driver_of_a_plug_in(tmp_path: Path) -> None:
    """Its module is the plug-in's own, and it has what its kind says."""
    (tmp_path / "mine.py").write_text(
        DRIVER.format(driver='edgebed.DriverKind("mine", "", images=True)', checks="{}", exporters="{}")
    )
    text = "plugins: [mine.py]\nalgorithm: fedavg\ntopology: {devices: 2}\ndriver: mine\n"
    plan = make_plan(parse(text, str(tmp_path / "f.yaml")), None)
    assert plan.driver_kind.images
    assert plan.driver_kind.module.startswith("edgebed_plugins.mine_")
    with pytest.raises(ScenarioError, match="'mine' is not one of: namespaces, docker"):
        parse("algorithm: fedavg\ndriver: mine\n", str(tmp_path / "f.yaml"))
