"""Both ends of a measurement: a responder in one network namespace, a probe in the other.

    python -m netem.measurement.endpoints respond --address 10.77.0.2
        in one namespace; prints {"event": "ready", "port": ..., "token": ...} and serves until standard input ends
    python -m netem.measurement.endpoints probe --address 10.77.0.2 --port ... --token ... --plan '{...}'
        in the other; prints one JSON object, the Measurement

`respond_arguments` and `probe_arguments` make the arguments.

The probe sends a *train* of numbered datagrams at a fixed spacing; the responder echoes each with its own number. So
one train measures round-trip times, and also loss, bursts, duplicates and order separately for each direction: the
responder knows which numbers arrived, the probe knows which echoes arrived. Then each direction in turn is *saturated*,
by datagrams above the configured rate of the link, or by TCP. What follows waits in the link's queue behind the
datagrams. After the train, and at the end, the probe asks for the responder's results. It repeats the question until it
has an answer, because the link may lose the question.

Every message carries a random token from the responder, which ignores messages without it. All figures are about frames
on the link (see netem.measurement.probe_plan). The kernel timestamps arrivals (SO_TIMESTAMPNS, socket(7)), and the
responder adds the time for which it held a probe to the probe's own timestamp. So a busy host that keeps these
processes waiting does not appear as delay of the link. Both ends read one host's clock, so the responder also knows
each probe's one-way delay.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import secrets
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from netem.measurement.probe_plan import ProbePlan
from netem.measurement.tally import UDP_HEADERS, Flood, stream_rate, train_counts

HEADER = struct.Struct("!8sBIIId")  # token, kind, session, number, echo number, time sent
ECHO_SENT = struct.Struct("!d")  # behind the header of an echo
STREAM_HEAD = struct.Struct("!8sIBdI")  # token, session, direction, seconds, window
FORWARD, BACK = range(2)
PROBE, ECHO, FLOOD, ASK, ANSWER, REQUEST = range(6)
SO_TIMESTAMPNS = 35  # <asm/socket.h>; also the type of the ancillary message
TIMESPEC = struct.Struct("@ll")
TCP_WINDOW_CLAMP = 10  # <linux/tcp.h>
LARGEST_WINDOW = 1 << 30  # bytes, the most that TCP can announce (RFC 7323, section 2.3)
RECEIVE_BUFFER = 4 * 1024 * 1024
SESSIONS = 64
ASK_AGAIN = 0.05
ATTEMPTS = 20
BLOCK = bytes(1 << 16)


def open_datagrams() -> socket.socket:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    datagrams.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return datagrams


def open_stream(far: tuple[str, int], segment: int) -> socket.socket:
    """A TCP connection. ``segment``: the largest in bytes, both ways; 0: that of the route."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if segment:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
    connection.settimeout(10)
    try:
        connection.connect(far)
    except OSError:
        connection.close()
        raise
    return connection


def open_both(address: str) -> tuple[socket.socket, socket.socket]:
    """A socket for datagrams, and a TCP listener at the same port."""
    while True:
        datagrams = open_datagrams()
        try:
            datagrams.bind((address, 0))
            return datagrams, socket.create_server(datagrams.getsockname())
        except OSError as error:
            datagrams.close()
            if error.errno != errno.EADDRINUSE:  # a TCP socket of this host may have the free port of datagrams
                raise


def receive(datagrams: socket.socket) -> tuple[bytes, Any, float]:
    """A datagram, its sender, and the time at which the kernel received it (on the clock of time.time())."""
    data, ancillary, _, sender = datagrams.recvmsg(2048, 64)
    for _, kind, content in ancillary:
        if kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = TIMESPEC.unpack(content)
            return data, sender, seconds + nanoseconds / 1e9
    return data, sender, time.time()


def times_of(saturation: Mapping[str, Any]) -> list[float]:
    """When to send each datagram of a saturation (`netem.measurement.probe_plan.Saturation`), in seconds from its
    start."""
    spacing = (saturation["size"] + UDP_HEADERS) * 8 / saturation["offer"]
    count = int(saturation["seconds"] / spacing)
    return [number * spacing for number in range(count)]


def flood(
    send: Callable[[bytes], object],
    head: Callable[[int], bytes],
    saturation: Mapping[str, Any],
) -> None:
    """Send the datagrams of a saturation, each with a header from ``head``."""
    filler = bytes(saturation["size"] - HEADER.size)
    start = time.monotonic()
    for number, due in enumerate(times_of(saturation)):
        wait = start + due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        send(head(number) + filler)


def stream(connection: socket.socket, seconds: float) -> None:
    """Send over TCP for ``seconds``, then close the sending side."""
    end = time.monotonic() + seconds
    connection.settimeout(seconds + 10)
    while time.monotonic() < end:
        connection.send(BLOCK)
    connection.shutdown(socket.SHUT_WR)


def drain(connection: socket.socket, window: int) -> float | None:
    """Receive a TCP stream to its end, with at most `window` bytes in flight; returns its rate on the link."""
    connection.setsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP, window)
    stamps = []
    total = 0
    buffer = bytearray(1 << 20)
    while received := connection.recv_into(buffer):
        total += received
        stamps.append((time.monotonic(), total))
    segment = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    return stream_rate(stamps, segment)


class Responder:
    """The far end. It serves one saturation at a time; trains of several probes may overlap."""

    def __init__(self, address: str) -> None:
        self.token = secrets.token_bytes(8)
        self.datagrams, self.streams = open_both(address)
        self.port: int = self.datagrams.getsockname()[1]
        self._sessions: dict[int, dict[str, Any]] = {}

    def serve(self, until: int) -> None:
        """Answer until the descriptor `until` reaches its end of file."""
        datagrams = self.datagrams.fileno()
        streams = self.streams.fileno()
        while True:
            ready, _, _ = select.select([until, datagrams, streams], [], [])
            if until in ready and not os.read(until, 4096):
                return
            if datagrams in ready:
                data, sender, arrived = receive(self.datagrams)
                self._datagram(data, sender, arrived)
            if streams in ready:
                connection, _ = self.streams.accept()
                self._stream(connection)

    def close(self) -> None:
        self.datagrams.close()
        self.streams.close()

    def _session(self, identity: int) -> dict[str, Any]:
        session = self._sessions.get(identity)
        if session is None:
            while len(self._sessions) >= SESSIONS:
                oldest = next(iter(self._sessions))
                del self._sessions[oldest]
            session = {
                "numbers": [],
                "delays": [],
                "flood": Flood(),
                "requested": False,
                "stream": None,
            }
            self._sessions[identity] = session
        return session

    def _datagram(self, data: bytes, sender: tuple[str, int], arrived: float) -> None:
        if len(data) < HEADER.size:
            return
        token, kind, identity, number, _, sent = HEADER.unpack_from(data)
        if token != self.token:
            return
        session = self._session(identity)
        if kind == PROBE:
            session["numbers"].append(number)
            session["delays"].append(arrived - sent)
            echo_number = len(session["numbers"]) - 1
            wait = time.time() - arrived
            header = HEADER.pack(self.token, ECHO, identity, number, echo_number, sent + wait)
            echo = header + ECHO_SENT.pack(time.time())
            filler = data[len(echo) :]
            self.datagrams.sendto(echo + filler, sender)
        elif kind == FLOOD:
            session["flood"].add(sent, arrived, len(data))
        elif kind == ASK:
            header = self._head(ANSWER, identity, number)
            self.datagrams.sendto(header + self._report(session, number), sender)
        elif kind == REQUEST and not session["requested"]:
            session["requested"] = True
            saturation = json.loads(data[HEADER.size :])
            self._flood(identity, sender, saturation)

    def _head(self, kind: int, identity: int, number: int) -> bytes:
        return HEADER.pack(self.token, kind, identity, number, 0, time.time())

    def _flood(
        self,
        identity: int,
        sender: tuple[str, int],
        saturation: dict[str, Any],
    ) -> None:
        """Saturate the direction to a probe."""

        def send(packet: bytes) -> None:
            self.datagrams.sendto(packet, sender)

        def head(number: int) -> bytes:
            return self._head(FLOOD, identity, number)

        with contextlib.suppress(OSError):  # the run ends, and its links with it
            flood(send, head, saturation)

    def _report(self, session: dict[str, Any], sent: int) -> bytes:
        numbers = session["numbers"]
        delays = session["delays"]
        forward: dict[str, Any] = dict(train_counts(numbers, sent))
        forward["delay"] = median(delays) if delays else None
        forward |= session["stream"] or session["flood"].result()
        return json.dumps({"echoes": len(numbers), "forward": forward}).encode()

    def _stream(self, connection: socket.socket) -> None:
        """A TCP saturation: a header with session and direction, then bytes until the sender closes."""
        with connection:
            connection.settimeout(10)
            try:
                head = connection.recv(STREAM_HEAD.size)
                token, identity, direction, seconds, window = STREAM_HEAD.unpack(head)
                if token != self.token:
                    return
                if direction == BACK:
                    stream(connection, seconds)
                else:
                    rate = drain(connection, window)
                    session = self._session(identity)
                    session["stream"] = {"rate": rate, "queue_delay": None}
            except (OSError, struct.error):  # the probe is gone, or the peer is no probe
                return


class Probe:
    """The near end; `run` returns the measurement as a plain mapping (see netem.measurement.probe_plan.Measurement)."""

    def __init__(
        self,
        address: str,
        port: int,
        token: bytes,
        plan: dict[str, Any],
    ) -> None:
        self.far = (address, port)
        self.plan = plan
        self._late = 0.0
        self._token = token
        self._identity = secrets.randbits(32)
        self._socket = open_datagrams()
        self._socket.connect(self.far)
        self._socket.setblocking(False)

    def close(self) -> None:
        self._socket.close()

    def run(self) -> dict[str, Any]:
        forward_load = self.plan["forward"]
        back_load = self.plan["back"]
        saturates = forward_load or back_load
        if not saturates:
            self._wait_to_start()
        echoes, times, delays = self._train()
        answer = self._ask()
        forward: dict[str, Any] = {"sent": self.plan["count"], "received": None}
        back: dict[str, Any] = {"sent": 0, "received": None}
        if answer is not None:
            back = dict(train_counts(echoes, answer["echoes"]))
            back["delay"] = median(delays) if delays else None
            if saturates:
                self._wait_to_start()
            if forward_load:
                self._saturate_forward(forward_load)
            if back_load:
                back |= self._saturate_back(back_load)
            if forward_load:
                answer = self._ask() or answer
            forward = answer["forward"]
        times.sort()
        rtt_median = None
        rtt_p99 = None
        if times:
            rtt_median = times[len(times) // 2]
            rtt_p99 = times[int(len(times) * 0.99)]
        return {
            "rtt_median": rtt_median,
            "rtt_p99": rtt_p99,
            "rtt_samples": len(times),
            "forward": forward,
            "back": back,
            "late": self._late,
        }

    def _wait_to_start(self) -> None:
        if self.plan["start"]:
            wait = self.plan["start"] - time.time()
            self._late = max(0.0, -wait)
            time.sleep(max(0.0, wait))

    def _head(self, kind: int, number: int) -> bytes:
        return HEADER.pack(self._token, kind, self._identity, number, 0, time.time())

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionRefusedError):  # no listener: it counts as loss
            while True:
                try:
                    self._socket.send(data)
                    return
                except BlockingIOError:  # a local queue is full, if the kernel shapes here
                    select.select([], [self._socket], [], 1.0)

    def _received(self, until: float) -> Iterator[tuple[int, int, float, float, bytes]]:
        """(kind, echo number, time sent, time arrived, all data) of each datagram that comes before `until`."""
        while True:
            left = until - time.monotonic()
            timeout = max(0.0, left)
            readable, _, _ = select.select([self._socket], [], [], timeout)
            if not readable:
                return
            try:
                data, _, arrived = receive(self._socket)
            except (BlockingIOError, ConnectionRefusedError):
                continue
            token, kind, identity, _, echo, sent = HEADER.unpack_from(data)
            if token == self._token and identity == self._identity:
                yield kind, echo, sent, arrived, data
            if left <= 0:
                return

    def _train(self) -> tuple[list[int], list[float], list[float]]:
        """Send the train; returns the echo numbers in order of arrival, the round-trip times, the backward delays."""
        count = self.plan["count"]
        spacing = self.plan["spacing"]
        filler = bytes(self.plan["size"] - HEADER.size)
        echoes: list[int] = []
        times: list[float] = []
        delays: list[float] = []
        due = time.monotonic()
        for number in range(count + 1):
            until = due
            if number == count:
                until += self.plan["wait"]
            for kind, echo, sent, arrived, data in self._received(until):
                if kind == ECHO:
                    (echo_sent,) = ECHO_SENT.unpack_from(data, HEADER.size)
                    times.append(arrived - sent)
                    delays.append(arrived - echo_sent)
                    echoes.append(echo)
            if number < count:
                self._send(self._head(PROBE, number) + filler)
                # Probes delayed by a busy host do not catch up in a burst, which would load the link.
                due = max(due + spacing, time.monotonic() + spacing / 2)
        return echoes, times, delays

    def _ask(self) -> dict[str, Any] | None:
        """Ask for the responder's results; None if it does not answer."""
        wait = max(ASK_AGAIN, self.plan["wait"])
        for _ in range(ATTEMPTS):
            self._send(self._head(ASK, self.plan["count"]))
            until = time.monotonic() + wait
            for kind, _, _, _, data in self._received(until):
                if kind == ANSWER:
                    answer: dict[str, Any] = json.loads(data[HEADER.size :])
                    return answer
        return None

    def _saturate_forward(self, saturation: dict[str, Any]) -> None:
        if saturation["transport"] == "tcp":
            self._stream(FORWARD, saturation)
            return
        flood(self._send, lambda number: self._head(FLOOD, number), saturation)
        back = self.plan["back"] or {}
        if back.get("transport") != "udp":  # else the request waits behind the datagrams
            time.sleep(self.plan["wait"] + saturation["drain"])

    def _saturate_back(self, saturation: dict[str, Any]) -> dict[str, float | None]:
        if saturation["transport"] == "tcp":
            return {"rate": self._stream(BACK, saturation)}
        datagrams = Flood()
        times = times_of(saturation)
        request = json.dumps(saturation).encode()
        wait = self.plan["wait"]
        forward = self.plan["forward"]
        waiting = forward["drain"] if forward else 0.0  # behind the datagrams of the other direction
        for attempt in range(ATTEMPTS):
            self._send(self._head(REQUEST, attempt) + request)
            until = time.monotonic() + max(ASK_AGAIN, waiting + wait)
            while time.monotonic() < until:
                for kind, _, sent, arrived, data in self._received(until):
                    if kind == FLOOD:
                        datagrams.add(sent, arrived, len(data))
                        if datagrams.count == len(times):
                            return datagrams.result()
                        header = HEADER.unpack_from(data)
                        unsent = times[-1] - times[header[3]]
                        queued = saturation["drain"] - datagrams.waited  # behind this one, at most
                        until = time.monotonic() + unsent + max(0.0, queued) + wait
            if datagrams.size:
                break
        return datagrams.result()

    def _stream(self, direction: int, saturation: dict[str, Any]) -> float | None:
        seconds = saturation["seconds"]
        window = min(saturation["window"], LARGEST_WINDOW)
        head = STREAM_HEAD.pack(self._token, self._identity, direction, seconds, window)
        try:
            with open_stream(self.far, saturation["size"]) as connection:
                connection.sendall(head)
                if direction == BACK:
                    return drain(connection, window)
                stream(connection, seconds)
                connection.recv(1)  # the responder closes when it has read everything
        except OSError:
            return None
        return None


def respond(address: str) -> None:
    """Serve on `address` until standard input ends; prints one line with the port and the token."""
    responder = Responder(address)
    ready = {
        "event": "ready",
        "port": responder.port,
        "token": responder.token.hex(),
    }
    print(json.dumps(ready), flush=True)
    responder.serve(sys.stdin.fileno())
    responder.close()


def probe(
    address: str,
    port: int,
    token: str,
    plan: dict[str, Any],
) -> None:
    """Measure the link, and print the measurement as one JSON object."""
    near = Probe(address, port, bytes.fromhex(token), plan)
    measurement = near.run()
    print(json.dumps(measurement), flush=True)
    near.close()


def respond_arguments(address: str) -> list[str]:
    """Arguments of this program for the responder bound to `address`."""
    return ["respond", "--address", address]


def probe_arguments(address: str, ready: Mapping[str, Any], plan: ProbePlan) -> list[str]:
    """Arguments of this program for the probe of a responder on `address` that printed `ready`."""
    return [
        "probe",
        "--address",
        address,
        "--port",
        str(ready["port"]),
        "--token",
        str(ready["token"]),
        "--plan",
        json.dumps(asdict(plan)),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m netem.measurement.endpoints", description="Measure a link from its two ends."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("respond", "probe"):
        command = commands.add_parser(name)
        command.add_argument("--address", required=True, help="the responder's address on its data0")
    command.add_argument("--port", type=int, required=True, help="as the responder printed it")
    command.add_argument("--token", required=True, help="as the responder printed it")
    command.add_argument("--plan", type=json.loads, required=True, help="a ProbePlan as JSON")
    options = parser.parse_args(arguments)
    if options.command == "respond":
        respond(options.address)
    else:
        probe(options.address, options.port, options.token, options.plan)


if __name__ == "__main__":
    main()
