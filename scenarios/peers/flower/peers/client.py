"""A client: it sleeps instead of training, then adds its index plus one to every weight.

So the mean of all updates is known, and each missing or repeated update shows in it.
"""

import os
import threading
import time

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from peers.lines import report

FAULT_AFTER = 4.0  # s of the training

app = ClientApp()


@app.train()
def train(message, context):
    index = int(context.node_config["partition-id"])
    round = int(message.content["config"]["server-round"])
    report(event="training started", round=round)
    if os.environ.get("FAULT_ROUND") == str(round) and os.environ.get("FAULT_CLIENT") == str(index):
        threading.Timer(FAULT_AFTER, report, kwargs={"event": "fault may begin"}).start()
    time.sleep(float(os.environ.get("TRAIN_SECONDS", "0.5")))
    weights = message.content["arrays"].to_numpy_ndarrays()
    updated = [array + (index + 1) for array in weights]
    report(event="training ended", round=round)
    content = {"arrays": ArrayRecord(updated), "metrics": MetricRecord({"num-examples": 10})}
    return Message(content=RecordDict(content), reply_to=message)
