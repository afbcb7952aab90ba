"""``python -m node.process.measuring ORDER``: the size of a plug-in's model, for an orchestrator without torch.

ORDER is JSON with the plug-ins, the model's name and parameters, and the form of the data. Prints JSON
with the size, or with the error.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from dataclasses import asdict
from typing import Any

from node.assignment import PluginSource
from node.catalogue.datasets import Form
from node.errors import PluginError
from node.extras import lacking
from node.plugins import with_plugins


def size(order: dict[str, Any]) -> dict[str, Any]:
    """The fields of `Size`, or an ``error``."""
    name = order["model"]
    try:
        models: Any = importlib.import_module("node.learning.models")
    except ImportError as error:
        return {"error": f"model {name} {lacking(error) or error}"}
    errors: Any = importlib.import_module("node.learning.errors")
    try:
        catalogue = with_plugins(PluginSource(**plugin) for plugin in order["plugins"])
        form = _form(order)
        measured = models.measured(catalogue.models[name], form, order["params"])
        return asdict(measured)
    except (PluginError, errors.ModelError) as error:
        return {"error": str(error)}


def _form(order: dict[str, Any]) -> Form:
    parts = []
    for name, kind, shape in order["parts"]:
        parts.append((name, kind, tuple(shape)))
    return Form(
        tuple(order["shape"]),
        order["classes"],
        order["tokens"],
        tuple(order["labels"]),
        order["task"],
        tuple(parts),
    )


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):  # what the plug-in prints
        answer = size(order)
    print(f"\n{json.dumps(answer)}")
