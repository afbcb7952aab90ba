"""The server: FedAvg, evaluated on the test set after each round.

The printed lines are all that edgebed needs: they put rounds and figures into its record, and time faults by rounds.
"""

import json

import torch
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.learning import evaluate, load_data, make_model

torch.set_num_threads(1)
app = ServerApp()


class Telling(FedAvg):
    """FedAvg that tells edgebed when a round begins."""

    def configure_train(self, server_round, arrays, config, grid):
        print("::edgebed", json.dumps({"round": server_round, "phase": "start"}), flush=True)
        return super().configure_train(server_round, arrays, config, grid)


@app.main()
def main(grid, context):
    config = context.run_config
    _, test = load_data()

    def evaluate_round(round, arrays):
        if round == 0:
            return None
        model = make_model()
        model.load_state_dict(arrays.to_torch_state_dict())
        accuracy, loss = evaluate(model, test)
        print("::edgebed", json.dumps({"round": round, "accuracy": accuracy, "loss": loss}), flush=True)
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    clients = config["clients"]
    strategy = Telling(fraction_evaluate=0.0, min_train_nodes=max(1, clients // 2), min_available_nodes=clients)
    first = ArrayRecord(make_model().state_dict())
    strategy.start(grid, first, num_rounds=config["rounds"], evaluate_fn=evaluate_round)
