"""Where the tensors of a node's training are: on the processor, or on an accelerator of the host.

Everything that travels or is kept (messages, checkpoints, results of steps) is numpy, in the processor's memory.
Everything that is drawn with a seed is drawn by the processor and moved: an accelerator trains on the same numbers.
Only dropout draws on the accelerator itself, from its own generator, which `Seeded` seeds.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from node.learning.aggregation import State
from node.learning.data.parts import parts_of

PROCESSOR = "cpu"

Inputs = Tensor | dict[str, Tensor] | tuple[Tensor, ...]  # of a model: a batch of samples, or of their parts
Module = TypeVar("Module", bound=nn.Module)

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # with one of two values, products of cuBLAS are the same in each run


def as_array(values: Tensor) -> NDArray[Any]:
    """The values in the processor's memory. Those of a tensor there are not copied."""
    return values.detach().cpu().numpy()


def inputs_of(
    values: NDArray[Any],
    device: torch.device | str = PROCESSOR,
) -> Inputs:
    """A copy of stored samples as tensors. Those of several parts are a dictionary, or a tuple if they are numbered."""
    tensors = {}
    for name, part in parts_of(values).items():
        tensor = torch.from_numpy(np.array(part))
        tensors[name] = tensor.to(device)
    if not values.dtype.names:
        return tensors[""]
    if "0" in tensors:
        return tuple(tensors.values())
    return tensors


def map_parts(function: Callable[..., Any], *inputs: Any) -> Any:
    """``function`` of each part of some inputs of the same form, in that form."""
    first = inputs[0]
    if isinstance(first, tuple):
        return tuple(map(function, *inputs))
    if not isinstance(first, dict):
        return function(*inputs)
    results = {}
    for name in first:
        parts = [values[name] for values in inputs]
        results[name] = function(*parts)
    return results


def device_of(module: nn.Module) -> torch.device:
    """The device of a module's parameters; the processor if it has none."""
    for parameter in module.parameters():
        return parameter.device
    return torch.device(PROCESSOR)


def state_of(module: nn.Module) -> State:
    """A copy of a module's parameters, running statistics and counters."""
    state = {}
    for name, values in module.state_dict().items():
        state[name] = as_array(values).copy()
    return state


def load_state(module: Module, state: State) -> Module:
    """Copy a state, as `state_of` gives it, into a module of the same form, on whatever device it is. Returns the
    module. RuntimeError names what does not fit."""
    tensors = {}
    for name, values in state.items():
        tensors[name] = torch.tensor(values)
    module.load_state_dict(tensors)
    return module


_LEGACY: Any = np.random  # its stubs lack two functions
_turn = threading.RLock()  # runs in one process train in threads
_spare: list[np.random.MT19937] = []  # for `seeded`: one to make, or numpy's state to copy, takes longer than all else


def _renew_turn() -> None:
    """A forked process lacks the thread that would release it."""
    global _turn
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_renew_turn)


@contextlib.contextmanager
def seeded(seed: int, device: str = PROCESSOR) -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python, and restore them at the end. Threads take turns.

    Those of an accelerator are seeded if it is the ``device``, and not restored: nothing draws from them unseeded.
    """
    with _turn:
        torch_state = torch.get_rng_state()
        python_state = random.getstate()
        numpy_generator = _LEGACY.get_bit_generator()
        if _spare:
            ours = _spare.pop()
        else:
            ours = np.random.MT19937()
        _LEGACY.set_bit_generator(ours)
        np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)  # not `torch.manual_seed`, which has accelerators wait for their seed
        if device != PROCESSOR:
            torch.cuda.manual_seed_all(seed)
        random.seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(torch_state)
            random.setstate(python_state)
            _LEGACY.set_bit_generator(numpy_generator)
            _spare.append(ours)


@dataclass(frozen=True)
class Seeded:
    """The function ``fn`` with a seed for what it draws from global generators, as dropout does in a forward pass."""

    fn: Callable[..., Any]
    seed: int
    device: str = PROCESSOR

    def __call__(self, *args: Any) -> Any:
        with seeded(self.seed, self.device):
            return self.fn(*args)


def make_deterministic() -> None:
    """Make an accelerator compute the same in each run where torch can, and in full single precision.

    A few operations of torch have no deterministic form on an accelerator. Torch warns of each that a model uses; the
    warning is in the node's log. For the whole process, and before its first use of the accelerator.
    """
    os.environ.setdefault(WORKSPACE, ":4096:8")
    # `torch.use_deterministic_algorithms` imports torch's compiler, which fails without a user name.
    torch.set_deterministic_debug_mode("warn")
    memory: Any = torch.utils.deterministic
    memory.fill_uninitialized_memory = False  # it is not read before it is written
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


class Constants:
    """Arrays that stay as they are, as tensors. Each device gets them once, at their first use there."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self._on: dict[torch.device, dict[str, Tensor]] = {}

    def on(self, device: torch.device) -> dict[str, Tensor]:
        if device not in self._on:
            tensors = {}
            for name, values in self._arrays.items():
                tensors[name] = torch.tensor(values, device=device)
            self._on[device] = tensors
        return self._on[device]
