"""Hangs: which ranks are blocked, their stacks, and their flight records, read before the ranks are killed."""
