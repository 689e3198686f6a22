"""Detect: volatile signals in, findings out. Soft state: a restart loses it, which delays a finding by one limit at most.

Pure: the caller passes the time. A detector never decides; it reports a fault, its duration, and the ranks or nodes concerned.
Every module here that registers a class of `Detector` takes part (`detector`, `registry`).
"""
