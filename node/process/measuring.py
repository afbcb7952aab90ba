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
from node.catalogue.models import MODELS
from node.errors import PluginError
from node.extras import lacking
from node.plugins import activate


def size(order: dict[str, Any]) -> dict[str, Any]:
    """The fields of `Size`, or an ``error``."""
    try:
        models: Any = importlib.import_module("node.learning.models")
    except ImportError as error:
        return {"error": f"model {order['model']} {lacking(error) or error}"}
    errors: Any = importlib.import_module("node.learning.errors")
    try:
        activate(PluginSource(**each) for each in order["plugins"])
        parts = tuple((name, kind, tuple(shape)) for name, kind, shape in order["parts"])
        form = Form(
            tuple(order["shape"]), order["classes"], order["tokens"], tuple(order["labels"]), order["task"], parts
        )
        return asdict(models.measured(MODELS[order["model"]], form, order["params"]))
    except (PluginError, errors.ModelError) as error:
        return {"error": str(error)}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # what the plug-in prints
        answer = size(json.loads(sys.argv[1]))
    print(f"\n{json.dumps(answer)}")
