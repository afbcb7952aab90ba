#!/bin/sh
# Flower sends equal arrays of a model once, so the size of a model does not determine its bytes.
#
# Expected: a model of four layers with 250,000 weights each, float32, needs 4 MB in each direction of a round.
# Happens: this holds if the layers differ. If they are equal, the message needs 1 MB, also with random weights, so it
#     is no compression. Models of zeros, of ones or with repeated layers, as in tests of a network and in benchmarks,
#     show too few bytes and too short rounds.
# Versions: flwr 1.42.0.
# Source: an array is stored and sent as an object, and its name is the SHA-256 of its content (`get_object_id` in
#     flwr/supercore/inflatable/inflatable_object.py). Each object is sent once.
# Seen:
#     layers differ: to the client 4.0 MB, to the server 4.0 MB
#     layers equal: to the client 1.0 MB, to the server 1.0 MB
# In edgebed: scenarios/peers/flower sends four equal arrays.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet flwr==1.42.0
mkdir -p "$folder/app/layers" "$folder/home"
cd "$folder"
cat > app/pyproject.toml <<'TOML'
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "layers"
version = "1.0.0"
description = "One round with a model of four layers"
license = "Apache-2.0"
dependencies = ["flwr>=1.42"]

[tool.hatch.build.targets.wheel]
packages = ["layers"]

[tool.flwr.app]
publisher = "nobody"

[tool.flwr.app.components]
serverapp = "layers.server:app"
clientapp = "layers.client:app"

[tool.flwr.app.config]
equal = false
TOML
touch app/layers/__init__.py
cat > app/layers/server.py <<'PYTHON'
import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

LAYERS, WEIGHTS = 4, 250_000

app = ServerApp()


@app.main()
def main(grid, context):
    generator = np.random.default_rng()  # without a seed, so that no array is known from another run
    layers = [generator.random(WEIGHTS, dtype=np.float32) for _ in range(LAYERS)]
    if context.run_config["equal"]:
        layers = layers[:1] * LAYERS
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy.start(grid, ArrayRecord(layers), num_rounds=1)
PYTHON
cat > app/layers/client.py <<'PYTHON'
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    layers = [layer + 1 for layer in message.content["arrays"].to_numpy_ndarrays()]
    content = {"arrays": ArrayRecord(layers), "metrics": MetricRecord({"num-examples": 1})}
    return Message(content=RecordDict(content), reply_to=message)
PYTHON
FLWR_HOME="$folder/home" FLWR_TELEMETRY_ENABLED=0 PYTHONUNBUFFERED=1 PATH="$folder/venv/bin:$PATH" \
    timeout 150 "$folder/venv/bin/python" - <<'PYTHON'
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

MODEL = 4_000_000  # bytes


class Relay:
    """A relay of TCP connections that counts bytes."""

    def __init__(self, server_port: int) -> None:
        self.to_server = 0
        self.to_client = 0
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._server_port))
            threading.Thread(target=self._carry, args=(client, server, "to_server"), daemon=True).start()
            threading.Thread(target=self._carry, args=(server, client, "to_client"), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        try:
            while data := source.recv(65536):
                setattr(self, direction, getattr(self, direction) + len(data))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start(name: str, *options: str) -> subprocess.Popen:
    """In a session of its own, so that its children can be ended with it."""
    with open(f"{name}.log", "w") as output:
        command = [name, "--insecure", *options]
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)


def end(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_for(log: str, text: str) -> None:
    deadline = time.monotonic() + 40
    while text not in Path(log).read_text():
        if time.monotonic() > deadline:
            sys.exit(f"changed: no {text!r} in {log} after 40 s:\n{Path(log).read_text()}")
        time.sleep(0.2)


def bytes_of_a_round(relay: Relay, equal: bool) -> tuple[int, int]:
    to_client, to_server = relay.to_client, relay.to_server
    command = ["flwr", "run", "app", "--stream", "--run-config", f"equal={str(equal).lower()}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        sys.exit(f"changed: flwr run ends with {run.returncode}:\n{run.stdout}{run.stderr}")
    to_client, to_server = relay.to_client - to_client, relay.to_server - to_server
    print(f"layers {'equal' if equal else 'differ'}: ", end="")
    print(f"to the client {to_client / 1e6:.1f} MB, to the server {to_server / 1e6:.1f} MB", flush=True)
    return to_client, to_server


port = free_port()
connection = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
Path(os.environ["FLWR_HOME"], "config.toml").write_text(connection)
relay = Relay(port)
started = []
try:
    started.append(start("flower-superlink", "--port", str(port), "--disable-runtime-dependency-installation"))
    wait_for("flower-superlink.log", "Uvicorn running")
    started.append(start("flower-supernode", "--superlink", f"127.0.0.1:{relay.port}", "--port", str(free_port())))
    wait_for("flower-superlink.log", "Activated node_id")
    differing = bytes_of_a_round(relay, equal=False)
    equal = bytes_of_a_round(relay, equal=True)
finally:
    for process in started:
        end(process)
if min(differing) < MODEL:
    sys.exit("changed: a model of layers that differ needs less than its size")
if max(equal) > MODEL / 2:
    sys.exit("changed: equal layers are sent more than once")
PYTHON
