"""A local web page of the runs in a folder, which follows those that are going on.

It reads the records of runs and never speaks to their orchestrators. What it shows is made by plain functions from a
record to JSON values; `app` hands them out over HTTP.
"""

PACKAGES = ("starlette", "uvicorn")
"""What it is made with. They come with the extra `serve`."""
