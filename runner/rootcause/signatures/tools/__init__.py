"""Signatures of what tools print about devices."""
