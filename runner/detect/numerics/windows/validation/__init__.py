"""Validation losses and accuracies of a short log."""
