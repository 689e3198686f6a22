"""Gradient norms of a short log."""
