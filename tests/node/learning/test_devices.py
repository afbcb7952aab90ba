"""What moves between the processor and another device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from node.__main__ import main
from node.learning.devices import Constants, as_array, device_of, load_state, seeded, state_of
from node.learning.models import build
from node.learning.trial import tried
from tests.toy_device import TOY, ToyTensor


def test_arrays_are_in_the_processors_memory() -> None:
    here = torch.ones(2)
    array = as_array(here)
    array[0] = 7
    assert here.tolist() == [7, 1]  # not copied
    there = torch.tensor([1.0, 2.0], device=TOY)
    assert isinstance(there, ToyTensor)
    assert as_array(there).tolist() == [1, 2]


def test_the_state_of_a_module_is_a_copy() -> None:
    norm = nn.BatchNorm1d(1).to(TOY)
    state = state_of(norm)
    assert {name: (each.shape, each.dtype.kind) for name, each in state.items()} == {
        **dict.fromkeys(("weight", "bias", "running_mean", "running_var"), ((1,), "f")),
        "num_batches_tracked": ((), "i"),
    }
    state["weight"][0] = 5
    assert state_of(norm)["weight"] == 1


def test_a_module_takes_the_state_of_another_of_its_form() -> None:
    one, other = nn.Linear(2, 1), nn.Linear(2, 1).to(TOY)
    state = state_of(one)
    assert load_state(other, state) is other
    state["bias"][:] = 7
    for name, values in state_of(one).items():
        assert state_of(other)[name].tolist() == values.tolist()
    with pytest.raises(RuntimeError, match="weight"):
        load_state(nn.Linear(3, 1), state)


def test_a_model_takes_and_gives_its_state_on_any_device() -> None:
    here, there = (build("cnn", (1, 8, 8), 10, 1).to(device) for device in ("cpu", TOY))
    other = {name: values + 1 for name, values in here.get().items()}
    for model in (here, there):
        model.set(other)
        taken = model.get()
        assert all(np.array_equal(taken[name], values) for name, values in other.items())
        next(iter(taken.values()))[...] = 0
        assert all(np.array_equal(model.get()[name], values) for name, values in other.items())
    assert (device_of(here).type, device_of(there).type, device_of(nn.Flatten()).type) == ("cpu", TOY, "cpu")


def test_constants_reach_each_device_once() -> None:
    constants = Constants({"w": np.arange(3.0)})
    for device in (torch.device("cpu"), torch.device(TOY, 0)):
        first = constants.on(device)["w"]
        assert first.device == device
        assert constants.on(device)["w"] is first


def test_a_seed_acts_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    with seeded(1):
        drawn = torch.rand(1)
    with seeded(1):
        assert torch.equal(torch.rand(1), drawn)
    assert torch.equal(torch.rand(1), expected)


def test_threads_take_turns_at_the_global_generators() -> None:
    def drawn(seed: int) -> torch.Tensor:
        with seeded(seed):
            return torch.rand(1)

    first, second = drawn(1), drawn(2)
    with ThreadPoolExecutor(1) as thread, seeded(1):
        other = thread.submit(drawn, 2)
        with pytest.raises(TimeoutError):  # it waits for the end of this block
            other.result(0.05)
        assert torch.equal(torch.rand(1), first)
    assert torch.equal(other.result(), second)


def test_a_process_that_is_forked_waits_for_no_thread() -> None:
    def drawn_in_a_fork() -> int:
        if (pid := os.fork()) == 0:
            signal.alarm(20)
            with seeded(2):
                os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    with ThreadPoolExecutor(1) as thread, seeded(1):
        assert thread.submit(drawn_in_a_fork).result() == 0


@pytest.mark.slow  # torch loads its compiler for it
def test_accelerators_are_made_deterministic_without_a_warning() -> None:
    program = (
        "import os; os.getuid = lambda: 2**31 - 9; "  # a node's own user, who has no name
        "from node.learning.devices import make_deterministic; make_deterministic(); import sys, torch; "
        "assert 'torch._inductor' not in sys.modules; "
        "print(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(), "
        "torch.backends.cudnn.allow_tf32, os.environ['CUBLAS_WORKSPACE_CONFIG'])"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={})
    assert done.stdout.split() == ["True", "True", "False", ":4096:8"]


def test_an_image_of_nodes_tries_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert tried("cpu") == {"name": "cpu"}
    assert main(["--try", "cpu", "cuda:63"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cpu"] == {"name": "cpu"}
    assert found["cuda:63"].keys() == {"problem"}
