"""A population of clients, of which a few take part in each round. Pure: who they are, when they are there, who is
selected, and what each holds, as functions of the scenario's seed and of what was seen."""
