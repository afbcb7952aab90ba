"""Nodes as containers of a Docker Engine, made from the image that will be deployed."""
