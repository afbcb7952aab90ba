"""Nodes as containers of a Docker Engine, made from the image that is to be deployed."""
