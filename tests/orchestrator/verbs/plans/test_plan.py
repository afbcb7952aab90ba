"""The plan in a terminal of 100 columns."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from orchestrator.cli.main import carry_out, cli
from orchestrator.errors import MistakeError
from orchestrator.fabric.userspace import link_request
from orchestrator.planning.hosts.inventory import HostFacts, Inventory, Underlay
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse
from orchestrator.verbs.plans.commands import kernel_commands
from orchestrator.verbs.plans.plan import plan_json, print_plan
from tests.orchestrator.labels import prepared
from tests.texts import containing

DOZEN = """\
name: dozen
seed: 7
algorithm: {name: hierfavg, rounds: 8, kappa2: 2}
data: {partition: {dirichlet: 0.1}}
topology: {edges: 3, devices_per_edge: 4}
hardware: {device: raspberry-pi-4, edge: jetson-orin-nano}
links:
  device-edge: wifi
  edge-cloud: {latency: 40ms, jitter: 5ms, loss: 0.5%, rate: 50mbit}
  device-1-2 -> edge-1: {loss: {gilbert-elliott: {p: 2%, r: 30%}}}
faults:
  - {at: 20s, node: device-1-2, action: crash, for: 15s}
  - {every_round: 30%, of: devices, action: disconnect}
  - {at: 40s, between: [edge-0, cloud], action: partition, for: 10s}
  - {at: 50s, node: edge-0, action: degrade, profile: dsl}
  - {at: 60s, node: edge-0, action: degrade, loss: 3%}
  - {round: 2, node: edge-0, action: slow, factor: 4}
  - {round: 3, node: device-2-3, action: join}
"""
CROWD = "algorithm: hierfavg\ntopology: {edges: 20, devices_per_edge: 25}\n"


def plan(text: str, *overrides: str) -> Plan:
    return make_plan(parse(text, "f.yaml", overrides), prepared())


def printed(shown: Plan, width: int = 100) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_plan(shown, console)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    return [line for line in lines if set(line) != {"─"}]  # what lies under the headings of a table


def after(lines: list[str], start: str) -> list[str]:
    """The rows of the table with this title, without its header."""
    (first,) = [number for number, line in enumerate(lines) if line.startswith(start)]
    rest = lines[first + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def test_a_dozen_nodes_are_shown_one_by_one() -> None:
    rows = after(printed(plan(DOZEN)), "Nodes (16)")[1:]
    assert len(rows) == 16
    assert rows[0].split() == ["cloud", "10.77.0.1:7000", "host", "leads"]
    assert rows[15].split()[:5] == ["device-2-3", "10.77.0.16:7000", "raspberry-pi-4", "0.16", "edge-2"]
    assert "joins round 3" in rows[15]


def test_an_image_of_its_own_distinguishes_a_node() -> None:
    rows = after(printed(plan(CROWD, "hardware.device-3-7={image: 'pi:5'}")), "Nodes (521)")
    assert "device-3-7 10.77.0.104:7000 host edge-3 image pi:5" in [" ".join(row.split()) for row in rows]


def test_the_labels_of_every_shard_are_shown() -> None:
    made = plan(DOZEN)
    rows = [line.split() for line in printed(made) if line.startswith("device-0-0 ")]
    counts = [str(count or "·") for count in made.node("device-0-0").label_counts]
    assert ["device-0-0", str(made.node("device-0-0").samples), *counts] in rows


def test_a_population_is_reported_by_what_its_clients_draw() -> None:
    lines = printed(
        plan(
            "algorithm: fedavg\ndriver: sim\ntopology: {population: 2000, selected: 20}\n"
            "data: {samples_per_client: 40}\n"
            "clients: {over: 25%, selection: {name: oort, alpha: 1}, hardware: {phone: 100%}, links: {lte: 100%}}\n"
        )
    )
    place = lines.index("Population (2,000 clients)")
    assert lines[place - 2].endswith("1,000 training samples")
    assert lines[place + 1].startswith("selected  20 of 25 that are selected, in each round: oort (exploration 0.9,")
    rest = [line.split(maxsplit=1) for line in lines[place + 2 : place + 10] if line and not line.startswith(" ")]
    assert ["there", "always"] in rest
    assert ["hardware", "phone 100%"] in rest
    assert ["links", "lte 100%"] in rest
    assert ["samples", "0% 40, 5% 40, 50% 40, 95% 40, 100% 40 (quantiles)"] in rest


def test_links_with_an_mtu_are_a_row_of_their_own() -> None:
    rows = after(printed(plan(DOZEN, "links.edge-0 <-> cloud={mtu: 1400}")), "Links (30 directions)")[1:]
    assert [" ".join(row.split()) for row in rows][:2] == [
        "edge-cloud edge-0 -> cloud 1 emulated 40ms ±5ms, loss 0.5%, 50mbit, MTU 1400",
        "edge-cloud cloud -> edge-0 1 emulated 40ms ±5ms, loss 0.5%, 50mbit, MTU 1400",
    ]


def test_links_alike_are_one_row() -> None:
    rows = after(printed(plan(DOZEN)), "Links (30 directions)")[1:]
    assert [" ".join(row.split()) for row in rows] == [
        "edge-cloud edge -> cloud 3 emulated 40ms ±5ms, loss 0.5%, 50mbit",
        "edge-cloud cloud -> edge 3 emulated 40ms ±5ms, loss 0.5%, 50mbit",
        "device-edge device -> edge 11 emulated 10ms ±5ms pareto, 39mbit",
        "device-edge edge -> device 12 emulated 10ms ±5ms pareto, 39mbit",
        containing("device-edge device-1-2 -> edge-1 1 emulated", "±5ms", "6.25%", "3.33"),
        "packets, 39mbit",
    ]


MEDIA = """
algorithm: {name: hierfavg, rounds: 2}
topology: {edges: 2, devices_per_edge: 2}
shared:
  ap-0: {rate: 54mbit, duplex: half, share: frames, members: [device-0-*], rates: {device-0-1: 6mbit}}
  ap-1: {rate: 54mbit, duplex: half}
  backhaul: {up: 20mbit, down: 100mbit, members: ["edge-* <-> cloud"], buffer: 64kb}
cross_traffic:
  - {on: backhaul, direction: up, kind: on-off, rate: 3mbit, on_for: 2s, off_for: 5s, at: 10s, for: 60s}
faults:
  - {at: 5s, node: device-0-1, action: handover, to: ap-1}
  - {at: 6s, medium: backhaul, action: degrade, rate: 4mbit}
"""


def test_media_are_shown_with_the_links_that_cross_them() -> None:
    text = [" ".join(line.split()) for line in printed(plan(MEDIA), width=120)]
    assert "device-edge device -> edge 2 emulated 100us, 1gbit ap-0" in text
    assert "edge-cloud edge -> cloud 2 emulated 100us, 1gbit backhaul up" in text
    assert "ap-0 frames 54mbit, half duplex 100 ms 2: device-0-0, device-0-1 (device-0-1 6mbit)" in text
    assert "ap-1 fair 54mbit, half duplex 100 ms none at first" in text
    assert containing("backhaul fair up 20mbit", "2: edge-0 <-> cloud") in text
    assert containing("backhaul up from 10s", "3mbit for 2s") in text
    assert "1 at 5s handover device-0-1 the run ends to ap-1" in text
    assert "2 at 6s degrade backhaul the run ends rate 4mbit" in text
    assert not any(line.startswith("Kernel engine") for line in text)
    assert sum(line.startswith('{"op": "channel"') for line in text) == 4
    assert sum(line.startswith('{"op": "link"') for line in text) == 6


def test_the_kernel_has_a_device_for_each_channel() -> None:
    shared = "shared: {cell: {rate: 8mbit, members: [device-*]}, line: {rate: 1mbit, share: fifo, members: [edge-0]}}\n"
    algorithm = "engine: kernel\nalgorithm: {name: hierfavg, rounds: 2}\n"
    made = plan(f"{algorithm}topology: {{edges: 2, devices_per_edge: 2}}\n{shared}")
    text = [" ".join(line.split()) for line in printed(made, width=120)]
    place = text.index("cell up, on the device medium0")
    assert [line.partition(" dev medium0 ")[2] for line in text[place + 1 : place + 5]] == [
        "root handle 10: htb default 1",
        "parent 10: classid 10:1 htb rate 8mbit ceil 8mbit burst 4000b cburst 4000b quantum 1514",
        containing("parent 10:1 classid 10:2", "8bit ceil 32gbit", "40000000b quantum 1514"),
        "parent 10:2 handle 12: bfifo limit 25000b",
    ]
    assert text[place + 5] == containing("... 6 more: the class")


def test_a_simulation_has_no_commands_of_an_engine() -> None:
    text = printed(plan("driver: sim\nalgorithm: {name: hierfavg, rounds: 2}\n"), width=120)
    assert not any(line.lstrip().startswith(("tc ", "{", "Kernel", "Userspace")) for line in text)


def test_faults_of_one_moment_are_one_row() -> None:
    made = plan(DOZEN)
    text = [" ".join(line.split()) for line in printed(made)]
    assert "1 at 20s crash device-1-2 for 15s" in text
    assert "2 at 40s partition edge-0 | cloud for 10s" in text
    row = text.index("3 at 50s degrade edge-0 the run ends up: 18.5ms, 820kbit; down:")
    assert text[row + 1] == "18.5ms, 5.66mbit"
    assert "4 at 1min degrade edge-0 the run ends loss 3%" in text
    assert any(line.endswith("slow edge-0 the run ends 4 times slower") for line in text)
    assert any(line.endswith("round 3 join device-2-3") for line in text)
    of_round_1 = [fault for fault in made.faults if fault.round == 1]
    assert any(line.startswith(f"5-{4 + len(of_round_1)} round 1 disconnect {of_round_1[0].node},") for line in text)


def test_all_but_commands_fits_100_columns() -> None:
    for text in (DOZEN, CROWD):
        for line in printed(plan(text)):
            assert len(line) <= 100 or line.lstrip().startswith(("tc ", "{", "Kernel engine"))


def test_hundreds_of_nodes_collapse() -> None:
    lines = printed(plan(CROWD))
    assert len(lines) < 120
    assert any(line.startswith("device-3-0 ... device-3-24 (25)") for line in lines)


def test_the_switch_is_requested_a_link_with_its_profile_and_seed() -> None:
    link = plan(DOZEN).links[0]
    assert link_request(link) == {
        "op": "link",
        "source": "edge-0",
        "target": "cloud",
        "seed": link.seed,
        "profile": {"latency": "40ms", "jitter": "5ms", "loss": "0.5%", "rate": "50mbit"},
    }


def test_requests_are_shown_for_the_userspace_engine() -> None:
    made = plan(DOZEN, "engine=userspace")
    lines = [line.strip() for line in printed(made)]
    assert f"{json.dumps(link_request(made.links[0]))}  (and 2 links like it)" in lines
    assert not any(line.startswith("tc ") for line in lines)


def test_tc_commands_are_shown_for_the_kernel_engine() -> None:
    made = plan(DOZEN, "engine=kernel")
    lines = [line.strip() for line in printed(made)]
    commands = kernel_commands(made, made.node("cloud"))
    assert set(commands) <= set(lines)
    assert any("netem" in command and "delay 40ms 5ms" in command for command in commands)
    assert any("10.77.0.2/32" in command for command in commands)
    assert not any(line.startswith("{") for line in lines)


def test_data_that_is_not_here_is_said_so() -> None:
    lines = printed(make_plan(parse(CROWD, "f.yaml"), None))
    assert any(line.endswith("not divided") for line in lines)


@pytest.mark.parametrize(("classes", "bars", "rest"), [(20, 20, ""), (2000, 50, " and 1,950 more")])
def test_many_classes_are_bars(classes: int, bars: int, rest: str) -> None:
    made = make_plan(parse("algorithm: fedavg\ntopology: {devices: 2}", "f.yaml"), prepared(20_000, classes=classes))
    row = next(line for line in printed(made) if line.startswith("device-0 ") and "10.77" not in line)
    assert len(row.removesuffix(rest).split()[-1]) == bars


SCHEDULES = """\
algorithm: hierfavg
topology: {edges: 1, devices_per_edge: 3}
links:
  device-edge: {latency: 5ms, schedule: {steps: [{at: 10s, rate: 5mbit}]}}
  device-0-1 -> edge-0: {schedule: {handover: [{at: 15s, interruption: 300ms, profile: wifi}], repeat: 1min}}
"""


def test_links_over_time_are_reported_in_words() -> None:
    rows = [line.split() for line in after(printed(plan(SCHEDULES)), "Links over time, from the start of training")[1:]]
    text = " ".join(word for row in rows for word in row)
    assert "device-0-0 → edge-0 and 4 more 5 at 10s rate 5mbit" in text  # six directions, one with a handover instead
    assert "device-0-1 → edge-0 1 at 15s cut for 300ms, then 10ms ±5ms pareto, 39mbit; again" in text


def test_without_schedules_nothing_is_said_of_them() -> None:
    assert not [line for line in printed(plan(DOZEN)) if "over time" in line]


IMAGE = "registry.example.org/a/long/name/of/an/image-for-boards-that-no-terminal-holds-in-one-row:arm64-2026"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_names_and_paths_stay_whole_in_a_narrow_terminal(width: int, tmp_path: Path) -> None:
    """Every word of a wide plan is a word of the narrow one, in every table."""
    folder = tmp_path / "a-folder-with-a-name-of-some-length" / "and-another-one-below-it-that-is-as-long"
    folder.mkdir(parents=True)
    (folder / "drive.csv").write_text("t_s,rate_mbit\n0,1\n9,2\n")
    schedule = f"{{latency: 2ms, schedule: {{csv: {folder}/drive.csv}}}}"
    overrides = [f"hardware.edge={{image: {IMAGE}}}", f"links.edge-cloud={schedule}", "data.partition=labels-per-edge"]
    shown = plan(DOZEN, *overrides)
    wide = {word for line in printed(shown, 500) for word in line.split()}
    narrow = {word for line in printed(shown, width) for word in line.split()}
    assert wide - narrow <= {"name", "number"}  # headings of first columns, which a block of lines does without
    assert {IMAGE, "device-1-2", "10.77.0.11:7000", "raspberry-pi-4"} <= narrow
    assert any(str(folder) in word for word in narrow)
    assert not any("…" in word for word in narrow)


def test_what_each_column_of_a_table_became_is_shown() -> None:
    """Each column by name; of many columns, adjacent ones that became the same together."""
    few = (("", "left out: it has no name"), ("a", "number"), ("b", "number"), ("kind", "target: 2 classes: no, yes"))
    shown = plan(DOZEN)
    lines = after(printed(replace(shown, data=replace(shown.data, columns=few))), "Columns (4)")
    assert [" ".join(line.split()) for line in lines[1:]] == [
        containing("without a name left out"),
        "a number",
        "b number",
        "kind target: 2 classes: no, yes",
    ]
    many = (*((f"x{place}", "number") for place in range(60)), ("kind", "target: 2 classes: no, yes"))
    lines = after(printed(replace(shown, data=replace(shown.data, columns=many))), "Columns (61)")
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "x0 ... x59 (60) number",
        "kind target: 2 classes: no, yes",
    ]


def test_what_the_data_leaves_out_is_shown() -> None:
    shown = "\n".join(printed(plan(DOZEN, "data.partition=labels-per-edge"), 80))
    assert "3, 4, 5, 6, 7, 8" in shown


ON_HOSTS = """\
name: apart
algorithm: hierfavg
driver: swarm
topology: {edges: 2, devices_per_edge: 2}
hosts: {device-0-0: pi-1}
links: {device-edge: {latency: 5ms, rate: 700mbit}, edge-cloud: {latency: 20ms}}
"""
INVENTORY = Inventory(
    hosts=(
        HostFacts("pc-1", "192.0.2.1", "amd64", 2, 16 << 30, manager=True),
        HostFacts("pc-2", "192.0.2.2", "amd64", 8, 16 << 30),
        HostFacts("pi-1", "192.0.2.7", "arm64", 4, 4 << 30, {"edgebed.hardware": "raspberry-pi-4"}),
    ),
    underlay={("pi-1", "pc-2"): Underlay(delay=0.0004, rate=500e6, mtu=1500)},
)


def words(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


def test_who_lives_where_and_why_is_shown() -> None:
    made = make_plan(parse(ON_HOSTS, "f.yaml"), prepared(), inventory=INVENTORY)
    lines = printed(made)
    assert words(after(lines, "Placement (3 hosts)")) == [
        "node host why",
        containing("cloud pc-1 a manager, next"),
        "edge-0 pc-2 most cores free",
        "edge-1 pc-2 most cores free",
        "device-0-0 pi-1 hosts.device-0-0: pi-1; a real raspberry-pi-4, not emulated",
        "device-0-1 pc-2 with its edge",
        "device-1-0 pc-2 with its edge",
        "device-1-1 pc-2 with its edge",
    ]
    rows = words(after(lines, "Links between hosts"))
    assert rows[0] == "from to links real others together network's rate network's delay"
    assert "pc-1 pc-2 2 not limited not measured not measured" in rows
    assert "pi-1 pc-2 1 700 mbit 500 mbit 0.4 ms" in rows
    assert "has, pi-1 -> pc-2 (700 mbit" in " ".join(words(lines))
    assert not [line for line in printed(plan(ON_HOSTS)) if "Placement" in line]


def test_real_links_are_shown_as_measured() -> None:
    overrides = ["links.device-0-0 -> edge-0=real", "links.edge-0 -> device-0-0=real"]
    lines = printed(make_plan(parse(ON_HOSTS, "f.yaml", overrides), prepared(), inventory=INVENTORY))
    assert "pi-1 pc-2 1 1 – 500 mbit 0.4 ms" in words(after(lines, "Links between hosts"))
    rows = words(after(lines, "Links (12 directions)"))
    assert containing("device-0-0 -> edge-0 1 real", "round trip 0.8 ms") in rows
    assert containing("edge-0 -> device-0-0 1 real", "not measured yet") in rows
    assert "device-edge device -> edge 3 emulated 5ms, 700mbit" in rows


def test_many_nodes_are_shown_by_host() -> None:
    large = Inventory((INVENTORY.hosts[0], replace(INVENTORY.hosts[1], cores=128, memory=64 << 30)))
    scenario = parse(CROWD, "f.yaml", ["driver=swarm", "topology.edges=4"])
    made = make_plan(scenario, prepared(2000), inventory=large)
    rows = words(after(printed(made), "Placement (2 hosts)"))
    assert rows[1:] == [
        containing("cloud pc-1 a manager, next"),
        "edge-0 ... edge-3 (4) pc-2 most cores free",
        "device-0-0 ... device-3-24 (100) pc-2 with its edge",
    ]


def test_the_json_has_the_placement() -> None:
    made = make_plan(parse(ON_HOSTS, "f.yaml"), prepared(), inventory=INVENTORY)
    shown = json.loads(json.dumps(plan_json(made)))
    assert shown["placement"]["nodes"]["device-0-1"] == {"host": "pc-2", "reason": "with its edge"}
    assert shown["placement"]["crossings"][-1] == {
        "source": "pi-1",
        "target": "pc-2",
        "links": 1,
        "rate": 700e6,
        "underlay": {"delay": 0.0004, "rate": 500e6, "mtu": 1500},
        "real": 0,
    }
    assert len(shown["placement"]["notes"]) == 2
    assert {link.pop("kind") for link in shown["links"]} == {"emulated"}
    alone = plan_json(plan(DOZEN))
    assert alone.pop("training_bytes").keys() == {node.name for node in plan(DOZEN).nodes if node.samples}
    assert alone | {"links": []} == plan(DOZEN).to_json() | {"links": []}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "apart.yaml").write_text(ON_HOSTS)
    (tmp_path / "hosts.json").write_text(json.dumps(INVENTORY.to_json()))
    return str(tmp_path / "apart.yaml"), str(tmp_path / "hosts.json")


def test_hosts_come_from_a_file(files: tuple[str, str]) -> None:
    scenario, hosts = files
    result = CliRunner().invoke(cli, ["plan", scenario, "--hosts", hosts, "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["placement"]["nodes"]["cloud"]["host"] == "pc-1"


def test_a_host_that_the_doctor_found_unusable_is_left_out(files: tuple[str, str]) -> None:
    scenario, hosts = files
    told = INVENTORY.to_json()
    findings = [{"severity": "unusable", "what": "it has no image", "remedy": "", "commands": []}]
    spare = {**told["hosts"][0], "name": "pc-9", "manager": False, "findings": findings}
    Path(hosts).write_text(json.dumps({**told, "hosts": [*told["hosts"], spare]}))
    result = CliRunner().invoke(cli, ["plan", scenario, "--hosts", hosts, "--json"])
    assert result.exit_code == 0
    shown = json.loads(result.stdout)["placement"]
    assert containing("left out", "pc-9 (it has no image)") in shown["notes"]
    assert "pc-9" not in {each["host"] for each in shown["nodes"].values()}


def test_a_bad_file_of_hosts_is_bad_usage(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, hosts = files
    Path(hosts).write_text('{"hosts": [{}]}')
    monkeypatch.setattr("sys.argv", ["edgebed", "plan", scenario, "--hosts", hosts])
    assert carry_out() == 2
    assert capsys.readouterr().err == f"error: {hosts}: hosts[0]: 'name' is missing\n"


def test_a_driver_of_one_host_has_no_use_for_hosts(files: tuple[str, str]) -> None:
    scenario, hosts = files
    with pytest.raises(MistakeError, match=r"driver docker .* leave --hosts out"):
        CliRunner().invoke(
            cli, ["plan", scenario, "--driver", "docker", "--set", "hosts={}", "--hosts", hosts], catch_exceptions=False
        )
