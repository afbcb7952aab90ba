"""The two planes: messages between nodes over shaped links, and a node's word with the orchestrator."""
