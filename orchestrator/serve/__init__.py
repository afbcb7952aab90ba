"""A local web page of the runs in a folder, which follows the running ones.

It reads the records of runs. Plain functions turn a record into JSON values, which `app` serves over HTTP. It contacts
an orchestrator only when the user makes a fault or sets a pace (`acting`).
"""
