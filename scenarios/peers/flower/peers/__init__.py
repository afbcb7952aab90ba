"""FedAvg on four arrays, as a Flower app."""
