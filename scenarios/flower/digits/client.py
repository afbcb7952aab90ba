"""A client: trains the server's model on its own share of the digits."""

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits.learning import load_data, make_model, share, train

app = ClientApp()


@app.train()
def train_round(message, context):
    config = context.run_config
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    whole, _ = load_data()
    own = share(whole, context.node_config["partition-id"], config["clients"])
    train(model, own, config["local-epochs"], config["batch-size"], config["learning-rate"])
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(own[1])})}
    return Message(content=RecordDict(content), reply_to=message)
