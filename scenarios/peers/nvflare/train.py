"""The training of a site: it sleeps, then adds its index plus one to every weight.

So the mean of all updates is known, and each missing or repeated update shows in it.
"""

import json
import os
import sys
import threading
import time

import numpy as np
import nvflare.client as flare
from nvflare.app_common.abstract.fl_model import FLModel

FAULT_AFTER = 4.0  # s of the training


def report(**values):
    """Print a line for edgebed. NVFlare replaces ``print`` in scripts: its lines start with a time."""
    sys.__stdout__.write(f"::edgebed {json.dumps(values)}\n")
    sys.__stdout__.flush()


def train(model, index):
    """The update of a model."""
    round = model.current_round + 1
    report(event="training started", round=round)
    if os.environ.get("FAULT_ROUND") == str(round) and os.environ.get("FAULT_CLIENT") == str(index):
        threading.Timer(FAULT_AFTER, report, kwargs={"event": "fault may begin"}).start()
    time.sleep(float(os.environ.get("TRAIN_SECONDS", "0.5")))
    updated = {}
    for name, weights in model.params.items():
        updated[name] = weights + np.float32(index + 1)
    report(event="training ended", round=round)
    return FLModel(params=updated, params_type="FULL", meta={"NUM_STEPS_CURRENT_ROUND": 10})


def main():
    flare.init()
    index = int(flare.get_site_name().rpartition("-")[2])
    while flare.is_running():
        model = flare.receive()
        if model is None:
            break
        flare.send(train(model, index))


if __name__ == "__main__":
    main()
