"""Simulate: a fleet model around the real core, in virtual time.

The controller, the turns, the journal and the detectors are the ones the supervisor runs; machines, gangs, places and the
supervisor's loop are models of the real ones, which say the same things in the same order. Nothing here sleeps or starts a
process, so a night of faults takes a fraction of a second, and every point at which a supervisor can die is tried.
"""
