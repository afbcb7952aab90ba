"""A local web page of the runs in a folder, which follows those that are going on.

It reads the records of runs. What it shows is made by plain functions from a record to JSON values; `app` hands them
out over HTTP. It speaks to an orchestrator only when somebody makes a fault or sets a pace (`acting`).
"""
