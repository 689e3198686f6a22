"""Checkpoints on disk: seal, verify, survey and prune.

Ranks seal, the supervisor verifies and prunes. A folder counts once it is sealed and is trusted once every byte was verified.
"""
