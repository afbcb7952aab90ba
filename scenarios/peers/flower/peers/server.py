"""The server: Flower's FedAvg with its defaults, without evaluation by clients.

It starts when all clients are connected, and reports the first weight after each round.
"""

import os
import time

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from peers.lines import report

ARRAYS = 4

app = ServerApp()


class ReportingFedAvg(FedAvg):
    """FedAvg that reports the start of each round."""

    def configure_train(self, server_round, arrays, config, grid):
        report(round=server_round, phase="start")
        return super().configure_train(server_round, arrays, config, grid)


def report_value(round, arrays):
    if round > 0:
        first = arrays.to_numpy_ndarrays()[0]
        report(round=round, value=float(first[0]))


@app.main()
def main(grid, context):
    clients = int(os.environ["CLIENTS"])
    while len(list(grid.get_node_ids())) < clients:
        time.sleep(0.5)
    parameters = int(os.environ.get("PARAMETERS", "4000"))
    weights = [np.zeros(parameters // ARRAYS, dtype=np.float32) for _ in range(ARRAYS)]
    strategy = ReportingFedAvg(fraction_evaluate=0.0)
    rounds = context.run_config["rounds"]
    timeout = float(os.environ.get("ROUND_TIMEOUT", "3600"))
    strategy.start(grid, ArrayRecord(weights), num_rounds=rounds, timeout=timeout, evaluate_fn=report_value)
