#!/bin/sh
# paho-mqtt reports a message with QoS 1 or 2 as failed, and delivers it.
#
# Expected: `publish` without a connection returns MQTT_ERR_NO_CONN, "the client is not currently connected", for each
#     QoS. So the message is not sent, and the program must publish it again.
# Happens: with QoS 0 it is lost. With QoS 1 and 2 it is kept and delivered after `connect`, and a program that publishes
#     again sends it twice. `is_published` and `wait_for_publish` raise "Message publish failed", also after the broker's
#     acknowledgement and `on_publish`.
# Versions: paho-mqtt 2.2.0; the broker is amqtt 0.12.1.
# Source: `Client.publish` in paho/mqtt/client.py keeps the message for the next connection if `_send_publish` returns
#     MQTT_ERR_NO_CONN, and returns that code. `MQTTMessageInfo.is_published` looks at the code first.
# Seen:
#     before the connection: QoS 0 MQTT_ERR_NO_CONN, QoS 1 MQTT_ERR_NO_CONN, QoS 2 MQTT_ERR_NO_CONN
#     arrived: QoS 1, QoS 2
#     QoS 0: no on_publish, is_published raises Message publish failed: The client is not currently connected.
#     QoS 1: on_publish, is_published raises Message publish failed: The client is not currently connected.
#     QoS 2: on_publish, is_published raises Message publish failed: The client is not currently connected.
# In edgebed: scenarios/peers/messages/over_mqtt.py counts such a message as sent.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet paho-mqtt==2.2.0 amqtt==0.12.1
timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import socket
import sys
import threading

import paho.mqtt.client as mqtt
from amqtt.broker import Broker

PATIENCE = 10.0  # seconds


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


def new_client() -> mqtt.Client:
    return mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)


port = free_port()
listening, subscribed, all_arrived = threading.Event(), threading.Event(), threading.Event()
threading.Thread(target=asyncio.run, args=(serve(port, listening),), daemon=True).start()
wait(listening, "broker")

arrived = []


def receive(client: mqtt.Client, data: object, message: mqtt.MQTTMessage) -> None:
    if message.payload == b"last":
        all_arrived.set()
        return
    arrived.append(message.payload.decode())


receiver = new_client()
receiver.on_message = receive
receiver.on_subscribe = lambda *arguments: subscribed.set()
receiver.connect("127.0.0.1", port)
receiver.loop_start()
receiver.subscribe("readings", qos=2)
wait(subscribed, "subscription")

acknowledged = set()
device = new_client()
device.on_publish = lambda client, data, mid, reason, properties: acknowledged.add(mid)
messages = [device.publish("readings", f"QoS {qos}", qos=qos) for qos in range(3)]
codes = [f"QoS {qos} {message.rc.name}" for qos, message in enumerate(messages)]
print("before the connection:", ", ".join(codes))
device.connect("127.0.0.1", port)
device.loop_start()
last = device.publish("readings", "last", qos=2)
wait(all_arrived, "last message")
last.wait_for_publish(PATIENCE)
device.loop_stop()
receiver.loop_stop()

print("arrived:", ", ".join(arrived))
raised = 0
for qos, message in enumerate(messages):
    try:
        message.is_published()
        result = "returns"
    except RuntimeError as error:
        result = f"raises {error}"
        raised += 1
    print(f"QoS {qos}: {'' if message.mid in acknowledged else 'no '}on_publish, is_published {result}")
if any(message.rc != mqtt.MQTT_ERR_NO_CONN for message in messages):
    sys.exit("changed: the code before the connection")
if arrived != ["QoS 1", "QoS 2"]:
    sys.exit("changed: other messages are delivered")
if raised != 3:
    sys.exit("changed: a message that was delivered is reported as published")
PYTHON
