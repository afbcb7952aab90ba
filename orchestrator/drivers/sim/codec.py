"""The encoding of values between the simulation and its workers, in shared memory: plain data, arrays, records.

Plain values are encoded as msgpack. The bytes of arrays lie in the memory before the msgpack, which holds their places,
types and shapes. A dataclass, named tuple or function of `node`, or of the run's plug-ins, is encoded by its name. The
codec does not use pickle, so decoding creates only these classes and functions. A frozen dataclass of `node` with plain
values, such as an algorithm's parameters, is a *constant*: encoded once, decoded once, and shared by all steps that get
it.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import FunctionType
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from node.plugins import is_of_plugin

_ARRAY = 1
_ARRAYS = 2
_TUPLE = 3
_RECORD = 4
_FUNCTION = 5
_CONSTANT = 6
_PLAIN = (str, int, float, bool, type(None))
_REMEMBERED = 64  # constants
_ALIGNMENT = 64

Layout = tuple[tuple[str, str, tuple[int, ...]], ...]  # name, dtype and shape of each array


class CannotCrossError(TypeError):
    """A value has a type that cannot cross, or too many bytes."""


def write(value: Any, memory: memoryview) -> int:
    """Write ``value`` to ``memory`` and return the offset of its head. CannotCrossError if the value cannot cross."""
    writer = _Writer(memory)
    head = writer.pack(value)
    end = writer.used + 8 + len(head)
    writer.check(end)
    memory[writer.used : end] = len(head).to_bytes(8, "big") + head
    return writer.used


def read(memory: memoryview, head: int, *, copy: bool) -> Any:
    """Read the value at ``head``. Its arrays are read-only views of ``memory``, or copies."""
    size = int.from_bytes(memory[head : head + 8], "big")
    return _ArrayReader(memory.toreadonly(), copy).unpack(memory[head + 8 : head + 8 + size])


class _Writer:
    def __init__(self, memory: memoryview) -> None:
        self.used = 0
        self._memory = memory

    def pack(self, value: Any) -> bytes:
        try:
            packed: bytes = msgpack.packb(self._prepared(value), default=self._convert, strict_types=True)
        except (TypeError, ValueError, RecursionError) as error:  # a complex number of NumPy, half of a character
            raise CannotCrossError(str(error)) from None
        return packed

    def check(self, end: int) -> None:
        if end > len(self._memory):
            raise CannotCrossError(f"more than {len(self._memory)} bytes")

    def _prepared(self, value: Any) -> Any:
        """Replace each map of arrays by one extension value, because a model's weights are many arrays."""
        if isinstance(value, list):
            return [self._prepared(each) for each in value]
        if isinstance(value, dict) and value and all(isinstance(each, np.ndarray) for each in value.values()):
            return msgpack.ExtType(_ARRAYS, self._place_all(value))
        return value

    def _convert(self, value: Any) -> Any:
        """Convert a value of a type that msgpack does not know."""
        if isinstance(value, np.ndarray):
            return msgpack.ExtType(_ARRAY, self._place_all({"": value}))
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return self._record(type(value), value._asdict())
        if isinstance(value, tuple):
            return msgpack.ExtType(_TUPLE, self.pack(list(value)))
        if is_dataclass(value) and not isinstance(value, type):
            constant = _constant(value)
            if constant is not None:
                return msgpack.ExtType(_CONSTANT, constant)
            return self._record(type(value), {field.name: getattr(value, field.name) for field in fields(value)})
        if isinstance(value, FunctionType):
            return msgpack.ExtType(_FUNCTION, self.pack(_name(value)))
        raise CannotCrossError(f"a {type(value).__name__} cannot be sent to a worker")

    def _record(self, kind: type, values: Mapping[str, Any]) -> msgpack.ExtType:
        content = {name: self._prepared(value) for name, value in values.items()}
        return msgpack.ExtType(_RECORD, self.pack([*_name(kind), content]))

    def _place_all(self, arrays: Mapping[str, NDArray[Any]]) -> bytes:
        packed, places, size = _placed(tuple((name, each.dtype.str, each.shape) for name, each in arrays.items()))
        if any(isinstance(each, np.ma.MaskedArray) for each in arrays.values()):
            raise CannotCrossError("a masked array cannot be sent to a worker")
        start = self.used
        self.used = self.used + size
        self.check(self.used)
        for array, (_, dtype, shape, place) in zip(arrays.values(), places, strict=True):
            if array.size:
                np.frombuffer(self._memory, dtype, array.size, start + place).reshape(shape)[...] = array
        return start.to_bytes(8, "big") + packed


class _ArrayReader:
    def __init__(self, memory: memoryview, copy: bool) -> None:
        self._memory = memory
        self._copy = copy

    def unpack(self, data: bytes | memoryview) -> Any:
        return msgpack.unpackb(data, ext_hook=self._revive, strict_map_key=False)

    def _revive(self, code: int, data: bytes) -> Any:
        if code == _ARRAYS:
            return self._arrays(data)
        if code == _ARRAY:
            return self._arrays(data)[""]
        if code == _CONSTANT:
            return _known(data)
        content = self.unpack(data)
        if code == _TUPLE:
            return tuple(content)
        thing = _find(*content[:2])
        return thing if code == _FUNCTION else thing(**content[2])

    def _arrays(self, data: bytes) -> dict[str, NDArray[Any]]:
        start = int.from_bytes(data[:8], "big")
        found = {}
        for name, dtype, shape, place in _placed(_layout(data[8:]))[1]:
            count = math.prod(shape)
            if count:
                view = np.frombuffer(self._memory, dtype, count, start + place)
            else:
                view = np.empty(0, dtype)
            if self._copy:
                found[name] = view.reshape(shape).copy()
            else:
                found[name] = view.reshape(shape)
        return found


@functools.lru_cache(maxsize=256)
def _placed(layout: Layout) -> tuple[bytes, list[tuple[str, np.dtype[Any], tuple[int, ...], int]], int]:
    """A layout as msgpack, the name, type, shape and place of each array, and the number of bytes of all arrays."""
    places = []
    end = 0
    for name, code, shape in layout:
        dtype = np.dtype(code)
        if dtype.hasobject or dtype.kind == "V":  # structured: its code has no names
            raise CannotCrossError(f"an array of {dtype} cannot be sent to a worker")
        places.append((name, dtype, shape, end))
        end += -(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    return msgpack.packb(layout), places, end


@functools.lru_cache(maxsize=256)
def _layout(packed: bytes) -> Layout:
    return tuple((name, code, tuple(shape)) for name, code, shape in msgpack.unpackb(packed))


_constants: dict[int, tuple[Any, bytes]] = {}  # by identity: equal ones may differ in type, as 1 and 1.0


def _constant(value: Any) -> bytes | None:
    """The msgpack of a constant; None if the value, a dataclass, is none."""
    if id(value) in _constants:
        return _constants[id(value)][1]
    kind = type(value)
    if not kind.__dataclass_params__.frozen or not kind.__module__.startswith("node."):
        return None  # a plug-in may be replaced by another one of the same name
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    if not all(type(each) in _PLAIN for each in values.values()):
        return None
    packed: bytes = msgpack.packb([*_name(kind), values])
    if len(_constants) >= _REMEMBERED:
        _constants.clear()
    _constants[id(value)] = value, packed  # the value stays alive, so that no other gets its identity
    return packed


@functools.lru_cache(_REMEMBERED)
def _known(packed: bytes) -> Any:
    module, name, values = msgpack.unpackb(packed)
    return _find(module, name)(**values)


def _name(thing: Callable[..., Any]) -> list[str]:
    ours = thing.__module__.startswith("node.") or is_of_plugin(thing.__module__)
    if not ours or "<" in thing.__qualname__:
        raise CannotCrossError(
            f"{thing.__module__}.{thing.__qualname__} is not a named function or class of `node` or of a plug-in"
        )
    return [thing.__module__, thing.__qualname__]


def _find(module: str, name: str) -> Any:
    return _found(importlib.import_module(module), name)


@functools.lru_cache(maxsize=256)
def _found(module: Any, name: str) -> Any:
    """By the module itself: the module of a plug-in that has changed is another one of the same name."""
    found = module
    for part in name.split("."):
        found = getattr(found, part)
    return found
