"""The subscriber: ``python collect.py BROKER PUBLISHERS``. A round ends when a message with its number has arrived from
every publisher. The value of a round is the number of messages in it, so copies show. It ends after the last round.
"""

import collections
import json
import struct
import sys
import threading

import paho.mqtt.client as mqtt
from publish import MESSAGES


def report(**values):
    print("::edgebed", json.dumps(values), flush=True)


class Rounds:
    """The messages that have arrived. A round ends after all rounds before it."""

    def __init__(self, publishers):
        self.publishers = publishers
        self.current = 1
        self.senders = collections.defaultdict(set)
        self.copies = collections.Counter()
        self.done = threading.Event()
        report(round=1, phase="start")

    def add(self, number, sender):
        self.senders[number].add(sender)
        self.copies[number] += 1
        while len(self.senders[self.current]) == self.publishers:
            report(round=self.current, value=self.copies[self.current])
            self.current += 1
            if self.current > MESSAGES:
                self.done.set()
                return
            report(round=self.current, phase="start")


def main():
    broker = sys.argv[1]
    rounds = Rounds(int(sys.argv[2]))

    def subscribe(client, data, flags, reason, properties):
        client.subscribe("updates/+", qos=1)

    def subscribed(client, data, mid, reasons, properties):
        print("subscribed", flush=True)

    def received(client, data, message):
        number = struct.unpack_from("<I", message.payload)[0]
        rounds.add(number, message.topic)

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="collector", clean_session=False)
    client.on_connect = subscribe
    client.on_subscribe = subscribed
    client.on_message = received
    client.connect(broker)
    client.loop_start()
    rounds.done.wait()


if __name__ == "__main__":
    main()
