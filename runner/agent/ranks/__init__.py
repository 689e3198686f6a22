"""Ranks of this node: their channels, reports, output files, resources and termination."""
