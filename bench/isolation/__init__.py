"""Isolation of bad nodes on a stated model: how often it names a wrong one, and after how many rounds."""
