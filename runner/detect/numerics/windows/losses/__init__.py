"""Losses of a short log: spikes, levels, and runaways."""
