"""A publisher: ``python publish.py BROKER NAME``. It sends numbered messages with QoS 1 and waits until the broker has
acknowledged all of them.

TRAIN_SECONDS is the time between two messages, PARAMETERS the number of float32 values in each.
"""

import json
import os
import struct
import sys
import threading
import time

import paho.mqtt.client as mqtt

MESSAGES = 10


def report(**values):
    print("::edgebed", json.dumps(values), flush=True)


def connected_client(broker, name):
    """A client with paho's defaults. Its thread connects again after a loss."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
    client.on_disconnect = lambda client, data, flags, reason, properties: print("disconnected:", reason, flush=True)
    keepalive = int(os.environ.get("KEEPALIVE", "60"))
    client.connect_timeout = float(os.environ.get("CONNECT_TIMEOUT", "5"))
    client.connect(broker, keepalive=keepalive)
    client.loop_start()
    return client


def main():
    broker, name = sys.argv[1:]
    pause = float(os.environ.get("TRAIN_SECONDS", "0.5"))
    parameters = int(os.environ.get("PARAMETERS", "100"))
    acknowledged = threading.Semaphore(0)
    client = connected_client(broker, name)
    client.on_publish = lambda client, data, mid, reason, properties: acknowledged.release()
    for number in range(1, MESSAGES + 1):
        report(event="training started", round=number)
        time.sleep(pause)
        payload = struct.pack("<I", number) + bytes(4 * parameters)
        client.publish(f"updates/{name}", payload, qos=1)
        report(event="training ended", round=number)
    # Not `wait_for_publish`, which raises an error for a message that waits for the next connection.
    for _ in range(MESSAGES):
        acknowledged.acquire()
    client.disconnect()


if __name__ == "__main__":
    main()
