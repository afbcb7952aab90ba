#!/bin/sh
# Zenoh's put with BLOCK returns and loses its sample while the subscriber is frozen longer than the lease.
#
# Expected: with `CongestionControl.BLOCK` and `Reliability.RELIABLE` no sample is dropped: put waits for a receiver that
#     is not ready. So a frozen subscriber slows the publisher, or put raises.
# Happens: a subscriber frozen for 5 s gets all samples. One frozen for 20 s loses most or all of those put in that time
#     (139 to 203 of some 200, in four runs). Each put returns in some milliseconds, without an error or a warning. Only
#     `matching_status` shows that there is no receiver.
# Versions: eclipse-zenoh 1.10.2.
# Source: the setting `transport/link/tx/lease`, 10 s by default (DEFAULT_CONFIG.json5 of zenoh). After a lease without
#     a message from the subscriber, its connection and what is queued for it are dropped. From then on no subscriber
#     matches, and put discards the sample. BLOCK concerns a full queue only.
# Seen:
#     lease: 10000 ms
#     frozen for 5 s: put 49 samples meanwhile, longest put 0 ms, matching True, 0 samples lost
#     frozen for 20 s: put 197 samples meanwhile, longest put 1 ms, matching False, 198 samples lost
# In edgebed: nothing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet eclipse-zenoh==1.10.2
cat > "$folder/subscriber.py" <<'PYTHON'
import sys

import zenoh

config = zenoh.Config()
config.insert_json5("mode", '"peer"')
config.insert_json5("scouting/multicast/enabled", "false")
config.insert_json5("listen/endpoints", f'["{sys.argv[1]}"]')
with zenoh.open(config) as session:
    subscriber = session.declare_subscriber("readings", lambda sample: print(sample.payload.to_string(), flush=True))
    print("ready", flush=True)
    sys.stdin.read()
PYTHON
timeout 120 "$folder/venv/bin/python" - "$folder/subscriber.py" <<'PYTHON'
import signal
import socket
import subprocess
import sys
import threading
import time

import zenoh

INTERVAL = 0.1  # seconds between samples
MARGIN = 10.0  # seconds after the pause, for the connection to come back


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def publish(publisher: zenoh.Publisher, first: int, seconds: float) -> tuple[int, float]:
    """The number after the last sample, and the longest put in seconds."""
    number, longest = first, 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        publisher.put(str(number))
        longest = max(longest, time.monotonic() - start)
        number += 1
        time.sleep(INTERVAL)
    return number, longest


def lost_while_frozen(subscriber: subprocess.Popen, publisher: zenoh.Publisher, first: int, seconds: float) -> int:
    before, _ = publish(publisher, first, 1.0)
    subscriber.send_signal(signal.SIGSTOP)
    during, longest = publish(publisher, before, seconds)
    matching = publisher.matching_status.matching
    subscriber.send_signal(signal.SIGCONT)
    after, _ = publish(publisher, during, MARGIN)
    time.sleep(1)
    lost = set(range(first, after)) - arrived
    print(f"frozen for {seconds:.0f} s: put {during - before} samples meanwhile", end="")
    print(f", longest put {longest * 1000:.0f} ms, matching {matching}, {len(lost)} samples lost", flush=True)
    return len(lost)


arrived = set()


def read(lines) -> None:
    for line in lines:
        arrived.add(int(line))


endpoint = f"tcp/127.0.0.1:{free_port()}"
command = [sys.executable, sys.argv[1], endpoint]
subscriber = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
try:
    subscriber.stdout.readline()
    threading.Thread(target=read, args=(subscriber.stdout,), daemon=True).start()
    config = zenoh.Config()
    config.insert_json5("mode", '"client"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("connect/endpoints", f'["{endpoint}"]')
    print("lease:", config.get_json("transport/link/tx/lease"), "ms")
    with zenoh.open(config) as session:
        publisher = session.declare_publisher(
            "readings",
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
        )
        while not publisher.matching_status.matching:
            time.sleep(0.1)
        short = lost_while_frozen(subscriber, publisher, 0, 5.0)
        long = lost_while_frozen(subscriber, publisher, 1000, 20.0)
finally:
    subscriber.kill()
    subscriber.wait()
if short != 0:
    sys.exit("changed: samples are lost within the lease")
if long < 50:  # put in the last 5 s
    sys.exit("changed: samples are kept for a subscriber that is frozen longer than the lease")
PYTHON
