"""Words of a plan that a record has too: names of nodes, actions and devices with a meaning of their own."""

from __future__ import annotations

Ends = tuple[str, str]  # the nodes of one direction of a link: source, target
POPULATION = "population"  # the node that stands for all clients of a population
PROCESSOR = "cpu"  # the device of a node that trains on no accelerator
POWER_OFF = "power-off"
CUTS = ("disconnect", "partition", POWER_OFF)  # the actions of faults that cut links
HARDWARE_LABEL = "edgebed.hardware"  # the label of a board. Its value is the hardware class that the board is.
