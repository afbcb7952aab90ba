"""Algorithms that others compare with, each a plug-in in one file that uses the public interface of edgebed alone.

A scenario selects one by its module: ``plugins: [edgebed.baselines.fedproto]`` and ``algorithm: {name: fedproto}``.
"""
