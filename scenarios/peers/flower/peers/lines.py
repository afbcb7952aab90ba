"""The lines of output that edgebed reads."""

import json


def report(**values):
    print("::edgebed", json.dumps(values), flush=True)
