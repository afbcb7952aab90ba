"""The hosts of a swarm: list, check and prepare them."""
