#!/bin/sh
# The broker of amqtt keeps a client that became silent, and does not publish its will.
#
# Expected: MQTT 3.1.1, section 3.1.2.10: a server must end the connection of a client from which it receives no packet
#     within one and a half times the keep-alive. This is a failure of the connection, so it publishes the will.
# Happens: a client with a keep-alive of 4 s sends nothing for 20 s, as after a loss of power. It stays connected, and its
#     will is not published. The will of a client that closes its socket is published at once.
# Versions: amqtt 0.12.1; the subscriber is paho-mqtt 2.2.0.
# Source: `ProtocolHandler._reader_loop` in amqtt/mqtt/protocol/handler.py waits for a packet no longer than the keep-alive,
#     then calls `handle_read_timeout`. The broker's one, in amqtt/mqtt/protocol/broker_handler.py, is empty.
# Seen:
#     silent for 20 s with a keep-alive of 4 s: connected, no will
#     socket closed: will after 0.0 s
# In edgebed: nothing; its scenarios use Mosquitto.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet amqtt==0.12.1 paho-mqtt==2.2.0
timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import socket
import sys
import threading
import time

import paho.mqtt.client as mqtt
from amqtt.broker import Broker

KEEP_ALIVE = 4  # seconds
SILENCE = 20.0  # seconds
PATIENCE = 10.0  # seconds
TOPIC = "state"
CLEAN_SESSION, WILL = 0x02, 0x04


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def serve(port: int, listening: threading.Event) -> None:
    listener = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    await Broker({"listeners": {"default": listener}, "plugins": plugins}).start()
    listening.set()
    await asyncio.Event().wait()


def wait(event: threading.Event, name: str) -> None:
    if not event.wait(PATIENCE):
        sys.exit(f"changed: no {name} in {PATIENCE:.0f} s")


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def connect(port: int, name: str) -> socket.socket:
    """A client without a library, so that nothing sends PINGREQ."""
    header = text("MQTT") + bytes([4, CLEAN_SESSION | WILL]) + KEEP_ALIVE.to_bytes(2, "big")
    packet = header + text(name) + text(TOPIC) + text(f"{name} is lost")
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(bytes([0x10, len(packet)]) + packet)
    if client.recv(4) != bytes([0x20, 2, 0, 0]):
        sys.exit("changed: the broker refuses the connection")
    return client


def is_connected_after(client: socket.socket, seconds: float) -> bool:
    client.settimeout(seconds)
    try:
        return client.recv(1) != b""
    except TimeoutError:
        return True


port = free_port()
listening, subscribed, published = threading.Event(), threading.Event(), threading.Event()
threading.Thread(target=asyncio.run, args=(serve(port, listening),), daemon=True).start()
wait(listening, "broker")

subscriber = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
subscriber.on_message = lambda client, data, message: published.set()
subscriber.on_subscribe = lambda *arguments: subscribed.set()
subscriber.connect("127.0.0.1", port)
subscriber.loop_start()
subscriber.subscribe(TOPIC, qos=1)
wait(subscribed, "subscription")

silent = connect(port, "silent")
connected = is_connected_after(silent, SILENCE)
will = published.is_set()
print(f"silent for {SILENCE:.0f} s with a keep-alive of {KEEP_ALIVE} s: ", end="")
print(f"{'connected' if connected else 'disconnected'}, {'will' if will else 'no will'}")
published.clear()
start = time.monotonic()
silent.close()
wait(published, "will of a client that closed its socket")
print(f"socket closed: will after {time.monotonic() - start:.1f} s")
subscriber.loop_stop()
if will or not connected:
    sys.exit("changed: a silent client is disconnected")
PYTHON
