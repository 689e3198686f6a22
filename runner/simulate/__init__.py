"""Simulate: a fleet model around the real core, in virtual time.

The controller, the turns, the journal and the detectors are the ones the supervisor runs; nodes, gangs and places are models.
Nothing here sleeps or starts a process, so a night of faults takes a fraction of a second, and every crash point can be tried.
"""
