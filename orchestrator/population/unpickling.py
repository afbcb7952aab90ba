"""A reader of pickled plain data: dictionaries, lists, tuples, numbers, texts, truth values and None.

`pickle.load` runs what the file says. This reader interprets the opcodes that make plain data and refuses all others:
it can call nothing, import nothing and make no object of a class. `pickletools.genops` takes the file apart.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

MOST_OPCODES = 100_000_000
LONGEST_NUMBER = 8  # bytes

_MARK = object()
_PUSHED = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"),
        *("SHORT_BINSTRING", "BINSTRING", "STRING"),  # of Python 2
    }
)
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_IGNORED = frozenset({"PROTO", "FRAME"})


class UnpicklingError(ValueError):
    """The data is not pickled plain data."""


def plain_data(pickled: bytes) -> Any:
    """The value of pickled plain data. UnpicklingError names the first opcode that makes something else."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for count, (opcode, argument, place) in enumerate(pickletools.genops(pickled)):
            if count >= MOST_OPCODES:
                raise UnpicklingError(f"has more than {MOST_OPCODES:,} operations")
            if opcode.name == "STOP":
                (value,) = stack
                return value
            _apply(opcode.name, argument, place, stack, memo)
    except UnpicklingError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise UnpicklingError(f"is damaged, or no pickle ({type(error).__name__}: {error})") from None
    raise UnpicklingError("is cut short")


def _apply(name: str, argument: Any, place: int | None, stack: list[Any], memo: dict[int, Any]) -> None:
    if name in _PUSHED:
        stack.append(_checked(argument, place))
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _EMPTY:
        stack.append(_EMPTY[name]())
    elif name == "MARK":
        stack.append(_MARK)
    elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
        memo[len(memo) if name == "MEMOIZE" else int(argument)] = _plain(stack[-1])
    elif name in ("GET", "BINGET", "LONG_BINGET"):
        stack.append(memo[int(argument)])
    elif name in _BUILDERS:
        _BUILDERS[name](stack)
    elif name not in _IGNORED:
        where = "" if place is None else f" at byte {place}"
        raise UnpicklingError(f"asks for {name}{where}: only plain data is read, no objects and no calls")


def _checked(value: Any, place: int | None) -> Any:
    if isinstance(value, int) and value.bit_length() > 8 * LONGEST_NUMBER:
        raise UnpicklingError(f"has a number of {value.bit_length()} bits at byte {place}")
    return value


def _plain(value: Any) -> Any:
    if value is _MARK:
        raise UnpicklingError("refers to no value")
    return value


def _since_mark(stack: list[Any]) -> list[Any]:
    """Take what lies above the last mark, and the mark."""
    taken = []
    while (top := stack.pop()) is not _MARK:
        taken.append(top)
    return taken[::-1]


def _add_items(stack: list[Any], items: list[Any]) -> None:
    target = stack[-1]
    if type(target) is not dict or len(items) % 2:
        raise UnpicklingError("puts items into what is no dictionary")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, int | float | str):
            raise UnpicklingError(f"has a {type(key).__name__} as a key")
        target[key] = value


def _add_elements(stack: list[Any], elements: list[Any]) -> None:
    if type(stack[-1]) is not list:
        raise UnpicklingError("puts elements into what is no list")
    stack[-1].extend(elements)


def _set_item(stack: list[Any]) -> None:
    value, key = _plain(stack.pop()), _plain(stack.pop())
    _add_items(stack, [key, value])


def _dict(stack: list[Any]) -> None:
    items = _since_mark(stack)
    stack.append({})
    _add_items(stack, items)


def _tuple(count: int) -> Callable[[list[Any]], None]:
    def make(stack: list[Any]) -> None:
        taken = [_plain(stack.pop()) for _ in range(count)]
        stack.append(tuple(taken[::-1]))

    return make


_BUILDERS: dict[str, Callable[[list[Any]], None]] = {
    "DICT": _dict,
    "LIST": lambda stack: stack.append(_since_mark(stack)),
    "TUPLE": lambda stack: stack.append(tuple(_since_mark(stack))),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "SETITEM": _set_item,
    "SETITEMS": lambda stack: _add_items(stack, _since_mark(stack)),
    "APPEND": lambda stack: _add_elements(stack, [_plain(stack.pop())]),
    "APPENDS": lambda stack: _add_elements(stack, _since_mark(stack)),
}
