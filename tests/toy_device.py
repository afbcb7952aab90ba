"""A device of torch that is not the processor and needs no accelerator: ``toy``.

Its tensors hold a processor's tensor each, and their operations are carried out there, by the same kernels. Like an
accelerator's they cannot be mixed with tensors of the processor, or become arrays without being moved: code that leaves
something behind on the processor fails. Tests on it show that code follows its device, not that a GPU computes well.

Torch lets Python programs make such a device (`torch.utils.backend_registration`); it says that this may change.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as trees
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from node.learning.devices import Seeded
from node.learning.models import Model, ModelPool

TOY = "toy"
_aten: Any = torch.ops.aten

_CONVOLUTIONS = {  # torch calls these on devices that it does not know
    _aten.convolution_overrideable.default: _aten.convolution.default
}


class ToyTensor(Tensor):
    """A tensor on the device. ``held`` is the processor's tensor behind it."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: Tensor) -> ToyTensor:
        made: ToyTensor = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(TOY, 0),
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if operation.overloadpacket is _aten.to:  # inference mode leaves it whole
            return operation.decompose(*args, **(kwargs or {}))
        return _carry_out(operation, *args, **(kwargs or {}))


@torch.inference_mode(False)  # tensors made in inference mode cannot be wrapped
@torch.no_grad()
def _carry_out(operation: Any, *args: Any, **kwargs: Any) -> Any:
    if operation in (_aten._to_copy.default, _aten.copy_.default):
        return _moved(operation, *args, **kwargs)
    if operation is _aten.convolution_backward_overrideable.default:
        gradient, x, w, *rest = args
        args, operation = (gradient, x, w, [w.shape[0]], *rest), _aten.convolution_backward.default
    operation = _CONVOLUTIONS.get(operation, operation)
    known = {id(each.held): each for each in trees.tree_leaves((args, kwargs)) if isinstance(each, ToyTensor)}

    def inside(value: Any) -> Any:
        if isinstance(value, Tensor) and not isinstance(value, ToyTensor) and value.dim() > 0:
            raise RuntimeError(f"{operation}: a tensor {tuple(value.shape)} of the processor meets one of {TOY}")
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value.held if isinstance(value, ToyTensor) else value

    def outside(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else ToyTensor(value)

    return trees.tree_map(outside, operation(*trees.tree_map(inside, args), **trees.tree_map(inside, kwargs)))


def _moved(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """The operations between devices: a copy, and a copy into a tensor that is there."""
    device = kwargs.pop("device", None) or args[0].device
    held = [each.held if isinstance(each, ToyTensor) else each for each in args]
    done = operation(*held, **kwargs)
    if operation is _aten.copy_.default:
        return args[0]
    return ToyTensor(done) if torch.device(device).type == TOY else done


def _register() -> list[torch.library.Library]:
    """Make the device known, for the rest of this process. The libraries must be kept."""
    _setup_privateuseone_for_python_backend(TOY)
    library: Any = torch.library.Library
    everything, ours = library("_", "IMPL"), library("aten", "IMPL")
    everything.fallback(_carry_out, dispatch_key="PrivateUse1")
    ours.impl("_to_copy", lambda *args, **kwargs: _moved(_aten._to_copy.default, *args, **kwargs), "PrivateUse1")
    return [everything, ours]


_LIBRARIES = _register()


def models_in_steps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let models be used in steps only. A simulation's own process must not use its device, or the next one in this
    process could not start workers."""
    thread, step, pool_model = threading.local(), Seeded.__call__, vars(ModelPool)["model"]

    def call(self: Seeded, *args: Any) -> Any:
        thread.steps = getattr(thread, "steps", 0) + 1
        try:
            return step(self, *args)
        finally:
            thread.steps -= 1

    def used(pool: ModelPool) -> Model:
        assert getattr(thread, "steps", 0), "a model is used outside a step: learner.outline has its form"
        found: Model = pool_model.fget(pool)
        return found

    monkeypatch.setattr(Seeded, "__call__", call)
    monkeypatch.setattr(ModelPool, "model", property(used))
