"""Whole runs on three hosts of a swarm."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest

from node.messaging.wire import PROTOCOL
from orchestrator.drivers.docker.emulation import HANDLERS
from orchestrator.drivers.docker.node_image import PROTOCOL_LABEL, identity
from orchestrator.drivers.swarm.cluster import Cluster
from orchestrator.fabric.trunk import PORT
from orchestrator.host.docker_socket import AGENT as AGENT_LABEL
from orchestrator.host.docker_socket import RUN
from orchestrator.planning.hosts.inventory import Inventory
from orchestrator.record.rows import Event
from orchestrator.results.checks.network import network_held
from orchestrator.results.checks.verdicts import Assessment
from orchestrator.results.history import History
from orchestrator.results.presence import notes
from orchestrator.results.traffic import volumes
from orchestrator.scenario.sections.hosts import HARDWARE_LABEL
from tests.e2e.engine import at
from tests.e2e.harness import FEW, PACED, THREE, Background, command, json_of, resuming, up, wait_for
from tests.e2e.image import import_commands
from tests.orchestrator.fabric.hosts import vxlan_header
from tests.swarm import foreign
from tests.swarm.engines import AGENT, EngineHost, Engines
from tests.swarm.registry import registry
from tests.texts import containing

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("on_engines")]

FIVE = f"""\
{FEW}
driver: swarm
hosts: {{cloud: a, edge-0: b, edge-1: c, device: b}}
probe: {{before: false}}
"""
"""The fewest nodes that have links between all hosts."""
THREE_ON_SWARM = f"""\
{THREE}
driver: swarm
hosts: {{cloud: a, device-0: b, device-1: c}}
probe: {{before: false}}
"""
"""The fewest nodes that live on all hosts."""
FAILING = f"{THREE_ON_SWARM}restart: never\n"
"""For images that make no node."""
LONG = FIVE.replace("rounds: 3", "rounds: 200") + PACED
FAULTS = """\
faults:
  - {round: 1, node: device-0-0, action: crash, for: 1s}
  - {round: 1, node: device-1-0, action: pause, for: 1s}
  - {round: 1, between: [edge-0, cloud], action: partition, for: 1s}
  - {round: 1, between: [edge-1, cloud], action: partition, for: 1s}
gathering: {quorum: 50%, deadline: 20s}
"""


REAL = "hosts.device-1-0=a", "links.edge-1 <-> cloud=real", "links.device-1-0 <-> edge-1=real"
"""Two links between a and c."""
SLEEPS = ('ENTRYPOINT ["sleep"]',)
"""Makes an image that makes no node."""
BOARDS_NODE = "device-0-1"
WITH_BOARD = f"""\
# Does a board learn beside a PC?
name: board
driver: swarm
algorithm: {{name: hierfavg, rounds: 2, kappa1: 2, kappa2: 1, learning_rate: 0.2}}
data: {{dataset: digits, partition: iid, samples_per_client: 100, evaluate_samples: 100}}
model: mlp
topology: {{edges: 1, devices_per_edge: 2, cloud: true}}
hardware: {{{BOARDS_NODE}: {{class: raspberry-pi-4, image: "{foreign.NAME}"}}}}
hosts: {{cloud: a, edge: a, device-0-0: a}}
links: {{device-edge: {{latency: 5ms, rate: 50mbit}}}}
gathering: {{quorum: 100%, deadline: 2min, cloud_deadline: 5min}}
timeouts: {{beat: 1s, lost_after: 1min, lease: 1min}}
probe: {{before: false}}
"""
EMULATED = 600.0  # s; most of it the start of one node, whose imports are emulated


@pytest.fixture
def board(engines: Engines) -> Iterator[EngineHost]:
    """A host that counts as a Raspberry Pi: it has its label and an image for 64-bit Arm, which its kernel can run."""
    foreign.require()
    host = engines.hosts[2]
    with foreign.emulation():
        with at(host.address):
            foreign.build()
        # What was mounted in the test's namespace after the host's was made is not in the host's.
        lacks = subprocess.run([*host.enter(), "test", "-e", HANDLERS / "register"], check=False).returncode != 0
        if lacks:
            subprocess.run([*host.enter(), "mount", "-t", "binfmt_misc", "binfmt_misc", HANDLERS], check=True)
        engines.set_label(host.name, HARDWARE_LABEL, "raspberry-pi-4")
        yield host
        engines.set_label(host.name, HARDWARE_LABEL, None)
        if lacks:
            subprocess.run([*host.enter(), "umount", HANDLERS], check=True)
    with closing(host.daemon.client()) as client:
        client.images.remove(foreign.NAME, force=True)


@pytest.fixture
def manager(engines: Engines) -> tuple[str, ...]:
    """The start of a command line that runs on the manager."""
    return tuple(engines.manager.enter())


def left(engines: Engines, run: str) -> list[str]:
    """What a run has left on the hosts: containers, volumes, and its service and secrets."""
    found = []
    for host in engines.hosts:
        with closing(host.daemon.client()) as client:
            containers = client.containers.list(all=True, ignore_removed=True)
            found += [f"{host.name}: {each.name}" for each in containers if run in str(each.name)]
            found += [f"{host.name}: volume {each.name}" for each in client.volumes.list() if run in each.name]
    with closing(engines.manager.daemon.client()) as client:
        found += [each.name for kind in (client.services, client.secrets) for each in kind.list() if run in each.name]
    return found


def wait_until_nothing_is_left(engines: Engines, run: str) -> None:
    wait_for(lambda: left(engines, run) == [] or None, "the end of everything on all hosts")


def containers_of(host: docker.DockerClient, label: str) -> list[str]:
    return [str(each.id) for each in host.containers.list(filters={"label": label}, ignore_removed=True)]


def images_of(host: EngineHost) -> dict[str, str]:
    """The identity of each image of a host's Engine, by its names; also of those without a name."""
    with closing(host.daemon.client()) as client:
        return {" ".join(each.tags): identity(each.attrs) for each in client.images.list(all=True)}


def test_an_image_that_is_copied_in_part_is_none_and_whole_it_is_the_same(
    tmp_path: Path, engines: Engines, manager: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is one that makes no nodes: it is about how it gets to the hosts."""
    image, b = "edgebed-test:large", engines.hosts[1]
    monkeypatch.setenv("EDGEBED_IMAGE", image)
    with closing(engines.manager.daemon.client()) as client:
        import_commands(client, image, ["sleep", "ctr"], [f"LABEL {PROTOCOL_LABEL}={PROTOCOL}", *SLEEPS])
    before = images_of(b)
    engines.underlay.shape("a", "b", {"rate": "50mbit"})
    with Background(tmp_path, FAILING, prefix=manager) as run:
        said = run.process.stderr
        assert said is not None
        assert any("% (" in line for line in said)  # progress
        run.process.send_signal(signal.SIGINT)
        run.process.wait(60)
        wait_until_nothing_is_left(engines, run.directory.run)
    engines.underlay.shape("a", "b", {})
    wait_for(lambda: unpacked(b) == [] or None, "the end of what was not whole")
    assert images_of(b) == before

    result = up(tmp_path, FAILING, prefix=manager)
    wait_until_nothing_is_left(engines, max((tmp_path / "runs").iterdir()).name)
    assert "bringing" in result.errors
    assert len({images_of(host)[image] for host in engines.hosts}) == 1
    assert [unpacked(host) for host in engines.hosts] == [[], [], []]


def unpacked(host: EngineHost) -> list[str]:
    """What a host's Engine keeps of images that it loads."""
    return os.listdir(host.daemon.data / "tmp")


def test_faults_take_effect_on_all_hosts_and_real_links_are_measured(
    tmp_path: Path, engines: Engines, manager: tuple[str, ...]
) -> None:
    engines.underlay.shape("a", "c", {"latency": "5ms"})
    scenario = FIVE.replace("before: false", "before: true") + FAULTS
    options = [word for override in REAL for word in ("--set", override)]
    result = up(tmp_path, scenario, *options, prefix=manager, timeout=300)
    engines.underlay.shape("a", "c", {})
    assert "bringing" not in result.errors  # all hosts have the same image
    assert (result.summary["ended"], result.summary["rounds"]) == ("rounds", 3), result.errors
    assert [fault["at"] is not None for fault in result.summary["faults"]] == [True] * 4
    checks = {each["name"]: each for each in result.summary["checks"]}
    for name in ("faults took effect", "losses during the run"):
        assert checks[name]["verdict"] != "fail", checks[name]
    run = Path(result.summary["run"])
    with closing(History.open(run)) as history:  # other tests run beside this one, so figures of time are not judged
        probes = history.probes()
    across = [each for each in probes if {each.source, each.target} == {"cloud", "edge-0"}]
    assert {each.quantity for each in across} == {"rtt", "loss", "duplicate", "reorder", "rate", "queue"}
    assert all(each.measured is not None for each in probes)
    real = [each for each in probes if {each.source, each.target} == {"cloud", "edge-1"}]
    assert {each.quantity for each in real} == {"rtt", "loss", "duplicate", "reorder", "rate"}
    assert {(each.kind, each.asked, each.verdict) for each in real} == {("real", None, "measured")}
    assert 0.010 <= next(each.measured or 0.0 for each in real if each.quantity == "rtt") <= 0.030
    (network,) = result.summary["real_links"]["networks"]
    assert (network["hosts"], network["links"]) == (["a", "c"], 4)
    assert 0.010 <= network["round_trip"]["before"] <= 0.030
    logs = {node: (run / "logs" / f"{node}.log").read_text() for node in ("cloud", "edge-1", "device-0-0")}
    assert "ended" in logs["cloud"]
    assert "ended" in logs["edge-1"]
    assert "ready" in logs["device-0-0"]  # it crashes, and on a busy machine it is not back before the end
    wait_until_nothing_is_left(engines, run.name)


def states(run: Background, node: str) -> list[str]:
    with closing(run.history()) as history:
        return [each.state for each in history.states() if each.node == node]


def test_an_agent_the_orchestrator_and_an_engine_are_killed(
    tmp_path: Path, engines: Engines, manager: tuple[str, ...]
) -> None:
    """The nodes of the agent return. What the orchestrator leaves goes with the lease, and the run is resumed. It
    continues without the host of the Engine, and what is left there goes when it is back."""
    scenario = THREE_ON_SWARM.replace("rounds: 3", "rounds: 200") + PACED
    with Background(tmp_path, f"{scenario}gathering: {{quorum: 30%, deadline: 20s}}\n", prefix=manager) as run:
        run.wait_round(1, timeout=200)
        name = run.directory.run
        with closing(engines.hosts[1].daemon.client()) as client:
            (agent,) = containers_of(client, f"{AGENT_LABEL}={name}")
            client.containers.get(agent).kill("SIGKILL")
        wait_for(lambda: states(run, "device-0").count("running") == 2 or None, "the restart of device-0", 120.0)
        assert "crashed" in states(run, "device-0")
        assert states(run, "device-1") == ["starting", "registered", "running"]
        there_again = ["the host b is lost: its agent restarted", "the host b is there again"]
        with closing(run.history()) as history:
            wait_for(lambda: notes(history)[-2:] == there_again or None, "the notes")
            told = [
                (row.host, row.value is not None) for row in history.sensors() if row.quantity == "memory_available"
            ]
        assert {host for host, _ in told} == {"a", "b", "c"}  # and none twice: not "", for the orchestrator's host
        assert [known for host, known in told if host == "b"].count(False) == 1  # from the loss to the return

        # Tests beside this one have runs on this host too.
        assert name in [each["run"] for each in json_of("ps", "--runs", run.runs)["runs"]]
        os.kill(run.process.pid, signal.SIGKILL)
        wait_until_nothing_is_left(engines, name)
        with resuming(run.directory, manager):
            run.wait_round(run.round() + 2, timeout=200)
            engines.hosts[2].daemon.kill()
            wait_for(lambda: events(run, "host")[-1].data["state"] == "lost" or None, "the loss of c")
            run.wait_round(run.round() + 2)
        down_after_the_return(engines, run, "c")


def down_after_the_return(engines: Engines, run: Background, lost: str) -> None:
    """`down` of a run whose orchestrator is gone, without a host whose Engine was killed, and again with it."""
    name = run.directory.run
    wait_for(lambda: not _is_ready(lost) or None, f"the swarm to miss {lost}")
    said = json_of("down", name, "--runs", run.runs, code=1)["runs"][0]
    assert [f"on the host {lost}" in each for each in said["left"]] == [True], said  # the other agents may still answer
    next(host for host in engines.hosts if host.name == lost).daemon.start()
    stays = [f"{lost}: {name}-agent", f"{lost}: volume {name}"]
    wait_for(lambda: left(engines, name) == stays or None, "the end of all else")
    wait_for(lambda: _is_ready(lost) or None, "the return of the host")
    said = json_of("down", name, "--runs", run.runs)["runs"][0]
    assert said["clean"], said
    wait_until_nothing_is_left(engines, name)
    with closing(Cluster.connect()) as cluster:
        assert cluster.runs() == {}


def test_a_node_for_another_processor_trains_on_a_board(
    tmp_path: Path, engines: Engines, manager: tuple[str, ...], board: EngineHost
) -> None:
    """The board's Engine and agent are for this machine, for they cannot be emulated here. So its node has an image of
    its own, not one that has the same name on each host and is for the host's processor."""
    result = up(tmp_path, WITH_BOARD, prefix=manager, timeout=EMULATED)
    assert result.summary.get("ended") == "rounds", result
    assert result.summary["verdict"] != "fail", result
    run = Path(result.summary["run"])
    with closing(History.open(run)) as history:
        node = history.nodes[BOARDS_NODE]
        assert {each["host"] for each in history.nodes.values() if each != node} == {engines.manager.name}
        assert (node["host"], node["hardware"]["name"]) == (board.name, "raspberry-pi-4")
        assert node["hardware"]["speed"] is None  # its steps are not stretched
        notes = [event.data["text"] for event in history.events("note")]
        assert containing(f"{board.name}: ", foreign.NAME, "emulated (arm64 on amd64)") in notes
        losses = [each.value for each in history.metrics("loss", "train") if each.node == BOARDS_NODE]
        assert len(losses) == 2
        assert losses[1] < losses[0]
        sent = [row.messages for row in volumes.traffic(history) if (row.node, row.direction) == (BOARDS_NODE, "sent")]
        assert sum(sent) >= 2
    logs = {name: (run / "logs" / f"{name}.log").read_text() for name in (BOARDS_NODE, "device-0-0")}
    assert [word for text in logs.values() for word in re.findall(r"ready, process \d+ on (\w+)", text)] == [
        "aarch64",
        platform.machine(),
    ]
    wait_until_nothing_is_left(engines, run.name)


def network_of(run: Background) -> Assessment | None:
    with closing(run.history()) as history:
        return network_held(history)


STRANGER = """\
import socket, sys
trunk, agents, packet = *((host, int(port)) for host, port in (each.split(":") for each in sys.argv[1:3])), sys.argv[3]
packet = bytes.fromhex(packet)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
    for each in (b"", bytes(1400), packet[:20], *[packet] * 20):
        datagrams.sendto(each, trunk)
for _ in range(20):
    socket.create_connection(agents).sendall(bytes(range(256)) * 16)
"""
"""Sends garbage to the port of the agents, and garbage and a packet to that of a trunk."""


def disturb(engines: Engines, run: Background) -> None:
    """Let a stranger on the host c send to the orchestrator and to the trunk of b, in nobody's name."""
    listening = subprocess.run(
        [*engines.manager.enter(), "ss", "-Htlnp"], capture_output=True, text=True, check=True
    ).stdout
    (agents,) = [line.split()[3] for line in listening.splitlines() if f"pid={run.process.pid}," in line]
    frame = bytes.fromhex("02ed000000020200000000990800") + bytes(46)  # from no node to one
    arguments = [f"{engines.hosts[1].underlay}:{PORT}", agents, (vxlan_header(run.directory.run) + frame).hex()]
    subprocess.run([*engines.hosts[2].enter(), sys.executable, "-c", STRANGER, *arguments], check=True, timeout=60)


def test_a_network_between_hosts_that_slows_down_or_is_full_fails_the_run(
    tmp_path: Path, engines: Engines, manager: tuple[str, ...]
) -> None:
    """The links between b and c ask for 50 Mbit/s, of which the network is left 1. Strangers change nothing."""
    when = r"from \d+ s (?:on|to \d+ s) .*"
    slower = r"took 1\d\S* ms .* 1\d\S* ms more .* were slower"
    full = rf"{when} b and c .* [\d,]+ of [\d,]+ frames"
    with Background(tmp_path, LONG, prefix=manager) as run:
        run.wait_round(1, timeout=200)
        disturb(engines, run)
        engines.underlay.shape("a", "b", {"latency": "10ms"})
        engines.underlay.shape("b", "c", {"rate": "1mbit", "buffer": "30ms"})

        def both() -> bool | None:
            verdict, said = network_of(run) or ("", "")
            return (verdict == "fail" and "between a and b" in said and re.search(full, said) is not None) or None

        try:
            wait_for(both, "the verdict on both", 120.0)
        finally:
            engines.underlay.shape("a", "b", {})
            engines.underlay.shape("b", "c", {})
        run.process.send_signal(signal.SIGINT)
        checks = {each["name"]: each for each in run.result().summary["checks"]}
        assert "crashed" not in {state for node in ("cloud", "edge-0", "device-0-0") for state in states(run, node)}
    found = checks["network between hosts"]
    assert found["verdict"] == "fail"
    assert found["detail"].endswith("; 20 packets of strangers dropped on b"), found
    assert re.search(f"{when} a and b {slower} than configured", found["detail"]), found
    assert re.search(full, found["detail"]), found


def test_hosts_pull_images_of_a_registry_by_their_digests(
    tmp_path: Path, engines: Engines, manager: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image of nodes is a small one, which makes none: it is about how it gets to the hosts."""
    with registry(engines) as there, closing(engines.manager.daemon.client()) as client:
        node, agent = f"{there.address}/node", f"{there.address}/agent"
        monkeypatch.setenv("EDGEBED_IMAGE", node)
        monkeypatch.setenv("EDGEBED_AGENT_IMAGE", agent)
        label = f"LABEL {PROTOCOL_LABEL}={PROTOCOL}"
        import_commands(client, "edgebed-test:none", ["sleep"], [label, *SLEEPS])
        agents = there.push(client, AGENT, "agent")
        made = there.push(client, "edgebed-test:none", "node")
        there.unite("node", {"amd64": made, "arm64": made})
        result = up(tmp_path, FAILING, prefix=manager)
        (run,) = (tmp_path / "runs").iterdir()
        wait_until_nothing_is_left(engines, run.name)
        assert result.summary["ended"] == "failed"
        for host in engines.hosts:
            with closing(host.daemon.client()) as its:
                (pulled,) = its.images.get(node).attrs["RepoDigests"]
                assert f"{host.name} pulls the image {pulled}" in result.errors
                assert pulled != f"{node}@{made.digest}"  # it is that of the list
                assert its.images.get(f"{agent}@{agents.digest}").attrs["RepoDigests"] == [f"{agent}@{agents.digest}"]
        with closing(History.open(run)) as history:
            told = [event.data["text"] for event in history.events("note")]
        assert containing("nodes", pulled) in told
        assert containing("agents", f"{agent}@{agents.digest}") in told


def test_the_hosts_report_and_nothing_is_left(engines: Engines, manager: tuple[str, ...]) -> None:
    engines.underlay.shape("a", "b", {"rate": "40mbit"})
    done = subprocess.run(
        [*manager, *command("hosts", "doctor", "--json")], capture_output=True, text=True, timeout=120, check=False
    )
    engines.underlay.shape("a", "b", {})
    told = json.loads(done.stdout)
    assert [each["name"] for each in told["hosts"]] == ["a", "b", "c"], done.stderr
    for host in told["hosts"]:
        assert (host["facts"]["trunk"], host["facts"]["kernel"]) == ("", os.uname().release), host
        assert host["facts"]["image"] is not None
        assert [each for each in host["findings"] if each["severity"] == "unusable"] == []
    assert done.returncode == 0
    inventory = Inventory.from_json(told)
    assert {pair for pair in inventory.underlay if pair[0] < pair[1]} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert all(0 < each.delay < 0.05 and each.mtu == 1500 for each in inventory.underlay.values())
    rates = {pair: each.rate or 0.0 for pair, each in inventory.underlay.items()}
    shaped = {rates.pop(pair) for pair in (("a", "b"), ("b", "a"))}
    assert all(30e6 < rate < 44e6 for rate in shaped), shaped
    assert all(rate > 60e6 for rate in rates.values()), rates
    wait_until_nothing_is_left(engines, "doctor-")

    with subprocess.Popen([*manager, *command("hosts", "doctor", "b")], stderr=subprocess.PIPE, text=True) as asking:
        wait_for(lambda: any(each.endswith("-agent") for each in left(engines, "doctor-")) or None, "an agent")
        asking.send_signal(signal.SIGINT)
        assert asking.stderr is not None
        assert "error: interrupted" in asking.stderr.read()
    assert asking.returncode == 130
    wait_until_nothing_is_left(engines, "doctor-")


def test_nodes_of_a_host_that_was_cut_off_start_elsewhere_and_never_live_twice(
    tmp_path: Path, engines: Engines, manager: tuple[str, ...]
) -> None:
    """The cloud and a device live on c, and may live on b. The network to c is cut, and heals."""
    pins = "cloud: home=1, device-1-0: home=1, edge-0: b, device-0-0: b, edge-1: a"
    for host in ("b", "c"):
        engines.set_label(host, "edgebed.home", "1")
    scenario = re.sub("hosts: {.*}", f"hosts: {{{pins}}}", LONG)
    scenario += 'shared: {backhaul: {rate: 50mbit, members: ["edge-* <-> cloud"]}}\n'  # its queues move with the cloud
    with Background(tmp_path, scenario, prefix=manager) as run, closing(engines.hosts[2].daemon.client()) as lost:
        run.wait_round(2, timeout=200)
        name = run.directory.run
        assert len(containers_of(lost, f"{RUN}={name}")) == 2
        for other in ("a", "b"):
            engines.underlay.cut(other, "c")
        wait_for(lambda: len(events(run, "moved")) == 2 or None, "the moves", 90.0)
        assert containers_of(lost, f"{RUN}={name}") == []  # its agent has ended them before
        for other in ("a", "b"):
            engines.underlay.restore(other, "c")
        reached = run.round()
        run.wait_round(reached + 2)
        wait_for(lambda: [each.data["state"] for each in events(run, "host")] == ["lost", "back"] or None, "c")
        assert containers_of(lost, f"{RUN}={name}") == []
        run.process.send_signal(signal.SIGINT)
        result = run.result()
        assert (result.code, result.summary["ended"]) == (130, "interrupted"), result.errors
        told = {each.data["node"]: each.data for each in events(run, "moved")}
        assert {node: (each["from"], each["to"]) for node, each in told.items()} == {
            "cloud": ("c", "b"),
            "device-1-0": ("c", "b"),
        }
        assert told["cloud"]["checkpoint"] > 20  # s: as old as the loss at least
        assert told["device-1-0"]["checkpoint"] is None
        (resumed,) = events(run, "resumed")
        assert resumed.round is not None
        assert 0 < resumed.round <= reached  # the latest that had come to the orchestrator
        for node in told:
            assert states(run, node).count("running") == 2
        assert "cloud moves from c to b, with its checkpoint of" in result.errors
        wait_until_nothing_is_left(engines, name)


def events(run: Background, name: str) -> list[Event]:
    with closing(run.history()) as history:
        return history.events(name)


def _is_ready(host: str) -> bool:
    with closing(Cluster.connect()) as cluster:
        return any(each.name == host and each.usable for each in cluster.members())
