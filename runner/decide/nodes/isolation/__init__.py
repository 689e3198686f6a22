"""Isolations as the supervisor drives them: measurements by agents, results, and what follows from a verdict."""
