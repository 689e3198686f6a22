"""Simulate: a fleet model around the real core, in virtual time.

The controller, the decision loop, the journal and the detectors are those of the supervisor; nodes, gangs and actions are models
of the real ones, which send the same messages in the same order. Nothing here sleeps or starts a process: a night of faults takes
a fraction of a second, and tests can kill a supervisor at every point.
"""
