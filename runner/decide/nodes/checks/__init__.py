"""Checks of nodes: when which runs, what results say beside those of peers, and what follows."""
