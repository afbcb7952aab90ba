"""Nodes that run programs of the user's own: a small server, its clients, and what disturbs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.drivers.docker.engine import Engine
from orchestrator.record.directory import RunDirectory
from orchestrator.results.history import History
from tests.e2e.engine import Place
from tests.e2e.harness import ROOT, Background, Result, traces_of, up, wait_for

pytestmark = pytest.mark.e2e

PYTHON = Path(sys.executable).resolve()  # also in the image of the tests

SERVER = """\
import http.server, json, os, sys

class Counter(http.server.BaseHTTPRequestHandler):
    clients, asked, life = set(), 0, 1

    def do_GET(self):
        Counter.clients.add(self.client_address[0])
        Counter.life = max(Counter.life, int(self.path[1:]))
        if len(Counter.clients) == 2:  # so that none is crashed before it has begun
            Counter.asked += 1
            print("::edgebed", json.dumps({"round": Counter.asked, "accuracy": Counter.asked / 10}), flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{Counter.asked} {Counter.life}".encode())

    def log_message(self, *_):
        pass

print("serving as", sys.argv[2], "with", os.environ["COLOUR"], flush=True)
http.server.HTTPServer((sys.argv[1], 8000), Counter).serve_forever()
"""

CLIENT = """\
import json, sys, time, urllib.request
from pathlib import Path

files, name = Path(sys.argv[1]), sys.argv[2]
lives = files / "lives"
life = int(lives.read_text()) + 1 if lives.exists() else 1
lives.write_text(str(life))
(files / "tool").touch()
(files / "tool").chmod(0o4755)
print("::edgebed", json.dumps({"event": "begun", "life": life}), flush=True)
while True:
    try:
        asked, second = map(int, urllib.request.urlopen(f"http://cloud:8000/{life}", timeout=2).read().split())
    except OSError as error:
        print(error, flush=True)
    else:
        if asked >= 8 and second == 2 and name == "device-0":
            break
    time.sleep(0.3)
"""

SCENARIO = f"""
topology: {{cloud: true, edges: 0, devices: 2}}
links: {{device-cloud: {{latency: 5ms, rate: 10mbit}}}}
programs:
  cloud:
    command: {PYTHON} server.py {{self}} {{name}}
    image: IMAGE
    environment: {{COLOUR: blue}}
    ready: {{port: 8000}}
  device:
    command: {PYTHON} client.py {{files}} {{name}}
    image: IMAGE
    after: cloud
    ready: {{delay: 100ms}}
  device-0:
    command: {PYTHON} client.py {{files}} {{name}}
    image: IMAGE
    after: cloud
    ends_the_run: true
faults:
  - {{round: 2, node: device-1, action: crash, for: 500ms}}
  - {{round: 3, node: device-0, action: pause, for: 500ms}}
  - {{round: 4, between: [device-0, cloud], action: partition, for: 500ms}}
"""


def run(folder: Path, scenario: str, *arguments: str) -> Result:
    (folder / "server.py").write_text(SERVER)
    (folder / "client.py").write_text(CLIENT)
    folder.chmod(0o755)  # a container's user must be able to read it
    return up(folder, scenario, *arguments)


def directory_of(result: Result) -> RunDirectory:
    return RunDirectory(Path(result.summary["run"]))


def check(result: Result) -> RunDirectory:
    """What must hold of SCENARIO under any driver."""
    assert result.code == 0, (result.summary, result.errors)
    summary: dict[str, Any] = result.summary
    assert {each["name"]: each["detail"] for each in summary["checks"] if each["verdict"] != "pass"} == {}
    assert (summary["verdict"], summary["ended"], summary["error"]) == ("pass", "programs", None)
    assert summary["rounds"] >= 8
    assert summary["accuracy"]["global"] == pytest.approx(summary["rounds"] / 10)
    assert [fault["action"] for fault in summary["faults"] if fault["at"] is not None] == [
        "crash",
        "pause",
        "partition",
    ]
    assert summary["bytes"]["device-cloud"] > 0
    with History.open(directory_of(result).path) as history:
        assert {row.node for row in history.resources()} == {"cloud", "device-0", "device-1"}
    directory = directory_of(result)
    assert "serving as cloud with blue" in (directory.logs / "cloud.log").read_text()
    assert traces_of(directory.run) == []
    return directory


def lives(directory: RunDirectory) -> list[tuple[str | None, int]]:
    with History.open(directory.path) as history:
        return [(event.node, event.data["life"]) for event in history.events("begun")]


@pytest.mark.alone  # its programs compute in real time, as planned
def test_they_run_and_are_disturbed(tmp_path: Path) -> None:
    directory = check(run(tmp_path, SCENARIO.replace("IMAGE", "unused")))
    assert sorted(lives(directory)) == [("device-0", 1), ("device-1", 1), ("device-1", 2)]


@pytest.mark.usefixtures("engine")
def test_they_run_in_containers(tmp_path: Path, place: Place) -> None:
    directory = check(run(tmp_path, SCENARIO.replace("IMAGE", place.image), "--driver", "docker"))
    assert sorted(lives(directory)) == [("device-0", 1), ("device-1", 1), ("device-1", 2)]
    files = directory.checkpoints_of("device-0")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (files.parent, files, files / "tool")] == [
        0o700,
        0o755,
        0o755,
    ]


@pytest.mark.parametrize("driver", ["namespaces", "docker"])
def test_they_end_with_their_orchestrator(tmp_path: Path, place: Place, engine: Engine, driver: str) -> None:
    scenario = f"""
driver: {driver}
topology: {{cloud: true, edges: 0, devices: 1}}
probe: {{before: false}}
programs:
  cloud: {{command: "{PYTHON} -c 'print(1, flush=True); import time; time.sleep(600)'", image: "{place.image}"}}
  device: {{command: "{PYTHON} -c 'import time; time.sleep(600)'", image: "{place.image}"}}
"""
    with Background(tmp_path, scenario) as run:
        log = wait_for(lambda: next(iter(run.directory.logs.glob("cloud.log")), None), "a program")
        wait_for(lambda: log.read_text() == "1\n" or None, "its output")
        name = run.directory.run
        assert len(engine.containers(name)) >= (3 if driver == "docker" else 0)
        os.kill(run.process.pid, signal.SIGKILL)
        wait_for(lambda: engine.containers(name) == [] or None, "the end of the containers", 20.0)
        wait_for(lambda: traces_of(name) == [] or None, "the end of its processes", 20.0)


SERVICE = """\
import os, signal, sys, time
from pathlib import Path

def save(*_):
    time.sleep(0.5)  # what it had not written
    Path(sys.argv[1], "state").write_text("saved")
    sys.exit()

if "daemon" in sys.argv and os.fork():
    os._exit(0)
if "daemon" in sys.argv:
    os.setsid()
signal.signal(signal.SIGTERM, save)
print("interfaces", *sorted(os.listdir("/sys/class/net")), "address", Path("/sys/class/net/data0/address").read_text())
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def test_all_processes_of_a_program_end_in_their_own_time(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "start.sh").write_text(f"{PYTHON} service.py $1\n")  # without exec
    scenario = f"""
topology: {{edges: 0, devices: 3}}
probe: {{before: false}}
programs:
  cloud: {{command: sleep 1, after: device, ends_the_run: true}}
  device-0: {{command: "sh start.sh {{files}}", ready: {{line: ready}}}}
  device-1: {{command: "{PYTHON} service.py {{files}}", ready: {{line: ready}}}}
  device-2: {{command: "{PYTHON} service.py {{files}} daemon", ready: {{line: ready}}}}
"""
    result = up(tmp_path, scenario)
    assert result.code == 0, (result.summary, result.errors)
    directory = directory_of(result)
    logs = {}
    for name in ("device-0", "device-1", "device-2"):
        assert (directory.checkpoints_of(name) / "state").read_text() == "saved"
        logs[name] = (directory.logs / f"{name}.log").read_text()
        assert "interfaces data0 lo address 02:ed:" in logs[name]
    assert len(set(logs.values())) == 3  # each has an address of its own
    assert traces_of(directory.run) == []


RECEIVER = """\
import socket, json
with socket.create_server(("0.0.0.0", 9000)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    connection.settimeout(12)
    size = 0
    try:
        while data := connection.recv(1 << 16):
            size += len(data)
        end = "end of file"
    except TimeoutError:
        end = "nothing"
    except ConnectionError:
        end = "reset"
print("::edgebed", json.dumps(dict(event="end", end=end, size=size)), flush=True)
"""

SENDER = """\
import socket, sys, time
with socket.create_connection(("cloud", 9000)) as connection:
    connection.sendall(bytes(200_000))  # held by the kernel: 1.6 s at 1 Mbit/s
    if "exit" in sys.argv:
        sys.exit(3)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("how", "end", "least", "most"),
    [
        # The kernel delivers what it holds and the end of the connection, as on a device that keeps running: of the
        # crashed program more than the 125,000 bytes that 1 Mbit/s carries before the crash.
        ("crash", "end of file", 130_000, 200_000),
        ("exit", "end of file", 200_000, 200_000),
        ("power-off", "nothing", 1, 130_000),
    ],
)
def test_what_a_peer_gets_of_a_node_that_ends(tmp_path: Path, how: str, end: str, least: int, most: int) -> None:
    server, client = ([str(PYTHON), "-c", code] for code in (RECEIVER, SENDER))
    fault = f"[{{at: 1s, node: device-0, action: {how}}}]" if how != "exit" else "[]"
    scenario = f"""
topology: {{edges: 0, devices: 1}}
probe: {{before: false}}
links: {{device-cloud: {{latency: 10ms, rate: 1mbit, buffer: 10s}}}}
restart: never
programs:
  cloud: {{command: {json.dumps(server)}, ready: {{line: ready}}, ends_the_run: true}}
  device: {{command: {json.dumps([*client, how])}, after: cloud}}
faults: {fault}
"""
    result = up(tmp_path, scenario)
    with History.open(directory_of(result).path) as history:
        (event,) = history.events("end")
        events = [(fault.action, fault.start is not None) for fault in history.faults()]
    assert event.data["end"] == end, (event.data, result.errors)
    assert least <= event.data["size"] <= most
    assert events == ([] if how == "exit" else [(how, True)])
    assert traces_of(directory_of(result).run) == []


IPV6_SERVER = """\
import socket, time
# As servers do that bind to :: by default: without an IPv6 address this lookup finds nothing
found = socket.getaddrinfo("::", 7000, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG | socket.AI_PASSIVE)
with socket.create_server(found[0][4][:2], family=socket.AF_INET6) as server:
    print("ready", flush=True)
    connection, client = server.accept()
    size = 0
    while data := connection.recv(1 << 16):
        size += len(data)
    connection.sendall(("%d bytes from %s" % (size, client[0])).encode())
    connection.close()
"""

IPV6_CLIENT = """\
import json, socket, time
# One family at a time: the image of the tests has no /etc/host.conf, and glibc then finds the first address only.
ipv4 = socket.getaddrinfo("cloud", 7000, family=socket.AF_INET, type=socket.SOCK_STREAM)[0][4][0]
address = socket.getaddrinfo("cloud", 7000, family=socket.AF_INET6, type=socket.SOCK_STREAM)[0][4]
start = time.monotonic()
with socket.create_connection(address[:2]) as connection:
    connected = time.monotonic() - start
    connection.sendall(bytes(400_000))
    connection.shutdown(socket.SHUT_WR)
    answer = connection.recv(100).decode()
seconds = time.monotonic() - start
event = dict(event="answer", ipv4=ipv4, answer=answer, connected=connected, seconds=seconds)
print("::edgebed", json.dumps(event), flush=True)
"""


def test_programs_reach_nodes_by_ipv6(tmp_path: Path) -> None:
    reaches_by_ipv6(tmp_path, "namespaces", "")


@pytest.mark.usefixtures("engine")
def test_programs_in_containers_reach_nodes_by_ipv6(tmp_path: Path, place: Place) -> None:
    reaches_by_ipv6(tmp_path, "docker", f', image: "{place.image}"')


def reaches_by_ipv6(tmp_path: Path, driver: str, image: str) -> None:
    server, client = ([str(PYTHON), "-c", code] for code in (IPV6_SERVER, IPV6_CLIENT))  # without literal braces
    scenario = f"""
driver: {driver}
topology: {{edges: 0, devices: 1}}
probe: {{before: false}}
links: {{device-cloud: {{latency: 20ms, rate: 4mbit}}}}
programs:
  cloud: {{command: {json.dumps(server)}, ready: {{line: ready}}{image}}}
  device: {{command: {json.dumps(client)}, after: cloud, ends_the_run: true{image}}}
"""
    result = up(tmp_path, scenario)
    assert result.code == 0, (result.summary, result.errors)
    with History.open(directory_of(result).path) as history:
        (event,) = history.events("answer")
        ((delivered,),) = history.rows(
            "SELECT max(delivered) FROM counters WHERE source = 'device-0' AND target = 'cloud'"
        )
    assert event.data["ipv4"] == "10.77.0.1"
    # 10.77.0.2 is 0a4d 0002, the last 32 bits of device-0's IPv6 address
    assert event.data["answer"] == "400000 bytes from fd65:6467:6562::a4d:2"
    # There and back for the handshake; then 400,000 bytes and their headers at 4 Mbit/s take 0.8 s at least.
    assert event.data["connected"] >= 0.04
    assert event.data["seconds"] >= 0.04 + 400_000 * 8 / 4e6
    assert delivered >= 400_000 / 1440  # bytes of a segment: a full packet less the headers of IPv6 and TCP


@pytest.mark.programs("mosquitto", "mosquitto_pub")
def test_every_reading_arrives(tmp_path: Path) -> None:
    copied = tmp_path / "scenarios"
    shutil.copytree(ROOT / "scenarios" / "mqtt", copied / "mqtt")
    shipped = (ROOT / "scenarios" / "mqtt.yaml").read_text()
    faster = shipped.replace("sleep 0.5", "sleep 0.2").replace("at: 4s", "at: 1s").replace("for: 3s", "for: 2s")
    result = up(copied, faster, "--set", "probe.before=false")
    assert result.code == 0, (result.summary, result.errors)
    assert [fault["action"] for fault in result.summary["faults"] if fault["at"] is not None] == ["partition"]
    directory = directory_of(result)
    with History.open(directory.path) as history:
        readings = [(event.data["of"], event.data["value"]) for event in history.events("reading")]
    assert sorted(readings) == [(f"readings/device-{i}", value) for i in range(4) for value in range(1, 21)]
    assert traces_of(directory.run) == []


def test_a_program_that_fails_is_reported_at_once(tmp_path: Path) -> None:
    scenario = """
topology: {cloud: true, edges: 0, devices: 1}
probe: {before: false}
programs:
  cloud: {command: nothing-of-this-name, ready: {port: 8000}, ends_the_run: true}
  device: {command: sleep 60, after: cloud}
"""
    result = up(tmp_path, scenario)
    assert result.code == 1
    assert "cannot be started (No such file" in result.errors
    assert traces_of(directory_of(result).run) == []


FLOOD = """\
import os
print('::edgebed {"round": 1, "accuracy": 0.5}', flush=True)
for _ in range(3):
    for _ in range(400):
        os.write(1, b"x" * 99_999 + b"\\n")  # 40 MB
    print('::edgebed {"event": "still there"}', flush=True)
while True:
    os.write(1, b"x" * 99_999 + b"\\n")
"""


@pytest.mark.alone  # in virtual time the clock would stand still while it prints
def test_a_program_that_prints_for_ever_delays_nothing(tmp_path: Path) -> None:
    prints_for_ever(tmp_path, "namespaces", "unused", late=1.0)


@pytest.mark.usefixtures("engine")
def test_a_container_that_prints_for_ever_ends_with_its_run(tmp_path: Path, place: Place) -> None:
    prints_for_ever(tmp_path, "docker", place.image, late=5.0)  # beside other tests


def prints_for_ever(tmp_path: Path, driver: str, image: str, late: float) -> None:
    """A fault planned at 1 s strikes then, the run ends at 4 s, each at most so many seconds later, and the log is
    bounded; the last event is beyond its 64 MiB."""
    (tmp_path / "flood.py").write_text(FLOOD)
    tmp_path.chmod(0o755)
    scenario = f"""
driver: {driver}
topology: {{cloud: true, edges: 0, devices: 1}}
probe: {{before: false}}
programs:
  cloud: {{command: {PYTHON} flood.py, image: "{image}", stop_grace: 1s}}
  device: {{command: "{PYTHON} -c 'import time; time.sleep(60)'", image: "{image}"}}
faults: [{{at: 1s, node: device-0, action: pause, for: 500ms}}]
stop: {{after: 4s}}
"""
    result = up(tmp_path, scenario)
    assert (result.summary["ended"], result.summary["rounds"]) == ("after", 1), result.errors
    assert 1.0 <= result.summary["faults"][0]["at"] < 1.0 + late
    assert result.summary["accuracy"]["global"] == 0.5
    directory = directory_of(result)
    with History.open(directory.path) as history:
        assert history.training_ended - (history.training_began or 0.0) < 5.0 + late
        assert len(history.events("still there")) == 3
        assert [event.data["text"][:13] for event in history.events("note", node="cloud")] == ["the log cloud"]
    assert (directory.logs / "cloud.log").stat().st_size < (64 << 20) + 10_000
    assert traces_of(directory.run) == []


STUBBORN = """\
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("not yet", flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize("driver", ["namespaces", "docker"])
@pytest.mark.usefixtures("engine")
def test_a_program_that_does_not_end_is_killed_after_its_grace(tmp_path: Path, place: Place, driver: str) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    tmp_path.chmod(0o755)
    scenario = f"""
driver: {driver}
topology: {{cloud: true, edges: 0, devices: 1}}
probe: {{before: false}}
programs:
  device: {{command: {PYTHON} stubborn.py, image: "{place.image}", stop_grace: 1s, ready: {{line: ready}}}}
  cloud:
    command: "{PYTHON} -c 'print(1)'"
    image: "{place.image}"
    after: device
    ends_the_run: true
"""
    result = up(tmp_path, scenario)
    failed = {each["name"]: each["detail"] for each in result.summary["checks"] if each["verdict"] == "fail"}
    assert list(failed) == ["nodes responded"], result.errors
    assert "got SIGTERM, still ran 1 s" in failed["nodes responded"]
    assert "not yet" in (directory_of(result).logs / "device-0.log").read_text()
    assert traces_of(directory_of(result).run) == []


def test_a_fault_of_one_program_leaves_the_others(tmp_path: Path) -> None:
    """The watcher prints once when it starts. It is killed, and starts again; its node and the server run through."""
    say = """echo '::edgebed {"event": "'$1'"}'\nexec sleep 100\n"""
    (tmp_path / "say.sh").write_text(say)
    scenario = """
topology: {cloud: true, edges: 0, devices: 1}
links: {device-cloud: {latency: 1ms}}
probe: {before: false}
programs:
  cloud: {command: sh say.sh server}
  watcher: {on: cloud, command: sh say.sh watcher}
  device: {command: sleep 100}
faults:
  - {at: 500ms, node: cloud, program: watcher, action: crash, for: 500ms}
stop: {after: 2s}
"""
    result = run(tmp_path, scenario)
    checks = {each["name"]: each["verdict"] for each in result.summary["checks"]}
    assert {checks[name] for name in ("finished", "nodes responded", "no unplanned failures")} == {"pass"}
    (fault,) = result.summary["faults"]
    assert (fault["node"], fault["program"]) == ("cloud", "cloud.watcher")
    with History.open(directory_of(result).path) as history:
        assert [len(history.events(name)) for name in ("server", "watcher")] == [1, 2]
        assert {state.state for state in history.states("cloud")}.isdisjoint({"crashed", "restarting"})
