"""Delivery between two nodes: their presence, and messages as streams of packets."""
