"""The shaped links between nodes: wiring, and the engines that shape them."""
