#!/bin/sh
# A SuperNode of Flower ends with exit code 0 after its SuperLink crashed and restarted.
#
# Expected: a SuperNode tries to reconnect without a limit (`--max-retries` is None by default), so it survives a restart
#     of the SuperLink. If it cannot, it ends with an error, so that systemd's or Docker's `on-failure` restarts it.
# Happens: it retries until the SuperLink is back and gets 401 for the next request, since the SuperLink keeps its nodes
#     in memory only. It logs "SuperNode terminated gracefully." and exits with 0, as after SIGTERM. This holds for each
#     SuperNode, so the federation stays empty.
# Versions: flwr 1.42.0, Python 3.11.
# Source: `make_simple_http_retry_invoker` in flwr/supercore/retry/http_retry.py sends SIGINT to its own process after a
#     401. flwr/supercore/exit/exit.py turns the codes 0 to 99 into 0, and GRACEFUL_EXIT_SIGINT is 1. With
#     `flower-superlink --database` the nodes are kept in a file.
# Seen:
#     SuperLink killed and started again: POST /v1/fleet/pull-messages 401
#     SuperNode: exit code 0, SuperNode terminated gracefully.
# In edgebed: "no unplanned failures" is "unknown" if a program ended early with 0 (docs/explanation/fidelity.md).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet flwr==1.42.0
cd "$folder"
FLWR_HOME="$folder/home" FLWR_TELEMETRY_ENABLED=0 PYTHONUNBUFFERED=1 PATH="$folder/venv/bin:$PATH" \
    timeout 150 "$folder/venv/bin/python" - <<'PYTHON'
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

LINK_LOG = Path("superlink.log")
NODE_LOG = Path("supernode.log")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start(command: list[str], log: Path) -> subprocess.Popen:
    """In a session of its own, so that its children can be ended with it."""
    with log.open("w") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)


def end(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_for(log: Path, text: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while text not in log.read_text():
        if time.monotonic() > deadline:
            sys.exit(f"changed: no {text!r} in {log} after {seconds:.0f} s:\n{log.read_text()}")
        time.sleep(0.2)


link_port, node_port = free_port(), free_port()
superlink = ["flower-superlink", "--insecure", "--port", str(link_port), "--disable-runtime-dependency-installation"]
supernode = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link_port}", "--port", str(node_port)]
started = []
try:
    link = start(superlink, LINK_LOG)
    started.append(link)
    wait_for(LINK_LOG, "Uvicorn running", 40)
    node = start(supernode, NODE_LOG)
    started.append(node)
    wait_for(LINK_LOG, "Activated node_id", 40)
    wait_for(NODE_LOG, "Starting Flower SuperExec", 40)
    end(link)
    started.append(start(superlink, LINK_LOG))
    try:
        code = node.wait(60)
    except subprocess.TimeoutExpired:
        sys.exit("changed: the SuperNode is still running 60 s after the restart")
finally:
    for process in started:
        end(process)
refused = re.findall(r"POST (\S+) HTTP/1.1\" 401", LINK_LOG.read_text())
print(f"SuperLink killed and started again: POST {' '.join(refused[:1])} 401")
farewell = re.findall(r"SuperNode terminated.*", NODE_LOG.read_text())
print(f"SuperNode: exit code {code}, {' '.join(farewell)}")
if not refused:
    sys.exit("changed: the SuperLink accepts the SuperNode after its restart")
if code != 0:
    sys.exit("changed: the SuperNode ends with an error")
PYTHON
