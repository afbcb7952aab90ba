"""The server: FedAvg, evaluated on the test set after each round.

The lines that begin with ::edgebed are all that edgebed needs: they put rounds and figures into its record, and time
faults by rounds.
"""

import json

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.learning import evaluate, load_data, make_model

app = ServerApp()


def tell(**values):
    print("::edgebed", json.dumps(values), flush=True)


class Telling(FedAvg):
    """FedAvg that tells edgebed when a round begins."""

    def configure_train(self, server_round, arrays, config, grid):
        tell(round=server_round, phase="start")
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
        tell(round=round, accuracy=accuracy, loss=loss)
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    strategy = Telling(fraction_evaluate=0.0, min_available_nodes=config["clients"])
    first = ArrayRecord(make_model().state_dict())
    strategy.start(grid, first, num_rounds=config["rounds"], timeout=config["timeout"], evaluate_fn=evaluate_round)
