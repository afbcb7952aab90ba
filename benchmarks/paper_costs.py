"""What do a round of DFFKE and the exchange between FEELPGen's silos cost, at their papers' sizes? Without training.

    python -m benchmarks.paper_costs

Prints one JSON object. ``dffke``: bytes that ten clients with ResNet-18 and CIFAR-100 send and receive in a round, from
the sizes of models and messages, without headers. A shared model (FedAvg, the meme of FML, the mentee of FedKD before
it is compressed) is a ResNet-18 too. ``rounds`` is the number of such rounds in the total that the paper reports.
``feelpgen``: bytes of a generator for 10 and 2 classes and of Z and its projection; processor milliseconds of an edge's
exchange (make Z, rank K silos, average its model with those of the best five), median of 15, for several K.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from node.algorithms.dffke.embedding_decoder import Pictures, new_decoder
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.feelpgen.generator import dimensions, new_generator
from node.algorithms.feelpgen.parameters import FEELPGen, FEELPGenPlus
from node.algorithms.feelpgen.roles import KnownEdge, aggregate, published, rank
from node.catalogue.models import MODEL_GROUPS
from node.learning.aggregation import State
from node.learning.models import build

CLIENTS, CLASSES, SHAPE = 10, 100, (3, 32, 32)  # Table 2 of DFFKE, CIFAR-100
TOTALS = {"dffke": 47.34e9, "fedavg": 171.4e9, "fedkd": 251.32e9, "fml": 559.18e9}  # bytes, as its section 4.3 reports
SILOS = (10, 25, 50, 100)  # Figure 3 of FEELPGen


def size_of(state: State) -> int:
    return sum(values.nbytes for values in state.values())


def dffke() -> dict[str, Any]:
    params, model = DFFKE(), MODEL_GROUPS["htfe-1"].size(SHAPE, CLASSES)
    samples = params.embeddings
    decoder = size_of(new_decoder(Pictures(SHAPE, CLASSES, (0.0,) * 3, (1.0,) * 3), params, seed=1))
    translated = CLIENTS * samples * params.dimension * 4
    parts = {
        "models, embeddings and labels to the cloud": CLIENTS
        * (model.bytes + params.beside_model(samples, model.features)),
        "decoder and embeddings to the clients": CLIENTS * (decoder + translated),
        "logits between clients": CLIENTS * (CLIENTS - 1) * params.between_clients(samples, CLASSES),
    }
    rounds = {name: sum(parts.values()) if name == "dffke" else 2 * CLIENTS * model.bytes for name in TOTALS}
    return {
        "model": model.bytes,
        "decoder": decoder,
        "parts": parts,
        "round": rounds,
        "rounds": {name: round(total / rounds[name], 1) for name, total in TOTALS.items()},
    }


def milliseconds(work: Callable[[], object]) -> float:
    """The processor time of `work`, the median of 15 calls after a first one."""
    work()
    taken = []
    for _ in range(15):
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return round(1e3 * median(taken), 2)


def exchange(p: FEELPGen, generator: State, silos: int, model: State) -> Callable[[], object]:
    """The computation of an edge when it meets the other silos, which have different generators."""
    labels = 1
    classes, features = dimensions(model)
    others = {
        f"edge-{k}": KnownEdge(published(new_generator(classes, features, p.generator_hidden, k), p, labels, k), 1, 1)
        for k in range(1, silos)
    }

    def meet() -> State:
        best = rank(published(generator, p, labels, 0), others, 2, p)[: p.aggregated]
        return aggregate(model, [model] * len(best), [row.weight for row in best], p)

    return meet


def feelpgen() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, p in (("feelpgen", FEELPGen()), ("feelpgen-plus", FEELPGenPlus())):
        model = build("cnn", (1, 28, 28), 10, seed=1).get()
        generator = new_generator(*dimensions(model), p.generator_hidden, seed=0)
        times = {silos: milliseconds(exchange(p, generator, silos, model)) for silos in SILOS}
        found[name] = {"message": published(generator, p, 1, 0).nbytes, "milliseconds": times}
    generators = {
        str(classes): size_of(new_generator(classes, 32, FEELPGen().generator_hidden, 0)) for classes in (10, 2)
    }
    return {"generator": generators, **found}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"dffke": dffke(), "feelpgen": feelpgen()}, indent=1))
