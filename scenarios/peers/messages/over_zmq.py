"""Numbered messages over ZeroMQ with its defaults, both ways, two each second: a ROUTER and a DEALER.

python over_zmq.py serve
python over_zmq.py ask ADDRESS
HEARTBEAT=1000: both ends send a heartbeat each 1,000 ms.  HANDOVER=1: a client that comes back takes its name over.
"""

import os
import sys
import threading
import time

import zmq
from observer import Observer
from zmq.utils.monitor import recv_monitor_message

PORT = 9000
PAUSE = 0.5  # s between two messages
CALM = 8.0  # s until the fault may start
SIZE = int(os.environ.get("MESSAGE_BYTES", "100"))
NAME = b"client"

observer = Observer()


def watch(monitor: zmq.Socket) -> None:
    """Report what ZeroMQ says of the connection."""
    while True:
        event = recv_monitor_message(monitor)["event"]
        if event == zmq.EVENT_DISCONNECTED:
            observer.peer_lost("disconnected")
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            observer.peer_found()


def opened(context: zmq.Context, kind: int) -> zmq.Socket:
    socket = context.socket(kind)
    socket.heartbeat_ivl = int(os.environ.get("HEARTBEAT", "0"))
    monitor = socket.get_monitor_socket()
    threading.Thread(target=watch, args=(monitor,), daemon=True).start()
    return socket


def exchange(socket: zmq.Socket, address: list[bytes], knows_peer: bool) -> None:
    """Send and receive for ever. ``address``: the frames before a message. A server sends when it knows its peer."""
    began = time.monotonic()
    due = began
    calm = not knows_peer
    while True:
        now = time.monotonic()
        if not calm and now >= began + CALM:
            calm = True
            observer.fault_may_begin()
        if knows_peer and now >= due:
            due += PAUSE
            message = observer.next_message(SIZE)
            try:
                socket.send_multipart([*address, message], zmq.DONTWAIT)
            except zmq.Again:
                continue
            observer.sent(message)
        if socket.poll(50):
            observer.received(socket.recv_multipart()[-1])
            if not knows_peer:
                knows_peer = True
                due = time.monotonic()


def main() -> None:
    context = zmq.Context()
    if sys.argv[1] == "serve":
        router = opened(context, zmq.ROUTER)
        router.router_handover = os.environ.get("HANDOVER") == "1"
        router.bind(f"tcp://*:{PORT}")
        exchange(router, [NAME], knows_peer=False)
    dealer = opened(context, zmq.DEALER)
    dealer.identity = NAME
    dealer.connect(f"tcp://{sys.argv[2]}:{PORT}")
    exchange(dealer, [], knows_peer=True)


main()
