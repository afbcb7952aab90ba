"""Property-based tests: random scenarios, and invariants that must hold in each of their records.

`generate` makes a case from a seed, `trial` runs it, `invariants` judge it, `shrink` reduces a failing case.
`python -m tests.campaign --help` explains how to run many cases.
"""
