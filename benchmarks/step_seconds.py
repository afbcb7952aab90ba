"""The cost of training and evaluation on a core of this host, and rates fitted for
`node.learning.step_seconds`.

    python -m benchmarks.step_seconds

Prints one JSON object. For each model, shape and batch size: the processor seconds of a step, as measured (the lower
quartile of several steps, since disturbances only slow a core down) and as modelled with the current rates. Over all
steps: the median of their ratio, which is the speed of this host relative to the reference core, and the best rates.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from node.catalogue.sizes import EVALUATION, TRAINING, Rates
from node.learning.counted_operations import cost_of
from node.learning.local_training import EVALUATION_BATCH, LocalTraining
from node.learning.models import Model, build
from node.learning.optimizers import Descent
from node.learning.step_seconds import PER_STEP, StepCost
from node.process.main import preload

CASES = [
    ("cnn", (1, 8, 8), 8),
    ("cnn", (1, 8, 8), 32),
    ("cnn", (1, 28, 28), 8),
    ("cnn", (1, 28, 28), 32),
    ("cnn", (1, 28, 28), 64),
    ("cnn", (3, 32, 32), 32),
    ("mlp", (1, 8, 8), 32),
    ("mlp", (1, 28, 28), 32),
    ("phefl-cnn", (1, 28, 28), 32),
    ("phefl-cnn", (3, 32, 32), 32),
    ("resnet18", (3, 32, 32), 8),
]
SECONDS = 0.6  # to spend on each case


def samples_of(shape: tuple[int, ...], batch: int) -> Callable[[], torch.Tensor]:
    """A function that returns a batch of stored images as a model's input, like `Learner`."""
    stored = torch.randint(0, 256, (600, *shape), dtype=torch.uint8)
    return lambda: stored[torch.randint(0, 600, (batch,))].float().mul_(1 / 255).sub_(0.5)


def train(model: Model, shape: tuple[int, ...], batch: int) -> Callable[[], None]:
    x, y = samples_of(shape, batch), torch.randint(0, 10, (batch,))
    step = Descent(list(model.train().parameters()), LocalTraining())
    return lambda: step(cross_entropy(model(x()), y))


def evaluate(model: Model, shape: tuple[int, ...], batch: int) -> Callable[[], None]:
    x, y = samples_of(shape, batch), torch.randint(0, 10, (batch,))
    model.eval()

    def step() -> None:
        with torch.inference_mode():
            logits = model(x())
            float(cross_entropy(logits, y, reduction="sum")), int((logits.argmax(1) == y).sum())

    return step


def seconds_of(step: Callable[[], None]) -> float:
    """The processor seconds of one step: the lower quartile of the steps that fit into ``SECONDS``, after a warm-up."""
    step()
    step()
    taken: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS or len(taken) < 5:
        start = time.thread_time()
        step()
        taken.append(time.thread_time() - start)
    return float(np.quantile(taken, 0.25))


def fitted(costs: list[tuple[StepCost, int]], measured: list[float]) -> Rates:
    """Fit non-negative rates by least squares of the relative errors; ``costs`` has (cost, samples) of each step."""
    rows = np.array([[cost.layers, samples * cost.operations, samples * cost.values] for cost, samples in costs])
    relative = rows / np.array(measured)[:, None]
    scale = relative.max(axis=0)
    solution = non_negative(relative / scale, np.ones(len(measured))) / scale
    return Rates(*(float(f"{value:.3g}") for value in solution))


def non_negative(A: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least-squares solution of A x = b with x >= 0, for few columns: the best over all subsets of columns."""
    best, least = np.zeros(A.shape[1]), float(b @ b)
    for size in range(1, A.shape[1] + 1):
        for columns in map(list, itertools.combinations(range(A.shape[1]), size)):
            x = np.zeros(A.shape[1])
            x[columns] = np.linalg.lstsq(A[:, columns], b, rcond=None)[0]
            if (x >= 0).all() and (error := float(np.square(A @ x - b).sum())) < least:
                best, least = x, error
    return best


def this_core(cases: Sequence[tuple[str, tuple[int, ...], int]] = CASES) -> float:
    """The speed of this host's core in training, relative to the reference core: the median over ``cases``."""
    torch.set_num_threads(1)
    preload()
    ratios = []
    for name, shape, batch in cases:
        model = build(name, shape, 10, seed=1)
        modelled = cost_of(model, torch.zeros(1, *shape), batch)(batch, "train") - PER_STEP
        ratios.append(modelled / seconds_of(train(model, shape, batch)))
    return round(median(ratios), 3)


def benchmark() -> dict[str, object]:
    torch.set_num_threads(1)
    preload()
    rows: list[dict[str, object]] = []
    for mode, rates in (("train", TRAINING), ("evaluate", EVALUATION)):
        costs: list[tuple[StepCost, int]] = []
        measured: list[float] = []
        modelled: list[float] = []
        for name, shape, batch in CASES:
            samples = batch if mode == "train" else EVALUATION_BATCH
            if mode == "evaluate" and (name == "resnet18" or batch != 32):
                continue
            model = build(name, shape, 10, seed=1)
            cost = cost_of(model, torch.zeros(1, *shape), batch)
            costs.append((cost, samples))
            measured.append(seconds_of((train if mode == "train" else evaluate)(model, shape, samples)))
            modelled.append(cost(samples, "train" if mode == "train" else "evaluate") - PER_STEP)
            row = {"mode": mode, "model": name, "shape": shape, "batch": samples}
            row |= {"layers": cost.layers, "operations": cost.operations}
            row |= {"measured_ms": round(1e3 * measured[-1], 3), "modelled_ms": round(1e3 * modelled[-1], 3)}
            rows.append(row)
        speed = median(model / real for model, real in zip(modelled, measured, strict=True))
        best = vars(fitted(costs, measured))
        rows.append({"mode": mode, "this_core": round(speed, 3), "rates": vars(rates), "fitted": best})
    return {"steps": rows}


if __name__ == "__main__":
    print(json.dumps(benchmark(), indent=1))
