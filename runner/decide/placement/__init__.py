"""Placement: which nodes a run gets, in which order, and the launch plan for each. Pure."""
