"""Benchmarks: each module measures one thing, prints its method and its figures, and ends with 1 when a limit is missed.

`python -m bench` runs all of them, `python -m bench journal` one; each also runs alone, `python -m bench.journal`. Continuous
integration asserts order and counts, never seconds: figures are for people who know what else the machine is doing.
"""
