"""Tails: log files followed through rotation, truncation and floods; no byte is read twice."""
