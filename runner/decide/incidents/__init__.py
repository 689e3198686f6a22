"""Incidents: attribution, diagnosis, non-fatal incidents, and the ladder of rungs that answers them. Pure."""
