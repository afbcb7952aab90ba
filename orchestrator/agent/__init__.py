"""The agent: it makes the nodes of a run on one host, and shapes the links that they send over."""
