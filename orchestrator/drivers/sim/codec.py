"""The encoding of values between the simulation and its workers, in shared memory: plain data, arrays, dataclasses.

Values are pickled. The bytes of arrays lie in the memory before the pickle (PEP 574), and are not copied again. The
workers are forks of this process, so neither side trusts the other with anything new. What crosses has no state that a
step could change: a dataclass or function of `node`, or of the run's plug-ins, is encoded by its name, and the learner
of a node by that node, because each worker has it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from node.learning.together import Crew
from node.learning.training import Learner
from node.plugins import is_of_plugin

_ALIGNMENT = 64
_OF_ARRAYS = ("numpy", "builtins")  # the packages of functions and types that numbers and arrays are made with


class CannotCrossError(TypeError):
    """A value has a type that cannot cross, or too many bytes."""


def write(value: Any, memory: memoryview) -> int:
    """Write ``value`` to ``memory`` and return the offset of its head. CannotCrossError if the value cannot cross."""
    arrays: list[pickle.PickleBuffer] = []
    body = io.BytesIO()
    try:
        _Pickler(body, protocol=5, buffer_callback=arrays.append).dump(value)
    except (pickle.PicklingError, AttributeError) as error:  # of what has no name
        raise CannotCrossError(f"{error}") from None
    places, end = [], 0
    for content in (each.raw() for each in arrays):
        places.append((end, end + content.nbytes))
        _put(memory, end, content)
        end += -(-content.nbytes // _ALIGNMENT) * _ALIGNMENT
    _put(memory, end, pickle.dumps((places, body.getvalue())))
    return end


def read(memory: memoryview, head: int, *, copy: bool, learner_of: Callable[[str], Learner] | None = None) -> Any:
    """Read the value at ``head``. Its arrays are read-only views of ``memory``, or copies. ``learner_of``: that of
    a node."""
    places, body = pickle.loads(memory[head:])
    contents = (memory.toreadonly()[start:end] for start, end in places)
    return _Unpickler(body, map(bytearray, contents) if copy else contents, learner_of).load()


def _put(memory: memoryview, start: int, content: memoryview | bytes) -> None:
    if (end := start + len(content)) > len(memory):
        raise CannotCrossError(f"more than {len(memory)} bytes")
    memory[start:end] = content


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> str | None:
        return value.node if isinstance(value, Learner) else None

    def reducer_override(self, value: Any) -> Any:
        """Refuse what is neither plain data, nor an array, a dataclass or a name. Arrays arrive in the order of C."""
        if isinstance(value, np.generic):
            return type(value.item()), (value.item(),)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return np.asarray(value, order="C").__reduce_ex__(5)
        if isinstance(value, MethodType) and isinstance(value.__self__, Learner | Crew):
            return getattr, (value.__self__, value.__name__)
        if isinstance(value, type | FunctionType):
            crosses = value.__module__.partition(".")[0] in ("node", *_OF_ARRAYS) or is_of_plugin(value.__module__)
        else:
            crosses = isinstance(value, np.dtype | Crew) or is_dataclass(value) or value is getattr
        if not crosses:
            raise CannotCrossError(f"a {type(value).__name__} cannot be sent to a worker")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, body: bytes, arrays: Iterable[Any], learner_of: Callable[[str], Learner] | None) -> None:
        super().__init__(io.BytesIO(body), buffers=arrays)
        self._learner_of = learner_of

    def persistent_load(self, node: str) -> Learner:
        assert self._learner_of is not None, "only steps have learners"
        return self._learner_of(node)
