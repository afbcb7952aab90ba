"""Both ends of a measurement: a responder in one network namespace, a probe in the other.

The probe sends a *train* of numbered datagrams at a fixed spacing; the responder echoes each with a number of its own.
So one train tells round-trip times, and loss, bursts, duplicates and order for each direction apart: the responder
knows which numbers came, the probe knows which echoes did. Then each direction in turn is *saturated*, by datagrams
sent faster than the link is asked to be, or by TCP. What the responder saw is asked for at the end, and asked again
until it answers, since the link may lose the question.

Every message carries a token which the responder made up; it answers to nobody else. All figures are about frames on
the link (see netem.measure), all times are seconds on one host's monotonic clock or differences on each own clock.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

HEADER = struct.Struct("!8sBIIId")  # token, kind, session, number, echo number, time sent
STREAM_HEAD = struct.Struct("!8sIBd")  # token, session, direction, seconds
FORWARD, BACK = range(2)
PROBE, ECHO, FLOOD, ASK, ANSWER, REQUEST = range(6)
UDP_HEADERS = 14 + 20 + 8
TCP_HEADERS = 14 + 20 + 20 + 12  # the 12 are the timestamp option
RECEIVE_BUFFER = 4 * 1024 * 1024
SESSIONS = 64
ASK_AGAIN = 0.05
ATTEMPTS = 20
BLOCK = bytes(1 << 16)


def train_counts(numbers: Sequence[int], sent: int) -> dict[str, int]:
    """What a train of numbers 0..sent-1 went through, from the numbers in the order they arrived.

    sent, received (different numbers), bursts (unbroken runs of missing numbers), duplicated (arrivals of a number
    that had come already), reordered (first arrivals behind a higher number: RFC 4737, section 3).
    """
    seen: set[int] = set()
    reordered = 0
    highest = -1
    for number in numbers:
        if number not in seen:
            reordered += number < highest
            highest = max(highest, number)
            seen.add(number)
    bursts = sum(number not in seen and (number == 0 or number - 1 in seen) for number in range(sent))
    return {
        "sent": sent,
        "received": len(seen),
        "bursts": bursts,
        "duplicated": len(numbers) - len(seen),
        "reordered": reordered,
    }


def arrival_rate(times: Sequence[float], bits: float) -> float | None:
    """Rate in bit/s at which equal frames of `bits` arrived; None for fewer than four.

    The median over all pairs half the series apart: a hiccup of the receiver shifts few of them.
    """
    half = len(times) // 2
    if half < 2:
        return None
    spans = sorted(later - earlier for earlier, later in zip(times, times[half:], strict=False))
    middle = spans[len(spans) // 2]
    return half * bits / middle if middle > 0 else None


def stream_rate(stamps: Sequence[tuple[float, int]], segment: int) -> float | None:
    """Rate in bit/s on the link of a TCP stream, from (time, bytes so far); its first third is left out as ramp-up.

    Each `segment` of payload crosses the link in a frame with Ethernet, IP and TCP headers: 1448 in 1514.
    """
    if len(stamps) < 2:
        return None
    last, total = stamps[-1]
    ramp = stamps[0][0] + (last - stamps[0][0]) / 3
    first, before = next(stamp for stamp in stamps if stamp[0] >= ramp)
    if last <= first:
        return None
    return (total - before) * 8 / (last - first) * (segment + TCP_HEADERS) / segment


class Flood:
    """Datagrams of a saturation as they arrive."""

    def __init__(self) -> None:
        self.size = 0
        self._times: list[float] = []
        self._delays: list[float] = []

    def add(self, sent: float, payload: int) -> None:
        now = time.monotonic()
        self.size = payload
        self._times.append(now)
        self._delays.append(now - sent)

    def result(self) -> dict[str, float | None]:
        """rate (bit/s) and queue_delay: how much longer the slowest datagram took than the fastest."""
        rate = arrival_rate(self._times, (self.size + UDP_HEADERS) * 8)
        delay = max(self._delays) - min(self._delays) if self._delays else None
        return {"rate": rate, "queue_delay": delay}


def flood(send: Callable[[bytes], object], head: Callable[[int], bytes], saturation: Mapping[str, Any]) -> None:
    """Send datagrams of a saturation (netem.measure.Saturation), each with its head."""
    filler = bytes(saturation["size"] - HEADER.size)
    spacing = (saturation["size"] + UDP_HEADERS) * 8 / saturation["offer"]
    start = time.monotonic()
    for number in range(int(saturation["seconds"] / spacing)):
        wait = start + number * spacing - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        send(head(number) + filler)


def stream(connection: socket.socket, seconds: float) -> None:
    """Send over TCP for so long, then hang up."""
    end = time.monotonic() + seconds
    connection.settimeout(seconds + 10)
    while time.monotonic() < end:
        connection.send(BLOCK)
    connection.shutdown(socket.SHUT_WR)


def drain(connection: socket.socket) -> float | None:
    """Receive a TCP stream to its end; its rate on the link."""
    stamps = []
    total = 0
    buffer = bytearray(1 << 20)
    while received := connection.recv_into(buffer):
        total += received
        stamps.append((time.monotonic(), total))
    return stream_rate(stamps, connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))


class Responder:
    """The far end. Serves one saturation at a time; trains of several probes may overlap."""

    def __init__(self, address: str) -> None:
        self.token = secrets.token_bytes(8)
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self.datagrams.bind((address, 0))
        self.port: int = self.datagrams.getsockname()[1]
        self.streams = socket.create_server((address, self.port))
        self._sessions: dict[int, dict[str, Any]] = {}

    def serve(self, until: int) -> None:
        """Answer until the descriptor `until` reaches its end of file."""
        datagrams, streams = self.datagrams.fileno(), self.streams.fileno()
        while True:
            ready, _, _ = select.select([until, datagrams, streams], [], [])
            if until in ready and not os.read(until, 4096):
                return
            if datagrams in ready:
                self._datagram(*self.datagrams.recvfrom(2048))
            if streams in ready:
                self._stream(self.streams.accept()[0])

    def close(self) -> None:
        self.datagrams.close()
        self.streams.close()

    def _session(self, identity: int) -> dict[str, Any]:
        session = self._sessions.get(identity)
        if session is None:
            while len(self._sessions) >= SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            session = {"numbers": [], "flood": Flood(), "requested": False, "stream": None}
            self._sessions[identity] = session
        return session

    def _datagram(self, data: bytes, sender: tuple[str, int]) -> None:
        if len(data) < HEADER.size:
            return
        token, kind, identity, number, _, sent = HEADER.unpack_from(data)
        if token != self.token:
            return
        session = self._session(identity)

        def head(kind: int, number: int, echo: int = 0, at: float = 0.0) -> bytes:
            return HEADER.pack(self.token, kind, identity, number, echo, at)

        if kind == PROBE:
            echo = head(ECHO, number, len(session["numbers"]), sent)
            session["numbers"].append(number)
            self.datagrams.sendto(echo + data[HEADER.size :], sender)
        elif kind == FLOOD:
            session["flood"].add(sent, len(data))
        elif kind == ASK:
            self.datagrams.sendto(head(ANSWER, number) + self._report(session, number), sender)
        elif kind == REQUEST and not session["requested"]:
            session["requested"] = True
            flood(
                lambda packet: self.datagrams.sendto(packet, sender),
                lambda number: head(FLOOD, number, at=time.monotonic()),
                json.loads(data[HEADER.size :]),
            )

    def _report(self, session: dict[str, Any], sent: int) -> bytes:
        numbers = session["numbers"]
        rates = session["stream"] or session["flood"].result()
        return json.dumps({"echoes": len(numbers), "forward": train_counts(numbers, sent) | rates}).encode()

    def _stream(self, connection: socket.socket) -> None:
        """A TCP saturation: a head says who and which way, then bytes until the sender hangs up."""
        with connection:
            connection.settimeout(10)
            try:
                token, identity, direction, seconds = STREAM_HEAD.unpack(connection.recv(STREAM_HEAD.size))
                if token != self.token:
                    return
                if direction == BACK:
                    stream(connection, seconds)
                else:
                    self._session(identity)["stream"] = {"rate": drain(connection), "queue_delay": None}
            except (OSError, struct.error):  # it went away, or is not our probe
                return


class Probe:
    """The near end; `run` gives the measurement as a plain mapping (see netem.measure.Measurement)."""

    def __init__(self, address: str, port: int, token: bytes, plan: dict[str, Any]) -> None:
        self.far = (address, port)
        self.plan = plan
        self._token = token
        self._identity = secrets.randbits(32)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.connect(self.far)
        self._socket.setblocking(False)

    def close(self) -> None:
        self._socket.close()

    def run(self) -> dict[str, Any]:
        echoes, times = self._train()
        answer = self._ask()
        forward: dict[str, Any] = {"sent": self.plan["count"], "received": None}
        back: dict[str, Any] = {"sent": 0, "received": None}
        if answer is not None:
            back = {**train_counts(echoes, answer["echoes"])}
            if self.plan["forward"]:
                self._saturate_forward(self.plan["forward"])
                answer = self._ask() or answer
            if self.plan["back"]:
                back |= self._saturate_back(self.plan["back"])
            forward = answer["forward"]
        times.sort()
        return {
            "rtt_median": times[len(times) // 2] if times else None,
            "rtt_p99": times[int(len(times) * 0.99)] if times else None,
            "rtt_samples": len(times),
            "forward": forward,
            "back": back,
        }

    def _head(self, kind: int, number: int = 0) -> bytes:
        return HEADER.pack(self._token, kind, self._identity, number, 0, time.monotonic())

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except (BlockingIOError, ConnectionRefusedError):
            return  # lost at the first step, or nobody listens: either shows as loss

    def _received(self, until: float) -> Iterator[tuple[int, int, int, float, bytes]]:
        """(kind, number, echo number, time sent, all data) of each datagram that comes before `until`."""
        while True:
            left = until - time.monotonic()
            if not select.select([self._socket], [], [], max(0.0, left))[0]:
                return
            try:
                data = self._socket.recv(2048)
            except (BlockingIOError, ConnectionRefusedError):
                continue
            token, kind, identity, number, echo, sent = HEADER.unpack_from(data)
            if (token, identity) == (self._token, self._identity):
                yield kind, number, echo, sent, data
            if left <= 0:
                return

    def _train(self) -> tuple[list[int], list[float]]:
        """Send the train; the echo numbers in order of arrival, and the round-trip times."""
        count, spacing = self.plan["count"], self.plan["spacing"]
        filler = bytes(self.plan["size"] - HEADER.size)
        echoes: list[int] = []
        times: list[float] = []
        due = time.monotonic()
        for number in range(count + 1):
            until = due if number < count else due + self.plan["wait"]
            for kind, _, echo, sent, _ in self._received(until):
                if kind == ECHO:
                    times.append(time.monotonic() - sent)
                    echoes.append(echo)
            if number < count:
                self._send(self._head(PROBE, number) + filler)
                # Probes held up by a busy host do not catch up in a burst: that would load the link.
                due = max(due + spacing, time.monotonic() + spacing / 2)
        return echoes, times

    def _ask(self) -> dict[str, Any] | None:
        """What the responder saw; None if it does not answer."""
        for _ in range(ATTEMPTS):
            self._send(self._head(ASK, self.plan["count"]))
            for kind, _, _, _, data in self._received(time.monotonic() + max(ASK_AGAIN, self.plan["wait"])):
                if kind == ANSWER:
                    answer: dict[str, Any] = json.loads(data[HEADER.size :])
                    return answer
        return None

    def _saturate_forward(self, saturation: dict[str, Any]) -> None:
        if saturation["transport"] == "tcp":
            self._stream(FORWARD, saturation["seconds"])
        else:
            flood(self._send, lambda number: self._head(FLOOD, number), saturation)
            time.sleep(self.plan["wait"] + saturation["drain"])

    def _saturate_back(self, saturation: dict[str, Any]) -> dict[str, float | None]:
        if saturation["transport"] == "tcp":
            return {"rate": self._stream(BACK, saturation["seconds"])}
        arrived = Flood()
        request = json.dumps(saturation).encode()
        for _ in range(ATTEMPTS):
            self._send(self._head(REQUEST) + request)
            until = time.monotonic() + max(ASK_AGAIN, self.plan["wait"])
            while time.monotonic() < until:
                for kind, _, _, sent, data in self._received(until):
                    if kind == FLOOD:
                        arrived.add(sent, len(data))
                        until = time.monotonic() + self.plan["wait"] + saturation["drain"]
            if arrived.size:
                break
        return arrived.result()

    def _stream(self, direction: int, seconds: float) -> float | None:
        try:
            with socket.create_connection(self.far, timeout=10) as connection:
                connection.sendall(STREAM_HEAD.pack(self._token, self._identity, direction, seconds))
                if direction == BACK:
                    return drain(connection)
                stream(connection, seconds)
                connection.recv(1)  # the responder hangs up when it has read everything
        except OSError:
            return None
        return None


def respond(address: str) -> None:
    """Serve on `address` until standard input ends; one line on standard output says where and to whom."""
    responder = Responder(address)
    print(json.dumps({"event": "ready", "port": responder.port, "token": responder.token.hex()}), flush=True)
    responder.serve(sys.stdin.fileno())
    responder.close()


def probe(address: str, port: int, token: str, plan: dict[str, Any]) -> None:
    """Measure, and print the measurement as one JSON object."""
    near = Probe(address, port, bytes.fromhex(token), plan)
    print(json.dumps(near.run()), flush=True)
    near.close()
