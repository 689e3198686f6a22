"""Runs: what each run needs next, its attempts, and which of its checkpoints are trusted. Pure."""
