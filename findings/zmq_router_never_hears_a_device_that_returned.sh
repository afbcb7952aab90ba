#!/bin/sh
# A ZeroMQ ROUTER never receives from a DEALER that came back while its old connection was half-open.
#
# Expected: without ROUTER_HANDOVER, says its documentation, a ROUTER rejects a client with a routing id that is in use.
#     So the second connection fails visibly, or works once the old connection has ended.
# Happens: a device loses power, its server does not notice, and the device connects with the same routing id. The
#     handshake succeeds and each send succeeds, but no message arrives, also after the old connection has ended. The
#     device's monitor reports no event. With ROUTER_HANDOVER all messages arrive.
# Versions: pyzmq 27.3.0 with libzmq 4.3.5.
# Source: `router_t::identify_peer` in libzmq's src/router.cpp ignores the second connection and keeps it open. Nothing
#     examines it again when the first one ends.
# Seen:
#     arrived of 5, ROUTER_HANDOVER 0: before 5, old connection half-open 0, old connection ended 0, events: none
#     arrived of 5, ROUTER_HANDOVER 1: before 5, old connection half-open 5, old connection ended 5, events: none
# In edgebed: the agents of hosts connect to a socket with ROUTER_HANDOVER
#     (orchestrator/drivers/hosts/agents/listener.py).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyzmq==27.3.0
timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import socket
import sys
import threading
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

MESSAGES = 5
PATIENCE_MS = 3000


def carry(source: socket.socket, target: socket.socket) -> None:
    """Bytes of one direction. The end of a connection is not passed on, as if the device had lost power."""
    while data := source.recv(65536):
        target.sendall(data)


class Relay:
    """One connection from a device to the server."""

    def __init__(self, server_port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._server_port = server_port
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        device, _ = self._listener.accept()
        self._server = socket.create_connection(("127.0.0.1", self._server_port))
        threading.Thread(target=carry, args=(self._server, device), daemon=True).start()
        carry(device, self._server)

    def end_connection_to_server(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)


def connect(context: zmq.Context, port: int) -> tuple[zmq.Socket, zmq.Socket]:
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.ROUTING_ID, b"device")
    monitor = dealer.get_monitor_socket()
    dealer.connect(f"tcp://127.0.0.1:{port}")
    while recv_monitor_message(monitor)["event"] != zmq.EVENT_HANDSHAKE_SUCCEEDED:
        pass
    return dealer, monitor


def count_arrived(dealer: zmq.Socket, router: zmq.Socket) -> int:
    for number in range(MESSAGES):
        dealer.send(b"%d" % number)
    arrived = 0
    while arrived < MESSAGES and router.poll(PATIENCE_MS):
        router.recv_multipart()
        arrived += 1
    return arrived


def try_with(handover: int) -> tuple[int, int, int]:
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_HANDOVER, handover)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    relay = Relay(port)
    first, _ = connect(context, relay.port)
    before = count_arrived(first, router)
    first.close(linger=0)
    second, monitor = connect(context, port)
    half_open = count_arrived(second, router)
    relay.end_connection_to_server()
    time.sleep(1)
    ended = count_arrived(second, router)
    events = []
    while monitor.poll(0):
        events.append(recv_monitor_message(monitor)["event"].name)
    print(f"arrived of {MESSAGES}, ROUTER_HANDOVER {handover}: before {before}", end="")
    print(f", old connection half-open {half_open}, old connection ended {ended}", end="")
    print(f", events: {' '.join(events) or 'none'}")
    context.destroy(linger=0)
    return before, half_open, ended


if try_with(handover=0) != (MESSAGES, 0, 0):
    sys.exit("changed: a device that returned is received")
if try_with(handover=1) != (MESSAGES, MESSAGES, MESSAGES):
    sys.exit("changed: a device that returned is not received with ROUTER_HANDOVER")
PYTHON
