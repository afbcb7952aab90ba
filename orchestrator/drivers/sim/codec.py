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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import FunctionType
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from node.assignment import PluginSource
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
_SIZE = 8  # bytes of an offset or a length

Shape = tuple[int, ...]
Layout = tuple[tuple[str, str, Shape], ...]  # name, dtype and shape of each array
Arrays = Mapping[str, NDArray[Any]]
_Place = tuple[str, np.dtype[Any], Shape, int]  # the same, and the offset


class CannotCrossError(TypeError):
    """A value has a type that cannot cross, or too many bytes."""


def write(value: Any, memory: memoryview, plugins: Sequence[PluginSource] = ()) -> int:
    """Write ``value`` to ``memory`` and return the offset of its head. CannotCrossError if the value cannot cross.
    ``plugins``: those of the run, of which classes and functions may cross."""
    writer = _Writer(memory, plugins)
    head = writer.pack(value)
    size = len(head).to_bytes(_SIZE, "big")
    start = writer.used
    end = start + _SIZE + len(head)
    writer.check(end)
    memory[start:end] = size + head
    return start


def read(memory: memoryview, head: int, *, copy: bool) -> Any:
    """Read the value at ``head``. Its arrays are read-only views of ``memory``, or copies."""
    start = head + _SIZE
    size = int.from_bytes(memory[head:start], "big")
    end = start + size
    reader = _ArrayReader(memory.toreadonly(), copy)
    return reader.unpack(memory[start:end])


class _Writer:
    def __init__(self, memory: memoryview, plugins: Sequence[PluginSource]) -> None:
        self.used = 0
        self._memory = memory
        self._plugins = plugins

    def pack(self, value: Any) -> bytes:
        try:
            prepared = self._prepared(value)
            packed: bytes = msgpack.packb(
                prepared,
                default=self._convert,
                strict_types=True,
            )
        except (TypeError, ValueError, RecursionError) as error:  # a complex number of NumPy, half of a character
            raise CannotCrossError(str(error)) from None
        return packed

    def check(self, end: int) -> None:
        if end > len(self._memory):
            raise CannotCrossError(f"more than {len(self._memory)} bytes")

    def _prepared(self, value: Any) -> Any:
        """Replace each map of arrays by one extension value, because a model's weights are many arrays."""
        if isinstance(value, list):
            return [self._prepared(item) for item in value]
        if not isinstance(value, dict) or not value:
            return value
        items = value.values()
        if all(isinstance(item, np.ndarray) for item in items):
            places = self._place_all(value)
            return msgpack.ExtType(_ARRAYS, places)
        return value

    def _convert(self, value: Any) -> Any:
        """Convert a value of a type that msgpack does not know."""
        if isinstance(value, np.ndarray):
            place = self._place_all({"": value})
            return msgpack.ExtType(_ARRAY, place)
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, tuple):
            if hasattr(value, "_asdict"):
                values = value._asdict()
                return self._record(type(value), values)
            items = self.pack(list(value))
            return msgpack.ExtType(_TUPLE, items)
        if is_dataclass(value) and not isinstance(value, type):
            constant = _constant(value)
            if constant is not None:
                return msgpack.ExtType(_CONSTANT, constant)
            values = _values_of(value)
            return self._record(type(value), values)
        if isinstance(value, FunctionType):
            name = self.pack(_name(value, self._plugins))
            return msgpack.ExtType(_FUNCTION, name)
        kind = type(value).__name__
        raise CannotCrossError(f"a {kind} cannot be sent to a worker")

    def _record(self, kind: type, values: Mapping[str, Any]) -> msgpack.ExtType:
        content = {}
        for name, value in values.items():
            content[name] = self._prepared(value)
        module, kind_name = _name(kind, self._plugins)
        record = self.pack([module, kind_name, content])
        return msgpack.ExtType(_RECORD, record)

    def _place_all(self, arrays: Arrays) -> bytes:
        layout = []
        for name, array in arrays.items():
            code = array.dtype.str
            layout.append((name, code, array.shape))
        packed, places, size = _placed(tuple(layout))
        for array in arrays.values():
            if isinstance(array, np.ma.MaskedArray):
                raise CannotCrossError("a masked array cannot be sent to a worker")
        start = self.used
        self.used += size
        self.check(self.used)
        for array, place in zip(arrays.values(), places, strict=True):
            if array.size:
                _, dtype, shape, offset = place
                flat = np.frombuffer(self._memory, dtype, array.size, start + offset)
                flat.reshape(shape)[...] = array
        return start.to_bytes(_SIZE, "big") + packed


class _ArrayReader:
    def __init__(self, memory: memoryview, copy: bool) -> None:
        self._memory = memory
        self._copy = copy

    def unpack(self, data: bytes | memoryview) -> Any:
        return msgpack.unpackb(
            data,
            ext_hook=self._revive,
            strict_map_key=False,
        )

    def _revive(self, code: int, data: bytes) -> Any:
        if code == _ARRAYS:
            return self._arrays(data)
        if code == _ARRAY:
            arrays = self._arrays(data)
            return arrays[""]
        if code == _CONSTANT:
            return _known(data)
        content = self.unpack(data)
        if code == _TUPLE:
            return tuple(content)
        module, name = content[:2]
        target = _find(module, name)
        if code == _FUNCTION:
            return target
        return target(**content[2])

    def _arrays(self, data: bytes) -> dict[str, NDArray[Any]]:
        start = int.from_bytes(data[:_SIZE], "big")
        layout = _layout(data[_SIZE:])
        _, places, _ = _placed(layout)
        arrays = {}
        for name, dtype, shape, offset in places:
            count = math.prod(shape)
            if count:
                flat = np.frombuffer(self._memory, dtype, count, start + offset)
            else:
                flat = np.empty(0, dtype)
            array = flat.reshape(shape)
            if self._copy:
                array = array.copy()
            arrays[name] = array
        return arrays


def _values_of(value: Any) -> dict[str, Any]:
    """The values of a dataclass by its fields."""
    names = [field.name for field in fields(value)]
    return {name: getattr(value, name) for name in names}


@functools.lru_cache(maxsize=256)
def _placed(layout: Layout) -> tuple[bytes, list[_Place], int]:
    """A layout as msgpack, the name, type, shape and offset of each array, and the number of bytes of all arrays."""
    places = []
    end = 0
    for name, code, shape in layout:
        dtype = np.dtype(code)
        if dtype.hasobject or dtype.kind == "V":  # structured: its code has no names
            raise CannotCrossError(f"an array of {dtype} cannot be sent to a worker")
        places.append((name, dtype, shape, end))
        size = math.prod(shape) * dtype.itemsize
        blocks = -(-size // _ALIGNMENT)  # rounded up
        end += blocks * _ALIGNMENT
    return msgpack.packb(layout), places, end


@functools.lru_cache(maxsize=256)
def _layout(packed: bytes) -> Layout:
    layout = []
    for name, code, dimensions in msgpack.unpackb(packed):
        shape = tuple(dimensions)
        layout.append((name, code, shape))
    return tuple(layout)


_constants: dict[int, tuple[Any, bytes]] = {}  # by identity: equal ones may differ in type, as 1 and 1.0


def _constant(value: Any) -> bytes | None:
    """The msgpack of a constant; None if the value, a dataclass, is none."""
    if id(value) in _constants:
        _, known = _constants[id(value)]
        return known
    kind = type(value)
    if not kind.__dataclass_params__.frozen:
        return None
    if not kind.__module__.startswith("node."):
        return None
    values = _values_of(value)
    for item in values.values():
        if type(item) not in _PLAIN:
            return None
    module, name = _name(kind, ())
    packed: bytes = msgpack.packb([module, name, values])
    if len(_constants) >= _REMEMBERED:
        _constants.clear()
    _constants[id(value)] = value, packed  # the value stays alive, so that no other gets its identity
    return packed


@functools.lru_cache(_REMEMBERED)
def _known(packed: bytes) -> Any:
    module, name, values = msgpack.unpackb(packed)
    kind = _find(module, name)
    return kind(**values)


def _name(target: Callable[..., Any], plugins: Sequence[PluginSource]) -> list[str]:
    """The module and the name of a function or class. CannotCrossError if a worker cannot find it by them."""
    module = target.__module__
    name = target.__qualname__
    is_known = module.startswith("node.") or is_of_plugin(module, plugins)
    if not is_known or "<" in name:
        raise CannotCrossError(f"{module}.{name} is not a named function or class of `node` or of a plug-in")
    return [module, name]


def _find(module: str, name: str) -> Any:
    return _part_of(importlib.import_module(module), name)


@functools.lru_cache(maxsize=256)
def _part_of(module: Any, name: str) -> Any:
    """By the module itself: an installed plug-in that has changed is another module of the same name."""
    target = module
    for part in name.split("."):
        target = getattr(target, part)
    return target
