"""Both ends of a measurement over links of `netem.impair`, on a clock of their own: every time in it is exact."""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import math
import os
import select
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from netem.impair import Impairment
from netem.measurement import endpoints
from netem.measurement.endpoints import Probe, Responder, main, probe_arguments, respond_arguments
from netem.measurement.probe_plan import Measurement, ProbePlan, Saturation, plan_probe
from netem.measurement.tally import UDP_HEADERS
from netem.profile import LinkProfile

WALL = 1_700_000_000.0  # time.time() when the clock of the tests is at 0
NEAR = ("10.0.0.1", 4000)
TRAIN = ProbePlan(count=20, spacing=0.01, size=40, wait=0.1, forward=None, back=None)
UDP = Saturation(transport="udp", offer=8e6, seconds=0.5, size=958, window=0, drain=0.125, queue=0.125, fills=True)
THERE = LinkProfile(latency=0.02)
BACK = LinkProfile(latency=0.01)


class Clock:
    """Stands in for the modules `time` and `select`: whoever waits lets the events happen that are due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), event))

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return WALL + self.now

    def sleep(self, seconds: float) -> None:
        self.wait(seconds, lambda: False)

    def select(self, reading: Sequence[Any], writing: Sequence[Any], _: object, timeout: float) -> Any:
        if writing:
            self.sleep(timeout)
            return [], writing, []
        (end,) = reading
        self.wait(timeout, lambda: bool(end.arrived))
        return [end] if end.arrived else [], [], []

    def wait(self, seconds: float, reached: Callable[[], bool]) -> None:
        until = self.now + seconds
        while not reached():
            if not self._events or self._events[0][0] > until:
                self.now = until
                return
            time, _, event = heapq.heappop(self._events)
            self.now = max(self.now, time)
            event()


class End:
    """The datagram socket of an end. What it sends crosses ``link`` to ``other``, unless ``loses`` says that it does
    not; ``sent`` has the times and datagrams."""

    def __init__(self, clock: Clock, link: LinkProfile) -> None:
        self.arrived: deque[tuple[bytes, float]] = deque()
        self.sent: list[tuple[float, bytes]] = []
        self.loses: Callable[[bytes], bool] = lambda data: False
        self.receive: Callable[[bytes, float], None] = lambda data, at: self.arrived.append((data, at))
        self.other = self
        self._clock = clock
        self._link = Impairment(link, seed=1)

    def send(self, data: bytes) -> None:
        self.sent.append((self._clock.now, data))
        if self.loses(data):
            return
        for arrival, _ in self._link.offer(self._clock.now, len(data) + UDP_HEADERS):
            self._clock.at(arrival, lambda at=arrival: self.other.receive(data, WALL + at))  # type: ignore[misc]

    def sendto(self, data: bytes, address: tuple[str, int]) -> None:
        assert address == NEAR
        self.send(data)

    def recvmsg(self, size: int, ancillary: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, tuple[str, int]]:
        data, at = self.arrived.popleft()
        seconds = math.floor(at)
        stamp = endpoints.TIMESPEC.pack(seconds, round((at - seconds) * 1e9))
        return data, [(0, 0, b""), (socket.SOL_SOCKET, endpoints.SO_TIMESTAMPNS, stamp)], 0, NEAR

    def close(self) -> None:
        """Nothing is open."""


class Link:
    """A probe and a responder; ``near`` and ``far`` are their sockets. The responder takes ``held`` s until it handles
    a datagram, and floods without a process of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, there: LinkProfile = THERE, back: LinkProfile = BACK) -> None:
        self.clock = Clock()
        self.near = End(self.clock, there)
        self.far = End(self.clock, back)
        self.near.other = self.far
        self.far.other = self.near
        self.far.receive = self._handle
        self.held = 0.0
        self.requests: list[float] = []
        self.responder = Responder("127.0.0.1")
        self.responder.close()
        self.responder.datagrams = self.far  # type: ignore[assignment]
        monkeypatch.setattr(self.responder, "_flood", self._flood)
        monkeypatch.setattr(endpoints, "time", self.clock)
        monkeypatch.setattr(endpoints, "select", self.clock)

    def measure(self, plan: ProbePlan) -> Measurement:
        self.probe = Probe("127.0.0.1", self.responder.port, self.responder.token, asdict(plan))
        assert not self.probe._socket.getblocking()
        self.probe.close()
        self.probe._socket = self.near  # type: ignore[assignment]
        return Measurement.from_mapping(self.probe.run())

    def sent(self, end: End, kind: int) -> list[tuple[float, bytes]]:
        """The times and datagrams of a kind that an end has sent."""
        return [(at, data) for at, data in end.sent if data[8] == kind]

    def _handle(self, data: bytes, at: float) -> None:
        later = self.clock.now + self.held
        self.clock.at(later, lambda: self.responder._datagram(data, NEAR, at))

    def _flood(self, identity: int, sender: tuple[str, int], saturation: dict[str, Any]) -> None:
        self.requests.append(self.clock.now)
        token = self.responder.token
        filler = bytes(saturation["size"] - endpoints.HEADER.size)

        def send(number: int) -> None:
            header = endpoints.HEADER.pack(token, endpoints.FLOOD, identity, number, 0, self.clock.time())
            self.far.sendto(header + filler, sender)

        for number, due in enumerate(endpoints.times_of(saturation)):
            self.clock.at(self.clock.now + due, lambda number=number: send(number))  # type: ignore[misc]


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    return Link(monkeypatch)


def is_one_of(*kinds: int) -> Callable[[bytes], bool]:
    return lambda data: data[8] in kinds


def numbered(*numbers: int) -> Callable[[bytes], bool]:
    """Whether a datagram of the train has one of these numbers, which stand behind token, kind and session."""
    return lambda data: data[8] in (endpoints.PROBE, endpoints.ECHO) and int.from_bytes(data[13:17], "big") in numbers


class TestTrain:
    def test_delays_are_those_of_the_link(self, link: Link) -> None:
        found = link.measure(TRAIN)
        assert (found.rtt_median, found.rtt_p99) == pytest.approx((0.03, 0.03), abs=1e-6)
        assert (found.forward.delay, found.back.delay) == pytest.approx((0.02, 0.01), abs=1e-6)
        assert (found.rtt_samples, found.late) == (20, 0.0)
        for way in (found.forward, found.back):
            assert (way.sent, way.received, way.bursts, way.duplicated, way.reordered) == (20, 20, 0, 0, 0)
            assert (way.rate, way.queue_delay, way.bytes) == (None, None, 0)
        # 20 probes 10 ms apart, the wait, and a question with its answer.
        assert link.clock.now == pytest.approx(20 * 0.01 + 0.1 + 0.03)

    def test_probes_are_numbered_datagrams_at_their_spacing(self, link: Link) -> None:
        link.measure(TRAIN)
        sent = link.sent(link.near, endpoints.PROBE)
        assert [at for at, _ in sent] == pytest.approx([0.01 * number for number in range(20)])
        assert [endpoints.HEADER.unpack_from(data)[3] for _, data in sent] == list(range(20))
        assert {len(data) for _, data in link.near.sent[:20] + link.far.sent[:20]} == {40}

    def test_a_busy_host_sends_no_burst(self, link: Link) -> None:
        """The probe of 0.05 s leaves 25 ms late: the next one half of the spacing later, the others in their pace."""
        link.clock.at(0.045, lambda: link.clock.sleep(0.03))
        link.measure(TRAIN)
        times = [at for at, _ in link.sent(link.near, endpoints.PROBE)]
        assert times[4:10] == pytest.approx([0.04, 0.075, 0.08, 0.09, 0.1, 0.11])
        assert times[-1] == pytest.approx(0.21)

    def test_a_busy_responder_adds_nothing_to_the_round_trip(self, link: Link) -> None:
        link.held = 0.004
        found = link.measure(TRAIN)
        assert found.rtt_median == pytest.approx(0.03, abs=1e-6)
        assert (found.forward.delay, found.back.delay) == pytest.approx((0.02, 0.01), abs=1e-6)

    def test_each_direction_counts_its_own_losses(self, link: Link) -> None:
        """Probes 3, 4 and 10 are lost on the way there, the echoes of 7 and 8 on the way back."""
        link.near.loses = numbered(3, 4, 10)
        link.far.loses = numbered(7, 8)
        found = link.measure(TRAIN)
        assert (found.forward.sent, found.forward.received, found.forward.bursts) == (20, 17, 2)
        assert (found.back.sent, found.back.received, found.back.bursts) == (17, 15, 1)
        assert found.rtt_samples == 15

    def test_each_direction_counts_its_own_duplicates(self, monkeypatch: pytest.MonkeyPatch) -> None:
        link = Link(monkeypatch, there=LinkProfile(duplicate=1.0))
        found = link.measure(TRAIN)
        assert (found.forward.received, found.forward.duplicated) == (20, 20)
        assert (found.back.sent, found.back.received, found.back.duplicated) == (40, 40, 0)

    def test_median_and_99th_percentile_of_the_echoes(self, link: Link) -> None:
        """Of 200, the last 100 take 5 ms longer, and the last two another 5 ms."""
        usual = link.far.receive

        def slower(data: bytes, at: float) -> None:
            number = endpoints.HEADER.unpack_from(data)[3]
            more = 0.005 * (number >= 100) + 0.005 * (number >= 198)
            link.clock.at(link.clock.now + more, lambda: usual(data, WALL + link.clock.now))

        link.far.receive = slower
        found = link.measure(replace(TRAIN, count=200, spacing=0.006))
        assert (found.rtt_median, found.rtt_p99) == pytest.approx((0.035, 0.04), abs=1e-6)

    def test_nothing_comes_back(self, link: Link) -> None:
        link.far.loses = is_one_of(endpoints.ECHO)
        found = link.measure(TRAIN)
        assert (found.rtt_median, found.rtt_p99, found.rtt_samples) == (None, None, 0)
        assert (found.forward.received, found.back.sent, found.back.received) == (20, 20, 0)
        assert found.back.delay is None

    def test_nothing_arrives(self, link: Link) -> None:
        link.near.loses = is_one_of(endpoints.PROBE)
        found = link.measure(TRAIN)
        assert (found.forward.sent, found.forward.received, found.forward.delay) == (20, 0, None)
        assert (found.back.sent, found.back.received) == (0, 0)

    def test_a_full_queue_of_this_host_is_waited_for_and_no_listener_is_a_loss(
        self, link: Link, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first probe waits for a second, then no one listens. The next one leaves half of the spacing later."""
        errors = iter([BlockingIOError(), ConnectionRefusedError()])
        usual = link.near.send

        def send(data: bytes) -> None:
            for error in errors:
                raise error
            usual(data)

        monkeypatch.setattr(link.near, "send", send)
        found = link.measure(TRAIN)
        assert (found.forward.received, found.forward.bursts) == (19, 1)
        assert link.near.sent[0][0] == pytest.approx(1.005)

    def test_errors_in_place_of_a_datagram_are_passed_over(self, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
        errors = iter([BlockingIOError(), ConnectionRefusedError()])
        usual = link.near.recvmsg

        def recvmsg(size: int, ancillary: int) -> Any:
            for error in errors:
                raise error
            return usual(size, ancillary)

        monkeypatch.setattr(link.near, "recvmsg", recvmsg)
        assert link.measure(TRAIN).rtt_samples == 20

    def test_without_a_stamp_of_the_kernel_the_clock_is_read(self, link: Link) -> None:
        link.clock.now = 3.0
        unstamped = SimpleNamespace(recvmsg=lambda size, ancillary: (b"data", [(0, 0, b"")], 0, NEAR))
        assert endpoints.receive(unstamped) == (b"data", NEAR, WALL + 3.0)  # type: ignore[arg-type]

    def test_a_datagram_of_another_probe_or_session_counts_nowhere(self, link: Link) -> None:
        token = link.responder.token
        for stray in (b"x" * 29, b"x" * 28, endpoints.HEADER.pack(bytes(8), endpoints.PROBE, 1, 0, 0, 0.0)):
            link.clock.at(0.0, lambda stray=stray: link.far.receive(stray, WALL))  # type: ignore[misc]
        for wrong in (endpoints.HEADER.pack(token, endpoints.ECHO, 1, 0, 0, 0.0), b"x" * 37):
            link.clock.at(0.0, lambda wrong=wrong: link.near.receive(wrong + bytes(8), WALL))  # type: ignore[misc]
        found = link.measure(TRAIN)
        assert (found.rtt_samples, found.back.received, found.back.duplicated) == (20, 20, 0)
        assert list(link.responder._sessions) == [link.probe._identity]


class TestQuestions:
    @pytest.mark.parametrize(("wait", "pause"), [(0.02, 0.05), (0.2, 0.2)])
    def test_a_question_is_repeated_twenty_times(self, link: Link, wait: float, pause: float) -> None:
        link.far.loses = is_one_of(endpoints.ANSWER)
        found = link.measure(replace(TRAIN, wait=wait))
        times = [at for at, _ in link.sent(link.near, endpoints.ASK)]
        assert times == pytest.approx([0.2 + wait + number * pause for number in range(20)])
        assert (found.forward.sent, found.forward.received) == (20, None)
        assert (found.back.sent, found.back.received) == (0, None)
        assert found.rtt_samples == 20

    def test_the_first_answer_suffices(self, link: Link) -> None:
        lost = itertools.count()
        link.far.loses = lambda data: data[8] == endpoints.ANSWER and next(lost) < 3
        assert link.measure(TRAIN).forward.received == 20
        assert len(link.sent(link.near, endpoints.ASK)) == 4

    def test_without_an_answer_nothing_is_saturated(self, link: Link) -> None:
        link.far.loses = is_one_of(endpoints.ANSWER)
        link.measure(replace(TRAIN, forward=UDP, back=UDP))
        assert not link.sent(link.near, endpoints.FLOOD)
        assert not link.requests

    def test_an_answer_before_the_saturation_counts_if_there_is_none_after_it(self, link: Link) -> None:
        answers = itertools.count()
        link.far.loses = lambda data: data[8] == endpoints.ANSWER and next(answers) > 0
        found = link.measure(replace(TRAIN, forward=UDP))
        assert (found.forward.received, found.forward.rate) == (20, None)


class TestSaturation:
    """8 Mbit/s of datagrams of 1,000 bytes with headers: one a millisecond, 500 of them."""

    def test_datagrams_at_the_offered_rate_show_the_rate_of_the_link(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """4 Mbit/s carry half of them: the last of 500, sent at 0.499 s, waits for 0.5 s. The buffer holds them."""
        link = Link(monkeypatch, there=LinkProfile(latency=0.02, rate=4e6, buffer_bytes=1_000_000))
        found = link.measure(replace(TRAIN, forward=replace(UDP, drain=0.7)))
        floods = link.sent(link.near, endpoints.FLOOD)
        start = floods[0][0]
        assert [at - start for at, _ in floods] == pytest.approx([0.001 * number for number in range(500)])
        assert {len(data) for _, data in floods} == {958}
        assert found.forward.rate == pytest.approx(4e6, rel=1e-5)
        assert found.forward.loaded == pytest.approx(4e6, rel=1e-5)
        assert found.forward.queue_delay == pytest.approx(0.499, abs=1e-5)
        assert found.forward.bytes == 500_000
        assert found.forward.first == pytest.approx(WALL + start + 0.002 + 0.02, abs=1e-6)
        assert found.forward.last == pytest.approx(WALL + start + 1.0 + 0.02, abs=1e-6)
        # The second question waits for the last echo and for the queue.
        again = link.sent(link.near, endpoints.ASK)[-1][0]
        assert again == pytest.approx(floods[-1][0] + 0.1 + 0.7)

    def test_the_rate_back_is_measured_until_the_last_datagram(self, monkeypatch: pytest.MonkeyPatch) -> None:
        link = Link(monkeypatch, back=LinkProfile(latency=0.01, rate=4e6, buffer_bytes=1_000_000))
        found = link.measure(replace(TRAIN, back=replace(UDP, drain=0.7)))
        assert found.back.rate == pytest.approx(4e6, rel=1e-5)
        assert found.back.queue_delay == pytest.approx(0.499, abs=1e-5)
        assert found.back.bytes == 500_000
        assert len(link.requests) == 1
        assert link.clock.now == pytest.approx(link.requests[0] + 1.0 + 0.01)  # it does not wait any longer
        assert (found.forward.received, found.back.received) == (20, 20)

    def test_after_a_loss_it_waits_for_what_may_still_wait_in_the_queue(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last datagram that arrives is number 489. Then 10 are unsent, for 10 ms, and the queue may have 125 ms
        more than this one has waited; the answer may take 0.1 s."""
        link = Link(monkeypatch)
        link.far.loses = lambda data: data[8] == endpoints.FLOOD and int.from_bytes(data[13:17], "big") >= 490
        found = link.measure(replace(TRAIN, back=UDP))
        assert found.back.bytes == 490_000
        assert len(link.requests) == 1
        assert link.clock.now == pytest.approx(link.requests[0] + 0.489 + 0.01 + 0.01 + 0.125 + 0.1, abs=1e-6)

    def test_what_has_waited_longer_than_the_queue_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """At 4 Mbit/s, number 489 arrives after 490 x 2 ms, when all were sent, and has waited longer than 125 ms."""
        link = Link(monkeypatch, back=LinkProfile(latency=0.01, rate=4e6, buffer_bytes=1_000_000))
        link.far.loses = lambda data: data[8] == endpoints.FLOOD and int.from_bytes(data[13:17], "big") >= 490
        link.measure(replace(TRAIN, back=UDP))
        assert link.clock.now == pytest.approx(link.requests[0] + 0.98 + 0.01 + 0.01 + 0.1, abs=1e-6)

    @pytest.mark.parametrize(("wait", "pause"), [(0.04, 0.05), (0.1, 0.1)])
    def test_a_request_is_repeated_twenty_times(self, link: Link, wait: float, pause: float) -> None:
        link.near.loses = is_one_of(endpoints.REQUEST)
        found = link.measure(replace(TRAIN, back=UDP, wait=wait))
        times = [at for at, _ in link.sent(link.near, endpoints.REQUEST)]
        assert times == pytest.approx([times[0] + number * pause for number in range(20)])
        assert (found.back.rate, found.back.received) == (None, 20)

    def test_a_request_behind_datagrams_is_given_their_time(self, link: Link) -> None:
        """In both directions, it follows the datagrams at once, and may wait behind them for 125 ms."""
        link.near.loses = is_one_of(endpoints.REQUEST)
        link.measure(replace(TRAIN, forward=UDP, back=UDP))
        times = [at for at, _ in link.sent(link.near, endpoints.REQUEST)]
        floods = link.sent(link.near, endpoints.FLOOD)
        assert times == pytest.approx([floods[-1][0] + number * 0.225 for number in range(20)])

    def test_a_repeated_request_floods_once(self, link: Link) -> None:
        lost = itertools.count()
        link.far.loses = lambda data: data[8] == endpoints.FLOOD and next(lost) < 300
        found = link.measure(replace(TRAIN, back=UDP))
        assert len(link.sent(link.near, endpoints.REQUEST)) > 1
        assert len(link.requests) == 1
        assert found.back.bytes == 200_000

    def test_it_starts_on_time_or_reports_how_late_it_was(self, link: Link) -> None:
        late = link.measure(replace(TRAIN, start=WALL + 0.2, forward=UDP))
        # The train and the question take 0.33 s.
        assert late.late == pytest.approx(0.13, abs=1e-6)
        link.near.sent.clear()
        punctual = link.measure(replace(TRAIN, start=link.clock.time() + 1.0, forward=UDP))
        assert punctual.late == 0.0
        first = link.sent(link.near, endpoints.FLOOD)[0][0] - link.sent(link.near, endpoints.PROBE)[0][0]
        assert first == pytest.approx(1.0, abs=1e-6)

    def test_without_a_saturation_the_train_starts_then(self, link: Link) -> None:
        link.measure(replace(TRAIN, start=WALL + 0.5))
        assert link.near.sent[0][0] == pytest.approx(0.5)


class TestResponder:
    def test_it_floods_the_probe_as_requested(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock()
        monkeypatch.setattr(endpoints, "time", clock)
        responder = Responder("127.0.0.1")
        responder.close()
        responder.datagrams = End(clock, LinkProfile())  # type: ignore[assignment]
        responder._flood(7, NEAR, asdict(replace(UDP, seconds=0.0035)))
        sent = [(at, endpoints.HEADER.unpack_from(data), len(data)) for at, data in responder.datagrams.sent]  # type: ignore[attr-defined]
        token = responder.token
        expected = []
        for number in range(3):
            at = number * 0.001
            expected.append((at, (token, endpoints.FLOOD, 7, number, 0, WALL + at), 958))
        assert sent == expected

    def test_each_has_a_port(self) -> None:
        one, other = Responder("127.0.0.1"), Responder("127.0.0.1")
        assert one.port != other.port
        one.close()
        other.close()

    def test_a_port_that_tcp_uses_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        usual = socket.create_server
        errors = iter([errno.EADDRINUSE, errno.EADDRINUSE, None, errno.EACCES])
        tried: list[int] = []

        def create_server(address: tuple[str, int]) -> socket.socket:
            tried.append(address[1])
            number = next(errors)
            if number is not None:
                raise OSError(number, "")
            return usual(address)

        monkeypatch.setattr(socket, "create_server", create_server)
        responder = Responder("127.0.0.1")
        assert tried[2:] == [responder.port]
        assert responder.streams.getsockname()[1] == responder.port
        responder.close()
        with pytest.raises(PermissionError):
            Responder("127.0.0.1")

    def test_it_remembers_the_latest_sessions(self) -> None:
        responder = Responder("127.0.0.1")
        responder.close()
        for identity in range(70):
            responder._session(identity)["requested"] = True
        assert list(responder._sessions) == list(range(6, 70))  # 64
        assert responder._session(69)["requested"]
        assert not responder._session(0)["requested"]


@contextmanager
def serving() -> Iterator[Responder]:
    """A responder on loopback."""
    responder = Responder("127.0.0.1")
    reading, writing = os.pipe()
    thread = Thread(target=responder.serve, args=(reading,))
    thread.start()
    try:
        yield responder
    finally:
        os.close(writing)
        thread.join()
        os.close(reading)
        responder.close()


def test_both_commands_print_a_line_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The orchestrator reads it while the responder continues, until its input ends."""
    input_read, input_write = os.pipe()
    output_read, output_write = os.pipe()
    monkeypatch.setattr("sys.stdin", os.fdopen(input_read))
    monkeypatch.setattr("sys.stdout", os.fdopen(output_write, "w"))
    thread = Thread(target=endpoints.respond, args=("127.0.0.1",))
    thread.start()
    with os.fdopen(output_read) as output:

        def line() -> dict[str, Any]:
            assert select.select([output], [], [], 10.0)[0]
            printed: dict[str, Any] = json.loads(output.readline())
            return printed

        try:
            ready = line()
            plan = replace(TRAIN, count=3, wait=0.02)
            endpoints.probe("127.0.0.1", ready["port"], ready["token"], asdict(plan))
            found = Measurement.from_mapping(line())
        finally:
            os.close(input_write)
            thread.join()
            sys.stdin.close()
            sys.stdout.close()
    assert ready["event"] == "ready"
    assert found.rtt_samples == 3


class Connection:
    """The TCP connection of an end; each call takes 0.25 s. ``script`` has the sizes that are received."""

    def __init__(self, clock: Clock, script: Sequence[int] = (), segment: int = 1448) -> None:
        self.calls: Counter[object] = Counter()
        self._clock = clock
        self._script: Iterator[int] = iter(script)
        self._segment = segment

    def send(self, data: bytes) -> int:
        self._clock.sleep(0.25)
        self.calls["send", len(data)] += 1
        return len(data)

    def recv_into(self, buffer: bytearray) -> int:
        self._clock.sleep(0.25)
        return next(self._script, 0)

    def settimeout(self, seconds: float) -> None:
        self.calls["timeout", seconds] += 1

    def shutdown(self, how: int) -> None:
        self.calls["shutdown", how] += 1

    def setsockopt(self, *option: int) -> None:
        self.calls[option] += 1

    def getsockopt(self, level: int, name: int) -> int:
        assert (level, name) == (socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        return self._segment


class TestStream:
    def test_it_is_sent_for_so_long_and_then_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock()
        monkeypatch.setattr(endpoints, "time", clock)
        connection = Connection(clock)
        endpoints.stream(connection, 2.0)  # type: ignore[arg-type]
        assert connection.calls == {("timeout", 12.0): 1, ("send", 1 << 16): 8, ("shutdown", socket.SHUT_WR): 1}

    def test_its_rate_counts_headers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """1,448 bytes each 0.25 s are frames of 1,514 bytes: 4 x 8 x 1,514 bit/s."""
        clock = Clock()
        monkeypatch.setattr(endpoints, "time", clock)
        connection = Connection(clock, [1448] * 12)
        assert endpoints.drain(connection, 5000) == pytest.approx(4 * 8 * 1514)  # type: ignore[arg-type]
        assert connection.calls == {(socket.IPPROTO_TCP, 10, 5000): 1}  # <linux/tcp.h>: TCP_WINDOW_CLAMP

    def test_a_stream_over_loopback_in_both_directions(self) -> None:
        """About 0.1 s of each; both ends report a rate, the responder to the question after it."""
        stream = Saturation("tcp", 1e9, 0.05, 0, 1 << 20, 0.0, 0.0, fills=True)
        plan = replace(TRAIN, count=2, wait=0.05, forward=stream, back=stream)
        with serving() as responder:
            measured = Probe("127.0.0.1", responder.port, responder.token, asdict(plan))
            found = Measurement.from_mapping(measured.run())
            measured.close()
        for way in (found.forward, found.back):
            assert way.rate is not None
            assert way.rate > 1e6
            assert way.queue_delay is None

    def test_a_stream_of_another_token_or_of_nothing_is_closed(self) -> None:
        with serving() as responder:
            for head in (endpoints.STREAM_HEAD.pack(bytes(8), 1, endpoints.BACK, 1.0, 1000), b"short"):
                with socket.create_connection(("127.0.0.1", responder.port), 10) as connection:
                    connection.sendall(head)
                    connection.shutdown(socket.SHUT_WR)
                    assert connection.recv(1) == b""
            assert not responder._sessions

    def test_a_probe_without_a_responder_has_no_rate(self) -> None:
        responder = Responder("127.0.0.1")
        responder.close()
        measured = Probe("127.0.0.1", responder.port, responder.token, asdict(TRAIN))
        assert measured._stream(endpoints.BACK, asdict(UDP)) is None
        measured.close()


class TestCommands:
    """The arguments that one function makes and another one reads."""

    def test_the_probe_gets_its_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[object, ...]] = []
        monkeypatch.setattr("netem.measurement.endpoints.probe", lambda *arguments: calls.append(arguments))
        plan = plan_probe(LinkProfile(rate=1e6), LinkProfile())
        main(probe_arguments("10.0.0.2", {"port": 4000, "token": "aa"}, plan))
        assert calls == [("10.0.0.2", 4000, "aa", asdict(plan))]

    def test_the_responder_gets_its_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[str] = []
        monkeypatch.setattr("netem.measurement.endpoints.respond", calls.append)
        main(respond_arguments("10.0.0.2"))
        assert calls == ["10.0.0.2"]

    @pytest.mark.parametrize("missing", ["--address", "--port", "--token", "--plan"])
    def test_no_argument_may_be_left_out(self, missing: str) -> None:
        arguments = probe_arguments("10.0.0.2", {"port": 4000, "token": "aa"}, plan_probe(LinkProfile(), LinkProfile()))
        place = arguments.index(missing)
        for some in (arguments[:place] + arguments[place + 2 :], ["respond"], []):
            with pytest.raises(SystemExit):
                main(some)
