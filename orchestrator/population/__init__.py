"""A population of clients. A few of them take part in each round. Pure functions of the scenario's seed and of the
clients' history: who they are, when they are available, who is selected, and the samples of each."""
