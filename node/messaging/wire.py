"""Messages and their encoding as frames.

Frame 0, the *header*, is a msgpack map: protocol version, kind, sender, round, fields and layout. The *layout* is
packed separately: ``[name, dtype, shape]`` of each tensor. A model's layout is the same in every round, so known layout
bytes are not parsed again. Frame 1, the *body*, holds the tensors' raw bytes in sequence (C order, little endian). Each
tensor starts at a multiple of 8 bytes. The body is absent when there are no tensors. Tensors in single
precision take two bytes per value if the message has a `precision`. They arrive in single precision. Every claim of a
header is checked before memory is allocated for it. No pickle: received bytes are never executed.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import msgpack
import numpy as np
from numpy.typing import NDArray

from node.arrays import as_array
from node.errors import WireError
from node.messaging.finite import not_finite
from node.messaging.precision import SHORT, shortened, widened

PROTOCOL = 2

Buffer = bytes | bytearray | memoryview
Tensor = NDArray[Any]
Tensors = Mapping[str, Tensor]
_Container = TypeVar("_Container")

_ALIGNMENT = 8
_NAMES = (
    "?",
    "u1",
    "i1",
    "<u2",
    "<i2",
    "<u4",
    "<i4",
    "<u8",
    "<i8",
    "<f2",
    "<f4",
    "<f8",
)
_DTYPES = {np.dtype(name).str: np.dtype(name) for name in _NAMES}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_STORED = _DTYPES | SHORT
_SINGLE = np.dtype("<f4")
_HEADER_KEYS = {"protocol", "kind", "sender", "round", "fields", "layout"}
_LAYOUTS = 16  # cached layouts; a node has a few
_REMEMBERED = 1 << 13  # the most bytes of a cached layout
LAST_ROUND = 1_000_000_000  # that the record takes
CONTAINERS = 1 << 14  # lists and maps that one frame may unpack to; one byte of a frame could take 60 of memory
_QUOTED = 200  # characters of received data that an error quotes at most


@dataclass(frozen=True)
class MessageLimits:
    """The limits of a message: bytes of ``body`` and ``header``, characters of ``kind``, number of ``tensors``,
    characters of the ``name`` and ``dimensions`` of each tensor, and ``containers``: lists and maps in a header."""

    body: int = 1 << 30
    header: int = 1 << 18
    kind: int = 64
    tensors: int = 4096
    name: int = 200
    dimensions: int = 8
    containers: int = CONTAINERS


LIMITS = MessageLimits()


@dataclass(frozen=True, eq=False)
class Message:
    """A message between two nodes. ``fields`` are small values of msgpack types; tuples arrive as lists. ``round`` may
    be None. Received ``tensors`` are read-only. ``precision``: that of single-precision tensors in transit, "bf16",
    "fp16", or "" for single precision."""

    kind: str
    sender: str
    round: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    precision: str = ""

    @cached_property
    def not_finite(self) -> str | None:
        """The name of the first tensor that holds NaN or an infinity; None if all are finite. Looked for once: the
        values at the first call count."""
        return not_finite(self.tensors)


@dataclass(frozen=True)
class TensorPlace:
    """The place of a tensor in the body, and its type in the body. ``start`` and ``size`` are in bytes. ``short``: the
    precision in the body of a tensor that is in single precision outside the message."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    size: int
    short: str = ""


_Layout = tuple[tuple[TensorPlace, ...], int]  # the places of tensors, and the size of the body in bytes


@dataclass(frozen=True)
class Header:
    """A header that was read and is within the limits. ``body_size`` is the required size of the body in bytes."""

    kind: str
    sender: str
    round: int | None
    fields: dict[str, Any]
    places: tuple[TensorPlace, ...]
    body_size: int


def encode(message: Message, limits: MessageLimits = LIMITS) -> tuple[bytes, list[memoryview]]:
    """Make the header of a message, and the parts of its body. Tensors that are not `frozen` are copied, so the caller
    may change them immediately.

    WireError if the message exceeds ``limits``, the type of a tensor or field has no encoding, or a value is too large
    for the message's precision.
    """
    arrays = as_arrays(message.tensors)
    header, _ = _pack_header(message, arrays, limits)
    read = read_header(header, limits)
    body: list[memoryview] = []
    for place, array in zip(read.places, arrays.values(), strict=True):
        if place.short:
            stored = _shortened(message, place.name, array)
        else:
            stored = _frozen(array)
        values = np.ascontiguousarray(stored).reshape(-1)
        body.append(values.view(np.uint8).data)
        padding = bytes(-place.size % _ALIGNMENT)
        body.append(memoryview(padding))
    return header, [part for part in body if part]


def handed_over(message: Message, limits: MessageLimits = LIMITS) -> tuple[Message, int]:
    """The message as its receiver would decode it, and the size of its frames in bytes.

    For transports without a wire. Errors as in `encode`. The tensors are copied, unless they are `frozen`.
    """
    constant = frozen(message)
    arrays = constant.tensors
    precision = constant.precision
    header, body_size = _pack_header(constant, arrays, limits)
    kind = constant.kind
    round = constant.round
    long_header = len(header) > limits.header
    long_kind = len(kind) > limits.kind
    if long_header or long_kind or not 0 <= (round or 0) <= LAST_ROUND:
        read_header(header, limits)  # raises the error
    if precision:
        arrays = {}
        for name, tensor in constant.tensors.items():
            if tensor.dtype == _SINGLE:
                short = _shortened(message, name, tensor)
                tensor = widened(short, precision)
            arrays[name] = tensor
        constant = Message(kind, constant.sender, round, constant.fields, arrays)
    if constant.fields:
        read = unpack(header, limits.containers)
        constant = _with(constant, read["fields"], arrays)
    return constant, len(header) + body_size


def frozen(message: Message, owned: bool = False) -> Message:
    """The message with tensors that do not change any more: copies that are read-only. Tensors that are such copies
    already, as in a message that was handed over, are shared.

    With ``owned``, tensors that own their memory become read-only themselves, instead of copies.

    WireError if the type of a tensor has no encoding.
    """
    tensors = message.tensors
    arrays: dict[str, Tensor] = {}
    for name, value in tensors.items():
        array = _as_tensor(name, value)
        arrays[name] = _frozen(array, owned)
    shared = map(operator.is_, arrays.values(), tensors.values())
    if all(shared):
        return message
    return _with(message, message.fields, arrays)


def decode(frames: Sequence[Buffer], limits: MessageLimits = LIMITS) -> Message:
    """Decode the frames of a message. Its tensors are read-only views of frame 1.

    WireError if the frames are not exactly one message within ``limits``.
    """
    if not 1 <= len(frames) <= 2:
        raise WireError(f"a message has one or two frames, not {len(frames)}")
    header = read_header(frames[0], limits)
    if len(frames) == 2:
        frame = frames[1]
    else:
        frame = b""
    body = np.frombuffer(frame, np.uint8)
    return assemble(header, body)


def read_header(frame: Buffer, limits: MessageLimits = LIMITS) -> Header:
    """Read and check frame 0 without the body. WireError says what is wrong with it."""
    if len(frame) > limits.header:
        raise WireError(f"header of {len(frame)} bytes; at most {limits.header}: send bulk data as tensors")
    value = unpack(frame, limits.containers)
    if set(value) != _HEADER_KEYS:
        keys = sorted(map(str, value))
        raise WireError(f"header has the keys {quoted(keys)}, not {sorted(_HEADER_KEYS)}")
    if value["protocol"] != PROTOCOL:
        raise WireError(f"message of protocol {quoted(value['protocol'])}; this node speaks {PROTOCOL}")
    kind = value["kind"]
    sender = value["sender"]
    round = value["round"]
    fields = value["fields"]
    for text in (kind, sender):
        if not isinstance(text, str) or not text:
            raise WireError("kind and sender must be text")
    if len(kind) > limits.kind:
        raise WireError(f"kind of {len(kind)} characters; at most {limits.kind}")
    if round is not None:
        whole = type(round) is int
        if not whole or not 0 <= round <= LAST_ROUND:
            raise WireError(f"round {quoted(round)} is not a whole number from 0 to {LAST_ROUND}")
    if not isinstance(fields, dict):
        raise WireError("fields must be a map with text keys")
    for key in fields:
        if not isinstance(key, str):
            raise WireError("fields must be a map with text keys")
    layout = value["layout"]
    if not isinstance(layout, bytes):
        raise WireError("the layout must be bytes")
    if len(layout) <= _REMEMBERED:
        places, body_size = _remembered_layout(layout, limits)
    else:
        places, body_size = _new_layout(layout, limits)
    return Header(kind, sender, round, fields, places, body_size)


def unpack(frame: Buffer, containers: int = CONTAINERS) -> dict[str, Any]:
    """Read one msgpack map. WireError if the bytes are no map, or hold more than ``containers`` lists and maps."""
    value = _unpacked(frame, containers)
    if not isinstance(value, dict):
        raise WireError(f"expected a map, got {type(value).__name__}")
    return value


def quoted(value: object) -> str:
    """Received data for an error message, cut to `_QUOTED` characters."""
    text = repr(value)
    if len(text) <= _QUOTED:
        return text
    return text[:_QUOTED] + "…"


def _unpacked(frame: Buffer, containers: int) -> Any:
    numbers = itertools.count(1)

    def counted(container: _Container) -> _Container:
        if next(numbers) > containers:
            raise WireError(f"more than {containers} lists and maps in one frame")
        return container

    try:
        return msgpack.unpackb(
            frame,
            strict_map_key=False,
            list_hook=counted,
            object_hook=counted,
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise WireError("not msgpack") from error


def assemble(header: Header, body: NDArray[np.uint8]) -> Message:
    """Make the message from a checked header and its body, which becomes read-only. WireError if the body has another
    size."""
    if len(body) != header.body_size:
        raise WireError(f"message {header.kind!r}: body of {len(body)} bytes; its header says {header.body_size}")
    body.flags.writeable = False
    tensors: dict[str, Tensor] = {}
    for place in header.places:
        end = place.start + place.size
        values = body[place.start : end].view(place.dtype)
        tensor = values.reshape(place.shape)
        if place.short:
            tensor = widened(tensor, place.short)
        tensors[place.name] = tensor
    return Message(header.kind, header.sender, header.round, header.fields, tensors)


def _shortened(message: Message, name: str, values: Tensor) -> Tensor:
    try:
        return shortened(values, message.precision)
    except OverflowError as error:
        raise WireError(f"message {message.kind!r}, tensor {name!r}: {error}: set compute.precision to bf16") from None


def _with(
    message: Message,
    fields: dict[str, Any],
    tensors: dict[str, Tensor],
) -> Message:
    """The message with other fields, and with the same values of its tensors in ``tensors``, so that its cached
    properties are still valid."""
    other = object.__new__(Message)
    vars(other).update(vars(message), fields=fields, tensors=tensors)
    return other


def _frozen(array: Tensor, owned: bool = False) -> Tensor:
    if owned and array.base is None:
        array.flags.writeable = False
    if array.base is None:
        memory = array
    else:
        memory = array.base
    if isinstance(memory, np.ndarray) and memory.base is None:
        writeable = array.flags.writeable or memory.flags.writeable
        if not writeable:
            return array
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy


def _pack_header(message: Message, arrays: Tensors, limits: MessageLimits) -> tuple[bytes, int]:
    """The header, and the size of the body in bytes."""
    codes = _CODES
    if message.precision:
        codes = _CODES | {_SINGLE: message.precision}
    specifications = []
    for name, array in arrays.items():
        code = codes[array.dtype]
        specifications.append((name, code, array.shape))
    layout, body_size = _pack_layout(tuple(specifications), limits)
    content = {
        "protocol": PROTOCOL,
        "kind": message.kind,
        "sender": message.sender,
        "round": message.round,
        "fields": message.fields,
        "layout": layout,
    }
    try:
        header: bytes = msgpack.packb(content, default=plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"message {message.kind!r}: a field cannot travel ({error}); send arrays as tensors") from None
    return header, body_size


@functools.lru_cache(_LAYOUTS)
def _pack_layout(
    specifications: tuple[tuple[Any, ...], ...],
    limits: MessageLimits,
) -> tuple[bytes, int]:
    layout: bytes = msgpack.packb(specifications)
    _, body_size = _new_layout(layout, limits)
    return layout, body_size


def _new_layout(layout: bytes, limits: MessageLimits) -> _Layout:
    """The places of the tensors, and the size of the body in bytes."""
    specifications = _unpacked(layout, limits.containers)
    if not isinstance(specifications, list):
        raise WireError("the layout must be a list")
    if len(specifications) > limits.tensors:
        raise WireError(f"{len(specifications)} tensors; at most {limits.tensors}")
    places: list[TensorPlace] = []
    names: set[str] = set()
    start = 0
    for specification in specifications:
        name, code, shape = _read_specification(specification, limits)
        if name in names:
            raise WireError(f"two tensors are named {name!r}")
        names.add(name)
        dtype = _STORED[code]
        size = math.prod(shape) * dtype.itemsize
        short = code if code in SHORT else ""
        places.append(TensorPlace(name, dtype, shape, start, size, short))
        padding = -size % _ALIGNMENT
        start += size + padding
        if start > limits.body:
            raise WireError(f"body of {start} bytes or more; at most {limits.body}")
    return tuple(places), start


_remembered_layout = functools.lru_cache(_LAYOUTS)(_new_layout)


def _read_specification(value: Any, limits: MessageLimits) -> tuple[str, str, tuple[int, ...]]:
    match value:
        case [str() as name, str() as code, [*shape]] if code in _STORED:
            pass
        case _:
            raise WireError(f"{str(value)[:80]} is not [name, dtype, shape] of a tensor")
    if not 0 < len(name) <= limits.name:
        raise WireError(f"the name of a tensor has {len(name)} characters; 1 to {limits.name} are allowed")
    if len(shape) > limits.dimensions:
        raise WireError(f"tensor {name!r} has {len(shape)} dimensions; at most {limits.dimensions}")
    for side in shape:
        if type(side) is not int or side < 0:
            raise WireError(f"tensor {name!r} has the impossible shape {str(shape)[:80]}")
    # A side of 0 makes the tensor empty, whatever the other sides are: these must be possible, too.
    values = math.prod(max(side, 1) for side in shape)
    size = values * _STORED[code].itemsize
    if size > limits.body:
        raise WireError(f"tensor {name!r} of {size} bytes; a message has at most {limits.body}")
    return name, code, tuple(shape)


def as_arrays(tensors: Mapping[str, Any]) -> Tensors:
    """The tensors of a message as NumPy arrays. WireError if one is none, or of a type that has no encoding."""
    arrays = {}
    for name, value in tensors.items():
        arrays[name] = _as_tensor(name, value)
    return arrays


def _as_tensor(name: str, value: Any) -> Tensor:
    try:
        array = as_array(value)
    except ValueError as error:
        raise WireError(f"tensor {name!r} {error}") from None
    if array.dtype in _CODES:
        return array
    little_endian = array.dtype.newbyteorder("<")
    array = array.astype(little_endian, copy=False)
    if array.dtype.str not in _DTYPES:
        types = ", ".join(dtype.name for dtype in _CODES)
        raise WireError(f"tensor {name!r} is of type {array.dtype}, which cannot travel; use {types}")
    return array


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to the Python number, for msgpack."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r}")
