"""Numbered messages over MQTT with paho's defaults and quality of service 1, both ways, two each second.

python over_mqtt.py serve                the server's application, next to the broker
python over_mqtt.py ask ADDRESS
PERSISTENT=1: the broker keeps the client's session while it is away.
"""

import os
import sys
import threading
import time

import paho.mqtt.client as mqtt
from observer import Observer

PORT = 1883
PAUSE = 0.5  # s between two messages
CALM = 8.0  # s until the fault may start
SIZE = int(os.environ.get("MESSAGE_BYTES", "100"))
STATUS = "status"

observer = Observer()


def connected(client: mqtt.Client, topic: str, _flags: object, _reason: object, _properties: object) -> None:
    observer.peer_found()
    client.subscribe(topic, qos=1)
    if topic == "up":
        client.subscribe(STATUS, qos=1)


def disconnected(_client: mqtt.Client, _topic: str, _flags: object, reason: object, _properties: object) -> None:
    observer.peer_lost(str(reason))


def arrived(_client: mqtt.Client, _topic: str, message: mqtt.MQTTMessage) -> None:
    if message.topic == STATUS:
        observer.peer_lost("last will")
    else:
        observer.received(message.payload)


def send(client: mqtt.Client, topic: str) -> None:
    while True:
        message = observer.next_message(SIZE)
        published = client.publish(topic, message, qos=1)
        if published.rc in (mqtt.MQTT_ERR_SUCCESS, mqtt.MQTT_ERR_NO_CONN):  # paho keeps it until there is a connection
            observer.sent(message)
        time.sleep(PAUSE)


def main() -> None:
    is_server = sys.argv[1] == "serve"
    sends, hears = ("down", "up") if is_server else ("up", "down")
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        client_id=sys.argv[1],
        clean_session=os.environ.get("PERSISTENT") != "1",
        userdata=hears,
    )
    client.on_connect = connected
    client.on_disconnect = disconnected
    client.on_message = arrived
    if not is_server:
        client.will_set(STATUS, "gone", qos=1)
        threading.Timer(CALM, observer.fault_may_begin).start()
    client.connect("127.0.0.1" if is_server else sys.argv[2], PORT)
    client.loop_start()
    send(client, sends)


main()
