"""Settings of one direction of a link: a frozen, validated LinkProfile.

Attributes are in seconds (durations), bits per second (rates), bytes (sizes) and 0..1 (fractions). The written form
(`from_mapping`) has units:

    {latency: 40ms, jitter: 5ms, distribution: normal, loss: 0.5%, rate: 50mbit, buffer: 50ms,
     duplicate: 0%, corrupt: 0%, reorder: 0%, drop_above: null}

`loss` may be a Gilbert–Elliott chain, ``{gilbert-elliott: {p: 2%, r: 30%}}``; `buffer` is a time at the rate ("50ms")
or a size ("64kb"). `netem.impair` documents how each setting acts on a packet, and in which order. A real link is
``{real: true}`` and has no other setting.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeGuard

from netem import units
from netem.errors import ProfileError, UnitError

ETHERNET = 14
"""Bytes of the header of an Ethernet frame."""

SMALLEST_MTU = 576
"""Bytes. Every IPv4 host accepts a packet of this size (RFC 791), so programs rely on it, and TCP's default segment of
536 bytes fits into it (RFC 9293)."""

LARGEST_MTU = 1500
"""Bytes: that of a node's interface."""

FULL_FRAME = LARGEST_MTU + ETHERNET
"""Bytes of an Ethernet frame with a full 1500-byte packet. Rates count the header but not the checksum."""

LONGEST = 86_400.0
"""Maximum latency, jitter or buffer in seconds: a day."""

FASTEST = 1e15
"""Maximum rate in bits per second."""

DISTRIBUTIONS = ("normal", "uniform", "pareto", "paretonormal")

FRACTIONS = ("duplicate", "corrupt", "reorder")
"""The keys, in addition to loss, with a fraction of packets as their value."""

KEYS = ("latency", "jitter", "distribution", "loss", "rate", "buffer", *FRACTIONS, "drop_above")
"""The keys of the written form."""

_CHAIN = "gilbert-elliott"


@dataclass(frozen=True, kw_only=True)
class GilbertElliott:
    """Loss in bursts: a two-state Markov chain that makes one step per packet.

    p            P(good -> bad) per packet
    r            P(bad -> good) per packet, above 0
    loss_good    loss probability in the good state
    loss_bad     loss probability in the bad state

    Gilbert, "Capacity of a burst-noise channel", Bell System Technical Journal 39 (1960), and Elliott, same journal
    42 (1963); in tc-netem(8) this is ``loss gemodel p r 1-h 1-k`` with 1-h = loss_bad and 1-k = loss_good.
    """

    p: float
    r: float
    loss_good: float = 0.0
    loss_bad: float = 1.0

    def __post_init__(self) -> None:
        for name in ("p", "r", "loss_good", "loss_bad"):
            _check_fraction(f"loss: {_CHAIN}: {name}", getattr(self, name))
        if self.r == 0:
            raise ProfileError(
                f"loss: {_CHAIN}: r must be above 0%, or the first burst would never end; "
                "to cut a link, use a partition"
            )

    @property
    def bad_fraction(self) -> float:
        """Stationary probability of the bad state, p / (p + r)."""
        return self.p / (self.p + self.r)

    @property
    def mean_loss(self) -> float:
        """Stationary loss rate: loss_good + (loss_bad - loss_good) * p / (p + r)."""
        difference = self.loss_bad - self.loss_good
        return self.loss_good + difference * self.bad_fraction

    @property
    def mean_burst(self) -> float:
        """Mean time in the bad state in packets, 1 / r. If loss_bad = 1 and loss_good = 0, the mean loss burst."""
        return 1 / self.r

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read ``{p: 2%, r: 30%, loss_good: 0%, loss_bad: 100%}``; the last two are optional."""
        where = f"loss: {_CHAIN}"
        known = [field.name for field in fields(cls)]
        _check_keys(mapping, known, where)
        for name in ("p", "r"):
            if name not in mapping:
                raise ProfileError(f"{where}: {name} is missing; write {{p: 2%, r: 30%}}")
        settings = {}
        for key, value in mapping.items():
            settings[key] = _parse(f"{where}: {key}", value, units.parse_fraction)
        return cls(**settings)

    def to_mapping(self) -> dict[str, Any]:
        mapping = {}
        for field in fields(self):
            value = getattr(self, field.name)
            mapping[field.name] = units.format_fraction(value)
        return mapping


@dataclass(frozen=True, kw_only=True)
class LinkProfile:
    """One direction of a link. The default changes nothing: no delay, no loss, no rate limit.

    latency        seconds, one way
    jitter         seconds; `distribution` defines its meaning. It may exceed the latency: negative delays become 0,
                   which raises the mean
    distribution   "normal" (jitter is the standard deviation), "uniform" (latency ± jitter), "pareto" and
                   "paretonormal" (heavy tails)
    loss           fraction of packets lost independently, or a GilbertElliott chain
    rate           bits per second, at least 1; None is no limit
    buffer         size of the rate queue, in seconds at the rate; a packet that does not fit is dropped
    buffer_bytes   the same in bytes. At most one of the two, and only with a rate. Default: see `buffer_limit`
    duplicate      fraction of packets sent twice
    corrupt        fraction of packets in which one bit is flipped
    reorder        fraction of packets that overtake earlier ones; needs a latency
    drop_above     IP packets of more than so many bytes vanish without a message to the sender; None: none
    silence        seconds from now on in which nothing leaves the rate queue; packets wait. Only schedules set it
    real           the network below is the link: an engine treats its packets as those of an unimpaired link, but
                   no property of it is configured, so no other setting is allowed

    Raises ProfileError, which names the key and the allowed values.
    """

    latency: float = 0.0
    jitter: float = 0.0
    distribution: str = "normal"
    loss: float | GilbertElliott = 0.0
    rate: float | None = None
    buffer: float | None = None
    buffer_bytes: int | None = None
    duplicate: float = 0.0
    corrupt: float = 0.0
    reorder: float = 0.0
    drop_above: int | None = None
    silence: float = 0.0
    real: bool = False

    def __post_init__(self) -> None:
        for name in ("latency", "jitter", "silence"):
            _check_number(name, getattr(self, name), "seconds", LONGEST)
        for name in FRACTIONS:
            _check_fraction(name, getattr(self, name))
        if not isinstance(self.loss, GilbertElliott):
            _check_fraction("loss", self.loss)
        if self.distribution not in DISTRIBUTIONS:
            known = ", ".join(DISTRIBUTIONS)
            raise ProfileError(f"distribution: {units.shown(self.distribution)} is not one of {known}")
        self._check_rate_and_buffer()
        self._check_drop_above()
        if not isinstance(self.real, bool):
            raise ProfileError(f"real: must be true or false, not {units.shown(self.real)}")
        if self.real:
            configured = [key for key in self.to_mapping() if key != "real"]
            if configured:
                raise ProfileError(f"{configured[0]}: a real link is as it is and takes no settings")
        if self.reorder and not self.latency:
            raise ProfileError("reorder: needs a latency: a packet can only overtake others that are on their way")

    def _check_rate_and_buffer(self) -> None:
        if self.rate is not None:
            _check_number("rate", self.rate, "bits per second", FASTEST)
            if self.rate < 1:
                remedy = "leave it out for no limit, or use a partition to cut a link"
                raise ProfileError(f"rate: must be at least 1bit; {remedy}")
        has_time = self.buffer is not None
        if has_time:
            _check_number("buffer", self.buffer, "seconds", LONGEST)
        size = self.buffer_bytes
        has_size = size is not None
        if size is not None and (not isinstance(size, int) or size < 0):
            raise ProfileError(f"buffer: must be a whole number of bytes, 0 or more, not {size!r}")
        if has_time and has_size:
            raise ProfileError("buffer: give a time or a size, not both")
        if self.rate is None and (has_time or has_size):
            raise ProfileError("buffer: needs a rate; without one nothing ever waits")

    def _check_drop_above(self) -> None:
        largest = self.drop_above
        if largest is None:
            return
        is_whole = isinstance(largest, int) and not isinstance(largest, bool)
        if not is_whole or not SMALLEST_MTU <= largest <= LARGEST_MTU:
            raise ProfileError(
                f"drop_above: must be a whole number of bytes from {SMALLEST_MTU} to {LARGEST_MTU}, or null for no "
                f"limit, not {units.shown(largest)}"
            )

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read the written form. Raises ProfileError for an unknown key (names the nearest key) or a bad value."""
        return cls(**_typed(mapping))

    def to_mapping(self) -> dict[str, Any]:
        """The written form as plain JSON: ``LinkProfile.from_mapping(p.to_mapping()) == p`` exactly.

        Settings that have their default are left out.
        """
        mapping: dict[str, Any] = {}
        for field in fields(self):
            name = field.name
            value = getattr(self, name)
            if value == field.default:
                continue
            key = "buffer" if name == "buffer_bytes" else name
            mapping[key] = _FORMATS[name](value)
        return mapping

    def merged(
        self,
        mapping: Mapping[str, Any] | None = None,
        /,
        **values: Any,
    ) -> Self:
        """This profile with some settings replaced: a link's own settings over its class, or a degrade fault.

        `mapping` is in the written form. ``values`` are typed attributes as in the constructor; they override
        `mapping`. None (null in the written form) removes a rate, a buffer or `drop_above`. None resets any other typed
        attribute to its default. A new buffer replaces the old one, whether time or size. Removing the rate also
        removes the buffer.
        """
        changes = _typed(mapping or {}) | values
        defaults = {field.name: field.default for field in fields(self)}
        _check_keys(changes, list(defaults), "the profile")
        for name, value in changes.items():
            if value is None:
                changes[name] = defaults[name]
        removes_rate = "rate" in changes and changes["rate"] is None
        if removes_rate or "buffer" in changes or "buffer_bytes" in changes:
            changes.setdefault("buffer", None)
            changes.setdefault("buffer_bytes", None)
        return replace(self, **changes)

    def describe(self) -> str:
        """A readable line: "40ms ±5ms, loss 0.5%, 50mbit"."""
        if self.real:
            return "not shaped"
        parts = []
        written = self.to_mapping()
        if self.latency or self.jitter:
            delay = units.format_duration(self.latency)
            if self.jitter:
                delay += f" ±{written['jitter']}"
                if self.distribution != "normal":
                    delay += f" {self.distribution}"
            parts.append(delay)
        if isinstance(self.loss, GilbertElliott):
            parts.append(f"loss {100 * self.mean_loss:.3g}% in bursts of {self.loss.mean_burst:.3g} packets")
        elif self.loss:
            parts.append(f"loss {written['loss']}")
        if self.rate is not None:
            parts.append(written["rate"])
        for name in ("buffer", *FRACTIONS):
            if name in written:
                parts.append(f"{name} {written[name]}")
        if self.drop_above is not None:
            parts.append(f"drops packets above {self.drop_above} bytes")
        if self.silence:
            parts.append(f"silent for {written['silence']}")
        return ", ".join(parts) or "unimpaired"

    @property
    def mean_loss(self) -> float:
        """The long-run fraction of packets lost at random: without the drops of a full buffer and of large packets."""
        if isinstance(self.loss, GilbertElliott):
            return self.loss.mean_loss
        return self.loss

    @property
    def needs_packet_truth(self) -> bool:
        """Whether the profile acts on single packets. If so, its fractions hold only without segmentation offload.

        A lost or duplicated super-packet of 44 segments is not a lost or duplicated packet, nor is it a large one.
        """
        is_random = self.mean_loss or self.duplicate or self.corrupt or self.reorder
        return bool(is_random) or self.drop_above is not None

    @property
    def buffer_limit(self) -> int | None:
        """Size of the rate queue in bytes, including the frame being sent; None without a rate.

        Default if the profile sets no buffer: 100 ms or twice the latency at the rate, whichever is more (one round
        trip, the rule of thumb for one flow: Villamizar and Song, "High performance TCP in ANSNET", CCR 1994). The
        default is at least 16 full frames, so that a slow link takes TCP's initial window of ten (RFC 6928).
        """
        if self.rate is None:
            return None
        if self.buffer_bytes is not None:
            return self.buffer_bytes
        if self.buffer is not None:
            return round(self.buffer * self.rate / 8)
        seconds = max(0.1, 2 * self.latency)
        size = math.ceil(seconds * self.rate / 8)
        return max(size, 16 * FULL_FRAME)


_PARSERS: dict[str, Callable[[object], float]] = {
    "latency": units.parse_duration,
    "jitter": units.parse_duration,
    "rate": units.parse_rate,
    "silence": units.parse_duration,
    **dict.fromkeys(FRACTIONS, units.parse_fraction),
}


def _format_loss(loss: float | GilbertElliott) -> str | dict[str, Any]:
    if isinstance(loss, GilbertElliott):
        return {_CHAIN: loss.to_mapping()}
    return units.format_fraction(loss)


_FORMATS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("latency", "jitter", "buffer", "silence"), units.format_duration),
    **dict.fromkeys(FRACTIONS, units.format_fraction),
    "distribution": str,
    "loss": _format_loss,
    "rate": units.format_rate,
    "buffer_bytes": units.format_size,
    "drop_above": int,
    "real": bool,
}


def _typed(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments from the written form; only rate, buffer and drop_above may be null."""
    keys = [key for key in mapping if key not in ("real", "silence")]
    _check_keys(keys, KEYS, "the profile")
    typed: dict[str, Any] = {}
    for key, value in mapping.items():
        if key == "buffer":
            typed |= _parse_buffer(value)
        elif key == "loss":
            typed[key] = _parse_loss(value)
        elif key == "rate" and value is None:
            typed[key] = None
        elif key == "drop_above":
            typed[key] = _whole(value)
        elif key in ("distribution", "real"):
            typed[key] = value
        else:
            typed[key] = _parse(key, value, _PARSERS[key])
    return typed


def _parse_loss(value: object) -> float | GilbertElliott:
    if not isinstance(value, Mapping):
        return _parse("loss", value, units.parse_fraction)
    _check_keys(value, (_CHAIN,), "loss")
    chain = value.get(_CHAIN)
    if not isinstance(chain, Mapping):
        raise ProfileError(f"loss: write a fraction such as 1%, or {{{_CHAIN}: {{p: 2%, r: 30%}}}}")
    return GilbertElliott.from_mapping(chain)


def _parse_buffer(value: object) -> dict[str, Any]:
    if value is None:
        return {"buffer": None}
    try:
        return {"buffer": units.parse_duration(value)}
    except UnitError:
        pass
    try:
        return {"buffer_bytes": units.parse_size(value)}
    except UnitError:
        raise ProfileError(
            f"buffer: {units.shown(value)} is neither a time such as 50ms nor a size such as 64kb"
        ) from None


def _whole(value: object) -> Any:
    """The number of a text of digits, as the command line and tables give it; anything else as it is."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


def _parse(where: str, value: object, parser: Callable[[object], float]) -> float:
    try:
        return parser(value)
    except UnitError as error:
        raise ProfileError(f"{where}: {error}") from error


def _check_keys(
    mapping: Iterable[str],
    known: tuple[str, ...] | list[str],
    where: str,
) -> None:
    for key in mapping:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            allowed = ", ".join(known)
            raise ProfileError(f"{where}: unknown key {key!r}; {hint}allowed: {allowed}")


def _check_number(
    name: str,
    value: object,
    unit: str,
    most: float,
) -> None:
    if not _is_number(value) or not math.isfinite(value) or value < 0:
        raise ProfileError(f"{name}: must be a number of {unit}, 0 or more, not {value!r}")
    if value > most:
        written = units.format_rate if unit == "bits per second" else units.format_duration
        raise ProfileError(f"{name}: must be at most {written(most)}, not {written(value)}")


def _check_fraction(name: str, value: object) -> None:
    if not _is_number(value) or not 0 <= value <= 1:
        raise ProfileError(f"{name}: must be between 0 and 1 (0% and 100%), not {value!r}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
