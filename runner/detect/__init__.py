"""Detect: volatile signals in, findings out. Soft state: what was learned of a run is dumped for the next supervisor, or lost.

Pure: the caller passes the time. A detector never decides; it reports a fault, its duration, and the ranks or nodes concerned.
Every module here that registers a class of `Detector` takes part (`detector`, `registry`).
"""
