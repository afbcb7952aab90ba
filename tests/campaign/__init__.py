"""Tests that look for what nobody thought of: random scenarios, and what must hold in each of their records.

`generate` makes a case of a seed, `trial` runs it, `invariants` judge it, `shrink` makes a failing case small.
`python -m tests.campaign --help` tells how to run many.
"""
