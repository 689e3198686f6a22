"""Numeric detectors, ours and the rules of others, on curves of others and on synthetic runs.

`python -m bench.detectors` compares, varies parameters, counts false alarms on a million healthy samples and times a record.
"""
