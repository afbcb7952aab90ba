"""Which run of a sweep goes to which host. Pure."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

TRIES = 3
"""How often a run is begun that ends without a result, because its host was lost or could not carry it out."""


@dataclass
class _Host:
    places: int
    busy: set[int] = field(default_factory=set)

    @property
    def free(self) -> int:
        return self.places - len(self.busy)


class Sharing:
    """The runs, by number, that wait and that are under way; and the hosts that are there."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._waiting: deque[int] = deque()
        self._tries: Counter[int] = Counter()
        self._avoided: dict[int, str] = {}

    @property
    def hosts(self) -> list[str]:
        """The hosts that are there."""
        return sorted(self._hosts)

    @property
    def waiting(self) -> int:
        """How many runs wait."""
        return len(self._waiting)

    @property
    def wants(self) -> bool:
        """Whether a host has a place for which no run waits."""
        return sum(each.free for each in self._hosts.values()) > len(self._waiting)

    def join(self, host: str, places: int) -> None:
        """A host is there, which carries out so many runs at once."""
        self._hosts[host] = _Host(places)

    def leave(self, host: str) -> None:
        """A host is there no more. What becomes of its runs, `again` decides."""
        self._hosts.pop(host, None)

    def add(self, run: int) -> None:
        self._waiting.append(run)

    def take(self) -> tuple[int, str] | None:
        """The next run, and the host that is to carry it out: the one with most free places. None if no run waits, or
        no host has a place."""
        if not self._waiting:
            return None
        free = [name for name in self.hosts if self._hosts[name].free > 0]
        if not free:
            return None
        run = self._waiting.popleft()
        others = [name for name in free if name != self._avoided.get(run)]
        host = max(others or free, key=lambda name: self._hosts[name].free)
        self._hosts[host].busy.add(run)
        self._tries[run] += 1
        return run, host

    def done(self, run: int, host: str) -> None:
        """A run is no longer carried out on a host."""
        if host in self._hosts:
            self._hosts[host].busy.discard(run)

    def again(self, run: int, host: str) -> bool:
        """A run ended on a host without a result. Whether it is tried again: then it waits, before all others, and goes
        to another host if one has a place."""
        self.done(run, host)
        if self._tries[run] >= TRIES:
            return False
        self._avoided[run] = host
        self._waiting.appendleft(run)
        return True
