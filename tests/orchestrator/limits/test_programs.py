"""A limit of programs on real links: how they fail, and what shows first."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.harness import command

SERVER = """\
import socketserver

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)

with socketserver.ThreadingTCPServer(("0.0.0.0", 9000), Handler) as server:
    server.serve_forever()
"""
CLIENT = """\
import socket, sys

with socket.create_connection((sys.argv[1], 9000), timeout=20) as connection:
    connection.settimeout(1.0)
    connection.sendall(b"question\\n")
    connection.recv(100)
print("answered", flush=True)
"""
SCENARIO = """\
topology: {devices: 1}
links: {device-cloud: {latency: 5ms}}
probe: {before: false}
restart: never
programs:
  cloud: {command: "python3 server.py", ready: {port: 9000}}
  device: {command: "python3 client.py {cloud}", after: cloud, ends_the_run: true}
"""
STUDY = """\
scenario: base.yaml
survives: {within: 1min}
axes: {latency: {from: 250ms, to: 1s}}
"""


@pytest.mark.e2e
def test_a_client_that_waits_a_second_survives_half_a_second_each_way(tmp_path: Path) -> None:
    """One second there and back: 0.5 s each way, less what the host needs."""
    for name, content in (
        ("server.py", SERVER),
        ("client.py", CLIENT),
        ("base.yaml", SCENARIO),
        ("study.yaml", STUDY),
    ):
        (tmp_path / name).write_text(content)
    words = command("limits", "study.yaml", "--json")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (limit,) = json.loads(done.stdout)["limits"]
    assert limit["kind"] == "between"
    assert limit["low"] <= 0.5
    assert 0.4 <= limit["high"] <= 0.55
    assert limit["failure"] == "crash"
    symptom = limit["symptom"]
    assert symptom["node"] == "device-0"
    assert "exit code 1" in symptom["what"]
    assert any("Timeout" in line or "timed out" in line for line in symptom["lines"])
    # The connection was opened and the question is on its way: the server still knows the client.
    assert any("established to 10.77." in words for words in symptom["connections"])
    events = [run for run in limit["runs"] if run["kind"] == "crash"]
    assert all(run["survived"] is False for run in events)
