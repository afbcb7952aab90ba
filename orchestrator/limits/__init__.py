"""What a deployment survives: the search for the latency, the loss or the outage at which it fails, and the cause."""
